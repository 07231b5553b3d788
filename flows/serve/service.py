"""The processes of the service: one listening socket, one server or several workers that share it."""

import asyncio
import contextlib
import ipaddress
import logging
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.supervisors.multiprocess import Multiprocess

from clicktower.beam_jobs import keep_out_unused_imports
from clicktower.flows.serve.limits import Limits, shared_address
from clicktower.flows.serve.turns import Waits
from clicktower.schemas.errors import StageError, UsageError

# Handlers share the interpreter with the thread that opens the next release; by default it is handed over after 5 ms.
_SWITCH_SECONDS = 0.0005

# An idle connection is closed after this many seconds: later than proxies close theirs, so that no request is lost.
_IDLE_SECONDS = 75

# A worker that does not answer its parent for so long hangs; one that reads its release is only busy.
_BUSY_SECONDS = 300

# The limits for a request's line and headers: seconds until they must have arrived, and their length.
_HEAD_SECONDS = 10.0
_MOST_HEAD_BYTES = 64 << 10


# As a browser writes it: lower case, without a path, the port only if it is not the scheme's own.
_ORIGIN = re.compile(r"\*|(?!http://.*:80$|https://.*:443$)https?://([a-z0-9.-]+|\[[0-9a-f:]+\])(:\d{1,5})?")


@dataclass(frozen=True, kw_only=True, slots=True)
class ServeConfig:
    """`allowed_hosts`: names by which requests may address the service besides this machine's own; if it is empty and
    the service listens to other machines, any name. `allowed_origins`: the sites whose pages may read answers in a
    browser, such as https://shop.example; * for any. `trusted_proxies`: the addresses, or networks, of the proxies
    whose X-Forwarded-For names the client; from any other the header is ignored, since anybody can write it.
    """

    release: str
    host: str = "127.0.0.1"
    port: int = 8080  # 0: any free port
    workers: int = 1
    poll_seconds: float = 2.0  # how often the pointer is checked
    drain_seconds: int = 30  # after SIGTERM, for current requests
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    against: str | None = None  # the digest of a kept release, for interleaved searches
    trusted_proxies: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535 or self.workers < 1 or self.poll_seconds <= 0 or self.drain_seconds < 1:
            raise UsageError(
                "The port must be 0 to 65535, workers and drain_seconds 1 or more, poll_seconds above 0.",
                "See `clicktower serve --help`.",
            )
        for origin in self.allowed_origins:
            if not _ORIGIN.fullmatch(origin):
                raise UsageError(
                    f"No browser names its page's origin {origin!r}.",
                    "Give scheme and host as in https://shop.example or http://localhost:3000, or * for any.",
                )
        self.limits.of_worker(self.workers)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def hosts_of(config: ServeConfig) -> frozenset[str] | None:
    """The host names that a request may use for this service; None: any.

    A page of any site can make a browser request `evil.example`, whose owner changes its address to 127.0.0.1; only the
    name in the request tells it from a request to this machine.
    """
    if not is_loopback(config.host) and not config.allowed_hosts:
        return None
    return frozenset({"localhost", "127.0.0.1", "[::1]", f"[{config.host}]", config.host, *config.allowed_hosts})


