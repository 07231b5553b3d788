"""The metrics of `GET /metrics` in Prometheus' text format: counts and durations of requests, the served release.

No label holds what a person typed. With several workers each writes its own numbers to files of a folder that all of
them share (PROMETHEUS_MULTIPROC_DIR, set before this module is imported), and any of them adds up all.
"""

import time
from typing import Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
    multiprocess,
)
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flows.serve.live import Served

CONTENT_TYPE = CONTENT_TYPE_LATEST
disable_created_metrics()
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class Metrics:
    """The metrics of one worker, or with `shared` of all of them."""

    def __init__(self, *, shared: bool = False) -> None:
        self._shared = shared
        self._registry = CollectorRegistry()
        known: dict[str, Any] = {"registry": self._registry}
        self.requests = Counter("clicktower_requests", "Requests answered.", ["route", "status"], **known)
        self.seconds = Histogram(
            "clicktower_request_seconds",
            "From a request's head to its answer's end.",
            ["route"],
            buckets=_SECONDS,
            **known,
        )
        self.swaps = Counter(
            "clicktower_release_swaps",
            "New releases that the pointer named: served, or failed to open.",
            ["outcome"],
            **known,
        )
        self.release = Gauge(
            "clicktower_release_info", "Workers that serve this release.", ["release"],
            multiprocess_mode="livesum", **known,
        )  # fmt: skip
        self.documents = Gauge("clicktower_release_documents", "Documents that are searched.",
                               multiprocess_mode="mostrecent", **known)  # fmt: skip
        self._current = ""
        for outcome in ("served", "failed"):
            self.swaps.labels(outcome)

    def serving(self, served: Served) -> None:
        """Another release is served from now on."""
        if self._current:
            self.swaps.labels("served").inc()
            self.release.labels(self._current).set(0)
        self._current = served.digest
        self.release.labels(served.digest).set(1)
        self.documents.set(served.opened.release.num_documents)

    def failed(self) -> None:
        """A release could not be opened."""
        self.swaps.labels("failed").inc()

    def text(self) -> bytes:
        if not self._shared:
            return generate_latest(self._registry)
        everyone = CollectorRegistry()
        multiprocess.MultiProcessCollector(everyone)
        return generate_latest(everyone)


class CountedRequests:
    """An application that counts its answers. An unknown path is counted as `other`."""

    def __init__(self, app: ASGIApp, metrics: Metrics, routes: frozenset[str]) -> None:
        self._app, self._metrics, self._routes = app, metrics, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, is_counted, started = 0, False, time.perf_counter()

        def count() -> None:
            nonlocal is_counted
            if not is_counted:
                is_counted = True
                route = scope["path"] if scope["path"] in self._routes else "other"
                self._metrics.requests.labels(route, str(status)).inc()  # 0: the asker left before the answer
                self._metrics.seconds.labels(route).observe(time.perf_counter() - started)

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif not message.get("more_body"):
                count()  # before the last of it is sent, so that a client with an answer finds it counted
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            count()
