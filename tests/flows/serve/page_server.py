"""The service in a thread of the test, on a port of its own."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from clicktower.flows.serve.app import Metrics, build_app
from clicktower.flows.serve.live import Live
from tests.waiting import wait_until


@contextmanager
def serving(release: str) -> Iterator[str]:
    """The origin of the service, as http://127.0.0.1:PORT."""
    metrics = Metrics(shared=False)
    live = Live(release, changed=metrics.serving, failed=metrics.failed)
    app = build_app(live, metrics, poll_seconds=0.2)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started or not thread.is_alive(), "the service to start")
    assert server.started
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()
