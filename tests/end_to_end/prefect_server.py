"""A Prefect server, its worker and the nightly deployment as processes of their own, to be killed and started again."""

import datetime
import json
import os
import signal
import stat
import subprocess
import sys
import uuid
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.ray_cluster import free_ports
from tests.services import Services
from tests.waiting import SECONDS, wait_until

ROOT = Path(__file__).parent.parent.parent
PREFECT = [str(Path(sys.executable).parent / "prefect")]
ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


class PrefectServer(Services):
    """On loopback, with a database of its own, ended with the block. `environment`: what runs are given besides."""

    def __init__(self, work: Path, **environment: str) -> None:
        super().__init__()
        self._work, self.temporary = work, work / "tmp"
        self.temporary.mkdir(parents=True)
        [port] = free_ports(1)
        self._commands = {
            "server": ["server", "start", "--host", "127.0.0.1", "--port", str(port)],
            "worker": ["worker", "start", "--pool", "clicktower", "--type", "process"],
        }
        self._starters = {name: partial(self._start, name) for name in self._commands}
        self.environment = (
            os.environ
            | {"TMPDIR": str(self.temporary)}
            | environment
            | {
                "PREFECT_HOME": str(work / "prefect"),
                "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
                "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
                "PREFECT_WORKER_QUERY_SECONDS": "1",
            }
        )
        self.api = httpx.Client(base_url=self.environment["PREFECT_API_URL"], timeout=SECONDS)

    def __enter__(self) -> "PrefectServer":
        self.start()
        self.cli("--no-prompt", "work-pool", "create", "clicktower", "--type", "process")
        self.cli("work-pool", "set-concurrency-limit", "clicktower", "1")
        self.cli("--no-prompt", "deploy", "--all", "--prefect-file", "deploy/prefect.yaml")
        self.api.post(f"/deployments/{self.deployment()['id']}/pause_deployment")  # at half past three it would begin
        self.start_worker()
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._running):
            self.kill(name)
        self.api.close()

    def start(self) -> None:
        self._start("server")
        wait_until(self._healthy, lambda: f"the server to answer\n{self.log('server')}")

    def start_worker(self) -> None:
        self._start("worker")

    def kill(self, name: str, *, with_all: bool = True) -> None:
        """kill -9 of the server or the worker; `with_all`: and of the flows that it started, but not of their stages.

        A stage has a session of its own.
        """
        process = self._running.pop(name)
        session = psutil.Process(process.pid)
        doomed = [session, *(session.children(recursive=True) if with_all else [])]
        for one in [one for one in doomed if not is_stage(one)]:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        process.wait()

    def stop(self, name: str) -> None:
        """As Ctrl-C does."""
        process = self._running.pop(name)
        os.killpg(process.pid, signal.SIGINT)
        process.wait(SECONDS)

    def cli(self, *arguments: str) -> None:
        done = subprocess.run([*PREFECT, *arguments], env=self.environment, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        def answer() -> httpx.Response | None:  # a busy machine's server says 503 now and then
            answered = self.api.request(method, path, json=body)
            return None if answered.status_code == 503 else answered.raise_for_status()

        return wait_until(answer, f"an answer to {path}").json()

    def deployment(self) -> dict[str, Any]:
        return self.ask("GET", "/deployments/name/clicktower/nightly")

    def trigger(self, config: Path, date: str = "2026-09-01") -> str:
        """The id of a new run of the deployment."""
        body = {"parameters": {"config": str(config), "data_date": date}}
        return self.ask("POST", f"/deployments/{self.deployment()['id']}/create_flow_run", body)["id"]

    def schedule(self, config: Path, date: str) -> str:
        """The id of a run as the schedule makes it: of a time, from which the run tells its date.

        Asked again, since a server that is killed while it answers may have made it, it makes no second one.
        """
        due = datetime.date.fromisoformat(date) + datetime.timedelta(days=1)
        state = {"type": "SCHEDULED", "state_details": {"scheduled_time": f"{due}T03:30:00Z"}}
        body = {"parameters": {"config": str(config)}, "state": state, "idempotency_key": f"{config} {due}"}
        return self.ask("POST", f"/deployments/{self.deployment()['id']}/create_flow_run", body)["id"]

    def set_state(self, run: str, state: str, name: str = "") -> None:
        body = {"state": {"type": state, "name": name or state.capitalize()}, "force": True}
        self.ask("POST", f"/flow_runs/{run}/set_state", body)

    def flow_run(self, run: str) -> dict[str, Any]:
        return self.ask("GET", f"/flow_runs/{run}")

    def state(self, run: str) -> dict[str, Any]:
        return self.flow_run(run)["state"]

    def end_of(self, run: str) -> dict[str, Any]:
        """The state that a run ends in."""

        def ended() -> dict[str, Any] | None:
            with suppress(httpx.TransportError):
                return state if (state := self.state(run))["type"] in ENDED else None
            return None

        return wait_until(ended, lambda: f"the run to end: {self.told(run)}")

    def told(self, run: str) -> str:
        """All that is known of a run that did not end as it should."""
        return "\n".join([str(self.state(run)), *self.logs_of(run), self.log("worker"), self.log("server")])

    def tasks(self, run: str) -> dict[str, str]:
        """The state of each task by name; it lags behind the flow's."""
        found = self.ask("POST", "/task_runs/filter", {"flow_runs": {"id": {"any_": [run]}}})
        return {task["task_key"].split("-")[0]: task["state_type"] for task in found}

    def logs_of(self, run: str) -> list[str]:
        """What the run's page shows as its log."""
        body = {"logs": {"flow_run_id": {"any_": [run]}}, "sort": "TIMESTAMP_ASC"}
        return [line["message"] for line in self.ask("POST", "/logs/filter", body)]

    def events_of(self, run: str) -> list[dict[str, Any]]:
        """Those that the flow emitted itself."""
        body = {"filter": {"event": {"prefix": ["clicktower."]}, "resource": {"id": [f"prefect.flow-run.{run}"]}}}
        return self.ask("POST", "/events/filter", body)["events"]

    def emit(self, event: str, run: str, payload: dict[str, str]) -> None:
        """Let the server see an event as a run of the flow emits it."""
        flow = {"prefect.resource.id": "prefect.flow.1", "prefect.resource.role": "flow"}
        emitted = {
            "id": str(uuid.uuid4()),
            "occurred": datetime.datetime.now(datetime.UTC).isoformat(),
            "event": event,
            "resource": {"prefect.resource.id": f"prefect.flow-run.{run}"},
            "related": [flow | {"prefect.resource.name": "clicktower"}],
            "payload": payload,
        }
        self.api.post("/events", json=[emitted]).raise_for_status()

    def artifacts_of(self, run: str) -> list[dict[str, Any]]:
        return self.ask("POST", "/artifacts/filter", {"artifacts": {"flow_run_id": {"any_": [run]}}})

    def open_runs(self) -> list[str]:
        """The states of the runs that have not ended."""
        body = {"flow_runs": {"state": {"type": {"not_any_": list(ENDED)}}}}
        return [run["state_name"] for run in self.ask("POST", "/flow_runs/filter", body)]

    def is_idle(self) -> bool:
        """Whether the worker runs no flow."""
        children = psutil.Process(self._running["worker"].pid).children(recursive=True)
        return not any("prefect.engine" in words_of(child) for child in children)

    def log(self, name: str) -> str:
        return (self._work / f"{name}.log").read_text()[-3000:]

    def _start(self, name: str) -> None:
        with (self._work / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [*PREFECT, *self._commands[name]],
                env=self.environment,
                cwd=ROOT,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _healthy(self) -> bool:
        with suppress(httpx.HTTPError):
            return self.api.get("/health", timeout=2).status_code == 200
        return False


def words_of(process: psutil.Process) -> list[str]:
    """Its command line; none where it has ended meanwhile."""
    with suppress(psutil.Error):
        return process.cmdline()
    return []


def is_stage(process: psutil.Process) -> bool:
    """Whether it is a stage, or was started by one."""
    with suppress(psutil.NoSuchProcess):
        return any("clicktower.flows.cli" in words_of(one) for one in (process, *process.parents()))
    return False


def running_stages(store: Path) -> list[int]:
    """The stages that run on a store, by the options that each reads from its standard input."""
    stages = [process.pid for process in psutil.process_iter() if "clicktower.flows.cli" in words_of(process)]
    return [pid for pid in stages if f'"{store}"' in options_of(pid)]


def options_of(pid: int) -> str:
    """What is in the file that a process has as standard input; nothing where it has ended meanwhile."""
    file = Path(f"/proc/{pid}/fd/0")
    with suppress(OSError):
        return file.read_text() if stat.S_ISREG(file.stat().st_mode) else ""
    return ""


def claim(store: Path, stage: str) -> dict[str, Any] | None:
    """Who makes a stage of the store at the moment."""
    for path in store.glob(f"{stage}/*/claim.json"):
        with suppress(OSError, ValueError):
            attempts = {one.name for one in path.parent.glob("attempt-*") if "scratch" not in one.name}
            return json.loads(path.read_text()) | {"attempts": attempts}
    return None
