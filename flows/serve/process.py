"""The processes of the service: one listening socket, one server or several workers that share it."""

import contextlib
import ipaddress
import logging
import os
import shutil
import socket
import sys
import tempfile
from dataclasses import dataclass
from functools import partial

import uvicorn
from starlette.types import ASGIApp
from uvicorn.supervisors.multiprocess import Multiprocess

from schemas.errors import StageError, UsageError

# Handlers share the interpreter with the thread that opens the next release; by default it is handed over after 5 ms.
_SWITCH_SECONDS = 0.0005

# A kept connection is closed after this: later than proxies close theirs, so that no request meets a closing door.
_IDLE_SECONDS = 75


@dataclass(frozen=True, kw_only=True, slots=True)
class ServeConfig:
    release: str
    host: str = "127.0.0.1"
    port: int = 8080  # 0: any that is free
    workers: int = 1
    poll_seconds: float = 2.0  # how often the pointer is looked at
    drain_seconds: int = 30  # after SIGTERM, for requests under way

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535 or self.workers < 1 or self.poll_seconds <= 0 or self.drain_seconds < 1:
            raise UsageError(asked="the service was to be started",
                             found="port must be 0 to 65535, workers and drain_seconds 1 or more, poll_seconds above 0",
                             do="see `clicktower serve --help`")  # fmt: skip


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def listen(config: ServeConfig) -> socket.socket:
    """The bound socket. Raises StageError where the address is taken or not of this machine."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    # Naming TCP matters: asyncio sends small packets at once (TCP_NODELAY) only where it is named, and an answer would
    # else wait 40 ms for the acknowledgement of its own head.
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((config.host, config.port))
        found.listen(2_048)
    except OSError as error:
        found.close()
        raise StageError(asked=f"the service was to listen on {config.host}:{config.port}",
                         found=(error.strerror or str(error)).lower(),
                         do="choose another --port (0: any that is free) or --host") from None  # fmt: skip
    found.set_inheritable(True)
    return found


def serve(config: ServeConfig, listening: socket.socket) -> None:
    """Answer until SIGTERM or SIGINT; requests under way are finished first. Raises StageError at the start."""
    if config.workers == 1:
        app = make_app(config)
        uvicorn.Server(_uvicorn(config, app)).run(sockets=[listening])
        return
    folder = tempfile.mkdtemp(prefix="clicktower-serve-")
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder  # where workers add up their numbers (flows.serve.metrics)
    try:
        Multiprocess(_uvicorn(config, partial(make_app, config), factory=True), sockets=[listening]).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def make_app(config: ServeConfig) -> ASGIApp:
    """The application of one worker, its release in memory. Raises StageError."""
    from flows.serve.app import build_app
    from flows.serve.live import Live
    from flows.serve.metrics import Metrics

    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    sys.setswitchinterval(_SWITCH_SECONDS)
    metrics = Metrics(shared=config.workers > 1)
    live = Live(config.release, changed=metrics.serving, failed=metrics.failed)
    return build_app(live, metrics, poll_seconds=config.poll_seconds)


def _uvicorn(config: ServeConfig, app: object, *, factory: bool = False) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        factory=factory,
        workers=config.workers,
        access_log=False,  # nobody writes down what people typed, nor who they were
        log_level="warning",
        server_header=False,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=config.drain_seconds,
        timeout_worker_healthcheck=300,  # a worker is busy while it reads its release
    )
