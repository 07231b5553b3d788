"""A Flink cluster of processes, started by the scripts that users start theirs with."""

import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from tests.ray_cluster import free_ports
from tests.services import Services
from tests.waiting import wait_until

SCRIPTS = Path(__file__).resolve().parents[3] / "deploy" / "flink"
TASK_MANAGERS = ("task-manager-1", "task-manager-2")


class Cluster(Services):
    """A job manager and two task managers on ports of their own, ended with the block."""

    def __init__(self, work: Path, engines: Path) -> None:
        super().__init__()
        self._work, self._environment = work, os.environ | {"CLICKTOWER_ENGINES": str(engines)}
        self._started: list[subprocess.Popen] = []
        self._rest, self._rpc = free_ports(2)
        self._before: set[str] = set()
        # Flink answers from a copy of a job's state that is 3 s old unless told otherwise: a small job ends in less.
        options = (f"-Drest.port={self._rest}", "-Dweb.refresh-interval=100")
        self._commands = {"job-manager": ["start-job-manager", str(work), *options]} | {
            name: ["start-task-manager", str(work), name, f"-Dtaskmanager.resource-id={name}"] for name in TASK_MANAGERS
        }
        self._starters = {name: partial(self._start, name) for name in self._commands}

    @property
    def options(self) -> tuple[str, ...]:
        """What a job needs to run here, beside what clicktower fills in."""
        return ("--runner=FlinkRunner", f"--flink_master=127.0.0.1:{self._rest}", "--parallelism=2")

    def __enter__(self) -> "Cluster":
        self._start("job-manager")
        self.start_task_managers()
        return self

    def __exit__(self, *_: object) -> None:
        sessions = {process.pid for process in self._started}
        for pid in (int(folder.name) for folder in Path("/proc").glob("[0-9]*")):
            with suppress(ProcessLookupError):
                if os.getsid(pid) in sessions:  # the Python workers too, which live on where their manager was killed
                    os.kill(pid, signal.SIGKILL)
        for process in self._started:
            process.wait()

    def start_task_managers(self) -> None:
        """Both of them run, whatever a test did."""
        for name in TASK_MANAGERS:
            if self.has_ended(name):
                self._start(name)
        until(lambda: len(self.ask("/taskmanagers")["taskmanagers"]) == len(TASK_MANAGERS), self.logs)

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs, the newest last."""
        return sorted(self.ask("/jobs/overview")["jobs"], key=lambda job: job["start-time"])

    def expect_a_job(self) -> None:
        """The job to wait for is one that is not there yet."""
        self._before = {job["jid"] for job in self.jobs()}

    def wait_until_halfway(self) -> str:
        """The id of the expected job, once some of its steps are done and others are not."""

        def halfway() -> str | None:
            found = [job for job in self.jobs() if job["jid"] not in self._before]
            return found[0]["jid"] if found and found[0]["tasks"]["finished"] >= 4 else None

        return until(halfway, self.logs)

    def kill_the_task_manager_of(self, job: str) -> bool:
        """kill -9 of the one that runs steps of the job; False where the job had ended before that."""

        def busy() -> str | None:
            found = self.ask(f"/jobs/{job}")
            vertices = [vertex["id"] for vertex in found["vertices"] if vertex["status"] == "RUNNING"]
            subtasks = [task for v in vertices for task in self.ask(f"/jobs/{job}/vertices/{v}")["subtasks"]]
            running = (task["taskmanager-id"] for task in subtasks if task["status"] == "RUNNING")
            return next(running, "" if found["state"] == "FINISHED" else None)

        name = until(lambda: (found := busy()) is not None and (found,), self.logs)[0]
        if name:
            self._running[name].kill()
            self._running[name].wait()
        return bool(name)

    def cancel(self, job: str) -> None:
        self.ask(f"/jobs/{job}?mode=cancel", "PATCH")

    def ask(self, path: str, method: str = "GET") -> Any:
        request = urllib.request.Request(f"http://127.0.0.1:{self._rest}{path}", method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def logs(self) -> str:
        return "\n".join(f"{path.name}: {path.read_text()[-2000:]}" for path in sorted(self._work.glob("*.log")))

    def _start(self, name: str) -> None:
        script, *arguments = self._commands[name]
        with (self._work / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [str(SCRIPTS / script), *arguments, f"-Djobmanager.rpc.port={self._rpc}"],
                env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        self._started.append(self._running[name])


def until(condition: Callable[[], Any], else_say: Callable[[], str]) -> Any:
    """As wait_until; a server that does not answer yet is not true."""

    def answered() -> Any:
        with suppress(OSError):
            return condition()
        return None

    return wait_until(answered, else_say)
