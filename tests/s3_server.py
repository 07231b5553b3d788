"""A real S3 server of this machine's own, on a folder: `make engines` brings it."""

import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import pytest

from clicktower.flows.config.settings import Settings
from tests.services import Services

KEY_ID, SECRET = "clicktower-tests", "a-secret-that-no-file-may-hold"


class S3Server(Services):
    """Answers at one address from its start to the end of the block, but for when it was killed. Has one bucket."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._starters = {"S3 server": self.start}
        self.program = Path(Settings().engines) / "s3-server"
        if not self.program.exists():
            pytest.skip(f"there is no {self.program}: run `make engines`")
        self.folder = folder
        (folder / "data" / "bucket").mkdir(parents=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.environment = {
            "AWS_ACCESS_KEY_ID": KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": f"http://{self.address}",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def start(self) -> None:
        root = {"ROOT_ACCESS_KEY": KEY_ID, "ROOT_SECRET_KEY": SECRET}
        with (self.folder / "requests.log").open("ab") as log:
            self._running["S3 server"] = process = subprocess.Popen(
                [str(self.program), "--port", self.address, "posix", str(self.folder / "data")],
                env=os.environ | root, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        host, port = self.address.split(":")
        while True:
            assert process.poll() is None, (self.folder / "requests.log").read_text()[-2000:]
            with suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
                return
            time.sleep(0.02)

    def kill(self) -> None:
        self._running["S3 server"].send_signal(signal.SIGKILL)
        self._running["S3 server"].wait()

    def files(self) -> list[Path]:
        """What the bucket holds, as the server keeps it."""
        return sorted(path for path in (self.folder / "data" / "bucket").rglob("*") if path.is_file())

    def __enter__(self) -> "S3Server":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
