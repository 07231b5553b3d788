"""A bad line before an object store: it answers 503, dawdles, breaks in the middle of a body, loses answers."""

import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

SLOW_DOWN = (
    b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
)
FAULTS = ("slow_down", "late", "cut_request", "cut_answer", "lost_answer")
LATE_SECONDS = 0.5


@dataclass(kw_only=True)
class BadLine:
    """A proxy before the server at an address, from its start to the end of the block; it counts what goes through it.

    `fault`: what is done to a request, given its method, path and headers: one of FAULTS, or nothing.
    """

    server: str
    fault: Callable[[str, str, dict[str, str]], str] = lambda *_: ""
    requests: Counter[str] = field(default_factory=Counter)  # by method
    faults: Counter[str] = field(default_factory=Counter)
    num_bytes: int = 0  # both ways

    def __enter__(self) -> "BadLine":
        line = self

        class Handler(_Handler):
            of = line

        self._proxy = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._proxy.daemon_threads = True
        self.address = f"127.0.0.1:{self._proxy.server_port}"
        threading.Thread(target=self._proxy.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._proxy.shutdown()
        self._proxy.server_close()


def at_random(seed: int, share: float) -> Callable[[str, str, dict[str, str]], str]:
    """A fault of any kind for a share of the requests."""
    chance = random.Random(seed)
    return lambda *_: chance.choice(FAULTS) if chance.random() < share else ""


class _Handler(BaseHTTPRequestHandler):
    of: BadLine
    protocol_version = "HTTP/1.1"

    def handle_one_request(self) -> None:
        with suppress(OSError):  # the client is gone
            super().handle_one_request()
            return
        self.close_connection = True

    def _handle(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        fault = self.of.fault(self.command, self.path, headers)
        self.of.requests[self.command] += 1
        self.of.faults[fault] += bool(fault)
        size = int(headers.get("content-length", 0))
        body = self.rfile.read(size // 2 if fault == "cut_request" else size)
        if fault == "slow_down":
            self._answer(503, {"Content-Type": "application/xml"}, SLOW_DOWN)
            return
        if fault == "late":
            time.sleep(LATE_SECONDS)
        if fault == "lost_request":
            self._cut()
            return
        server = HTTPConnection(self.of.server, timeout=60)
        try:
            server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() != "expect":  # answered here
                    server.putheader(name, value)
            server.endheaders(body)
            if fault == "cut_request":
                self._cut()
                return
            answer = server.getresponse()
            content = answer.read()
        except (OSError, HTTPException):
            self._cut()
            return
        finally:
            server.close()
        self.of.num_bytes += len(str(self.headers)) + len(body) + len(str(answer.headers)) + len(content)
        if fault == "lost_answer":
            self._cut()
            return
        self._answer(answer.status, dict(answer.getheaders()), content, cut=fault == "cut_answer")

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle

    def _answer(self, status: int, headers: dict[str, str], content: bytes, *, cut: bool = False) -> None:
        self.send_response_only(status)
        length = headers.get("Content-Length") if self.command == "HEAD" else str(len(content))
        for name, value in headers.items():
            if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                self.send_header(name, value)
        self.send_header("Content-Length", length or "0")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[: len(content) // 2] if cut else content)
        if cut:
            self._cut()

    def _cut(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: object) -> None:
        pass
