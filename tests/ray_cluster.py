"""A Ray cluster of processes, started by the scripts that users start theirs with, to be killed as machines are."""

import json
import os
import random
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from tests.services import Services
from tests.waiting import wait_until

SCRIPTS = Path(__file__).resolve().parent.parent / "deploy" / "ray"
ASK = """
import json, sys, ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
print(json.dumps({asked}))
"""


class RayCluster(Services):
    """A head without CPUs and nodes with some, on ports of their own and with a token, ended with the block."""

    def __init__(self, work: Path, cpus: Mapping[str, int], **environment: str) -> None:
        """`cpus`: of each node, by its name. `environment`: what the processes are given besides."""
        work.mkdir(exist_ok=True)
        super().__init__()
        self._work = work
        port, self.dashboard, agent, client = free_ports(4)
        self.address = f"127.0.0.1:{port}"
        (work / "token").write_text(os.urandom(32).hex(), encoding="ascii")
        (work / "token").chmod(0o600)
        self.environment = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(work / "token"),
            "RAY_USAGE_STATS_ENABLED": "0",
        } | environment
        # The head's agent takes the jobs, by default on one port of the machine: another cluster may be here.
        ports = (f"--dashboard-port={self.dashboard}", f"--ray-client-server-port={client}")
        head = ["start-head", str(work), f"--port={port}", *ports, f"--dashboard-agent-listen-port={agent}"]
        nodes = {
            name: ["start-node", str(work), str(number), f"--address={self.address}"] for name, number in cpus.items()
        }
        self._commands = {"head": head} | nodes
        self._starters = {name: partial(self._begin, name) for name in self._commands}

    def __enter__(self) -> "RayCluster":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self) -> None:
        for name in self.names:
            self._start(name)

    def has_ended(self, name: str) -> bool:
        """`ray start --block` goes on for ever where its raylet ended by itself, as it does with one of its agents."""
        lives = not super().has_ended(name)
        starting = lives and "Ray runtime started" not in self.log(name)
        return not starting and not (lives and any(map(_is_raylet, self.processes(name))))

    def kill(self, name: str) -> None:
        """kill -9 of all of a node at once, as when its machine is gone."""
        for process in self.processes(name):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        if name in self._running:
            self._running.pop(name).wait()

    def end(self) -> None:
        for name in list(self._running):
            self.kill(name)

    def jobs(self) -> list[dict[str, Any]]:
        """The jobs in the list of the head that runs now, but for the one that asks."""
        return [
            job for job in self._ask("ray._private.state.jobs()") if "-m clicktower.flows.cli " in job["Entrypoint"]
        ]

    def nodes(self) -> list[dict[str, Any]]:
        """Those that the head knows, dead ones with the reason."""
        return self._ask("ray.nodes()")

    def log(self, name: str) -> str:
        return (self._work / f"{name}.log").read_text()

    def _ask(self, asked: str) -> Any:
        environment = os.environ | self.environment
        command = [sys.executable, "-c", ASK.format(asked=asked), self.address]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def _start(self, name: str) -> None:
        """Until it runs: on a slow or busy machine `ray start` gives up after half a minute."""

        def runs() -> bool:
            if self.has_ended(name):
                self._begin(name)
            return "Ray runtime started" in self.log(name)

        wait_until(runs, lambda: self.log(name))

    def _begin(self, name: str) -> None:
        self.kill(name)  # what is left of it
        script, *arguments = self._commands[name]
        with (self._work / f"{name}.log").open("wb") as log:
            self._running[name] = subprocess.Popen(
                [str(SCRIPTS / script), *arguments],
                env={k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"} | self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


def free_ports(number: int) -> list[int]:
    """Of those that the system gives to nobody who asks for any: or else another test may be given one meanwhile, and
    as Ray opens its ports two clusters would share it."""
    found: list[int] = []
    while len(found) < number:
        port = random.randrange(20_000, 32_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.append(port)
    return found


def _is_raylet(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):  # it may have ended since it was listed
        return "raylet" in process.name()
    return False
