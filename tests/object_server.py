"""A real object store of this machine's own, on a folder: `make engines` brings its program."""

import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from clicktower.flows.config.settings import Settings
from tests.services import Services


class ObjectServer(Services):
    """Answers at one address from its start to the end of the block, but for when it was killed. Has one bucket.

    A kind of server names its program, the package of its clients, and the bucket as they know it.
    """

    program_name: str
    package: str
    bucket: str

    def __init__(self, folder: Path) -> None:
        super().__init__()
        pytest.importorskip(self.package)
        self._starters = {self.program_name: self.start}
        self.program = Path(Settings().engines) / self.program_name
        if not self.program.exists():
            pytest.skip(f"there is no {self.program}: run `make engines`")
        self.folder = folder
        (folder / "data" / "bucket").mkdir(parents=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.host, self.port = free.getsockname()
        self.address = f"{self.host}:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        return self.environment_at(self.address)

    def environment_at(self, address: str) -> dict[str, str]:
        """The environment of its clients, which find it at `address`."""
        raise NotImplementedError

    def arguments(self) -> list[str]:
        """Of the program."""
        raise NotImplementedError

    def environment_of_program(self) -> dict[str, str]:
        """What it has besides ours."""
        return {}

    def start(self) -> None:
        with (self.folder / "requests.log").open("ab") as log:
            self._running[self.program_name] = process = subprocess.Popen(
                [str(self.program), *self.arguments()],
                env=os.environ | self.environment_of_program(),
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        while True:
            assert process.poll() is None, (self.folder / "requests.log").read_text()[-2000:]
            with suppress(OSError), socket.create_connection((self.host, self.port), timeout=1):
                return
            time.sleep(0.02)

    def kill(self) -> None:
        self._running[self.program_name].send_signal(signal.SIGKILL)
        self._running[self.program_name].wait()

    def files(self) -> list[Path]:
        """What the bucket holds, as the server keeps it."""
        return sorted(path for path in (self.folder / "data" / "bucket").rglob("*") if path.is_file())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
