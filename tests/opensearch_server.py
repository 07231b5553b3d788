"""A real OpenSearch of this machine's own: `make engines` brings it."""

import json
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from clicktower.flows.config.settings import Settings
from tests.services import Services


class OpenSearchServer(Services):
    """A node that answers at `address` from the start to the end of the block."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._starters = {"OpenSearch": self.start}
        self.jars = Path(Settings().engines) / "opensearch"
        if not self.jars.exists():
            pytest.skip(f"there is no {self.jars}: run `make engines`")
        self.folder = folder
        (folder / "config").mkdir(parents=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"http://127.0.0.1:{free.getsockname()[1]}"

    def start(self) -> None:
        command = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-cp", f"{self.jars}/*", str(self.jars / "OpenSearch.java")]
        with (self.folder / "log").open("ab") as log:
            self._running["OpenSearch"] = process = subprocess.Popen(
                [*command, str(self.folder), self.address.rpartition(":")[2]],
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        while True:
            assert process.poll() is None, (self.folder / "log").read_text()[-2000:]
            with suppress(OSError):
                self.request("GET", "/_cluster/health?wait_for_status=yellow")
                return
            time.sleep(0.1)

    def request(self, method: str, path: str, body: bytes | dict[str, Any] | None = None) -> dict[str, Any]:
        """The answer to a request; bytes are lines of JSON. Raises HTTPError."""
        kind = "application/x-ndjson" if isinstance(body, bytes) else "application/json"
        content = json.dumps(body).encode() if isinstance(body, dict) else body
        asked = Request(self.address + path, content, {"Content-Type": kind}, method=method)
        with urlopen(asked, timeout=60) as answer:
            return json.load(answer)

    def __enter__(self) -> "OpenSearchServer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._running["OpenSearch"].kill()
        self._running["OpenSearch"].wait()