def listen(config: ServeConfig) -> socket.socket:
    """The bound socket. Raises StageError if the address is taken or not this machine's."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    # Naming TCP matters: asyncio sends small packets at once (TCP_NODELAY) only if it is named; otherwise an answer
    # would wait 40 ms for the acknowledgement of its own head.
    result = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        result.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        result.bind((config.host, config.port))
        result.listen(2_048)
    except OSError as error:
        result.close()
        raise StageError(
            f"The service cannot listen on {config.host}:{config.port}: {(error.strerror or str(error)).lower()}.",
            "Choose another --port (0: any that is free) or --host.",
        ) from None
    result.set_inheritable(True)
    return result


def serve(config: ServeConfig, listening: socket.socket) -> None:
    """Answer until SIGTERM or SIGINT; requests under way are finished first. Raises StageError if it cannot start.

    SIGTERM ends the process with code 0: Uvicorn raises it once more after the last answer.
    """
    asked_to_end = threading.Event()

    def end(*_: object) -> None:
        asked_to_end.set()
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    if config.workers == 1:
        server = uvicorn.Server(_uvicorn(config, make_app(config)))
        with server.capture_signals():
            if asked_to_end.is_set():  # the exception got lost among the imports
                sys.exit(0)
            server.run(sockets=[listening])
        return
    folder = tempfile.mkdtemp(prefix="clicktower-serve-")
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder  # workers add up their numbers here (metrics)
    try:
        _Workers(_uvicorn(config, partial(_worker_app, config), factory=True), sockets=[listening]).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def make_app(config: ServeConfig) -> ASGIApp:
    """The application of one worker, its release in memory. Raises StageError."""
    from clicktower.flows.serve.app import Metrics, build_app
    from clicktower.flows.serve.live import Live

    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    sys.setswitchinterval(_SWITCH_SECONDS)
    metrics = Metrics(shared=config.workers > 1)
    live = Live(config.release, changed=metrics.serving, failed=metrics.failed, against=config.against)
    return build_app(
        live, metrics, poll_seconds=config.poll_seconds, hosts=hosts_of(config), origins=config.allowed_origins,
        limits=config.limits, workers=config.workers,
    )  # fmt: skip


def _worker_app(config: ServeConfig) -> ASGIApp:
    """The application of a worker in a process of its own, which the command line did not start."""
    keep_out_unused_imports()
    return make_app(config)


class _Workers(Multiprocess):
    """Uvicorn's parent of the workers, which keeps their ends of its pipes open: so it would wait for minutes for the
    answer of a worker that is killed in the middle of a health check.
    """

    def keep_subprocess_alive(self) -> None:
        for process in self.processes:
            process.child_conn.close()
        super().keep_subprocess_alive()


class _Impatient(HttpToolsProtocol):
    """Uvicorn's connection with limits that Uvicorn lacks: on time and length of a request's head, on the time in which
    a client takes its answer, and on the connections that wait for a client.
    """

    _ends: asyncio.TimerHandle | None = None
    _head_bytes = 0

    def __init__(self, waits: Waits, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._waits = waits

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait(_HEAD_SECONDS)

    def data_received(self, data: bytes) -> None:
        if self._ends:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._ends and self._head_bytes > _MOST_HEAD_BYTES:
            self.send_400_response("The request's headers are too long.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._wait(_HEAD_SECONDS)

    def on_headers_complete(self) -> None:
        self._end_waiting()
        self._head_bytes = 0
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete:  # no other request has come meanwhile
            self._wait(_IDLE_SECONDS)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait(_IDLE_SECONDS)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.cycle.response_complete:
            self._wait(_IDLE_SECONDS)
        else:
            self._end_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_waiting()
        super().connection_lost(exc)

    def _wait(self, seconds: float) -> None:
        self._end_waiting()
        self._ends = self.loop.call_later(seconds, self._end)
        self._waits.begin(self._address, self._end)

    def _end_waiting(self) -> None:
        if self._ends:
            self._ends.cancel()
            self._waits.end(self._address, self._end)
        self._ends = None

    @property
    def _address(self) -> str:
        return shared_address(self.client[0] if self.client else "")

    def _end(self) -> None:
        self.transport.abort()  # closing would wait until the client has read what was sent


def _uvicorn(config: ServeConfig, app: object, *, factory: bool = False) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        factory=factory,
        http=partial(_Impatient, Waits(config.limits.of_worker(config.workers).connections)),  # type: ignore[arg-type]
        ws="none",
        workers=config.workers,
        access_log=False,  # no access log: it would record what people typed and who they were
        log_level="error",  # a warning of each malformed request would fill the log
        server_header=False,
        proxy_headers=bool(config.trusted_proxies),
        forwarded_allow_ips=list(config.trusted_proxies),
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=config.drain_seconds,
        timeout_worker_healthcheck=_BUSY_SECONDS,
    )
