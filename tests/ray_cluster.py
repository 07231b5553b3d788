"""A Ray cluster of processes, started by the scripts that users start theirs with, to be killed as machines are."""

import os
import random
import socket
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from tests.waiting import wait_until

SCRIPTS = Path(__file__).resolve().parent.parent / "deploy" / "ray"


class RayCluster:
    """A head without CPUs and nodes with some, on ports of their own and with a token, ended with the block."""

    def __init__(self, work: Path, cpus: Mapping[str, int], **environment: str) -> None:
        """`cpus`: of each node, by its name. `environment`: what the processes are given besides."""
        work.mkdir(exist_ok=True)
        self._work, self._cpus = work, cpus
        self._processes: dict[str, subprocess.Popen] = {}
        port, self.dashboard, self._agent, self._client = free_ports(4)
        self.address = f"127.0.0.1:{port}"
        (work / "token").write_text(os.urandom(32).hex(), encoding="ascii")
        (work / "token").chmod(0o600)
        self.environment = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(work / "token"),
            "RAY_USAGE_STATS_ENABLED": "0",
        } | environment

    def __enter__(self) -> "RayCluster":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self) -> None:
        # The head's agent takes the jobs, by default on one port of the machine: another cluster may be here.
        ports = (f"--dashboard-port={self.dashboard}", f"--ray-client-server-port={self._client}")
        agent = f"--dashboard-agent-listen-port={self._agent}"
        self._start("head", "start-head", f"--port={self.address.rpartition(':')[2]}", *ports, agent)
        for name, cpus in self._cpus.items():
            self._start(name, "start-node", str(cpus), f"--address={self.address}")

    def kill(self, name: str) -> None:
        """kill -9 of all of a node at once, as when its machine is gone."""
        for process in self.processes(name):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._processes.pop(name).wait()

    def end(self) -> None:
        for name in list(self._processes):
            self.kill(name)

    def processes(self, name: str) -> list[psutil.Process]:
        """Those of a node: its raylet, its workers and what they started."""
        node = psutil.Process(self._processes[name].pid)
        return [node, *node.children(recursive=True)]

    def log(self, name: str) -> str:
        return (self._work / f"{name}.log").read_text()

    def _start(self, name: str, script: str, *options: str) -> None:
        """Until it runs: on a slow or busy machine `ray start` gives up after half a minute."""

        def runs() -> bool:
            if name not in self._processes or self._processes[name].poll() is not None:
                self._processes[name] = self._begin(name, [str(SCRIPTS / script), str(self._work), *options])
            return "Ray runtime started" in self.log(name)

        wait_until(runs, lambda: self.log(name))

    def _begin(self, name: str, command: list[str]) -> subprocess.Popen:
        with (self._work / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                command,
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
