"""The service as an ASGI application: routes, JSON refusals, metrics, and the release it follows."""

import asyncio
import logging
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib import resources
from pathlib import Path, PurePath
from typing import Any

import msgspec
import prometheus_client as prom
from prometheus_client import multiprocess
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clicktower.flows.serve import endpoints, openapi
from clicktower.flows.serve.endpoints import FEW_BYTES, Body, Embed, Explain, Search, decode, decode_address, read_body
from clicktower.flows.serve.limits import Limits, Refused, address_of
from clicktower.flows.serve.live import Live, Served
from clicktower.flows.serve.turns import Turns, Waits, num_threads
from clicktower.schemas.errors import place

log = logging.getLogger("clicktower.serve")
_encoder = msgspec.json.Encoder()


def build_app(
    live: Live,
    metrics: "Metrics",
    *,
    poll_seconds: float,
    hosts: frozenset[str] | None = None,
    origins: Sequence[str] = (),
    limits: Limits | None = None,
    workers: int = 1,
) -> ASGIApp:
    """The application of a worker that answers from `live` and looks for a new release every `poll_seconds`.

    `hosts`: the names that a request may use, without a port; None: any. `origins`: whose pages may read answers.
    `limits`: of all `workers`.
    """
    desk = _Desk(live, (limits or Limits()).of_worker(workers), num_threads(workers))
    routes = [
        _post("/v1/search", endpoints.search, Search, desk),
        _post("/v1/embed", endpoints.embed, Embed, desk),
        _post("/v1/explain", endpoints.explain, Explain, desk),
        _get("/v1/release", lambda: _json(endpoints.release(live.current))),
        _get("/healthz", lambda: _json({"status": "ok", "release": live.current.digest})),
        Route("/metrics", desk.in_turn(lambda: Response(metrics.text(), media_type=prom.CONTENT_TYPE_LATEST))),
        _get("/openapi.json", lambda: Response(openapi.CONTENT, media_type="application/json")),
        _get("/docs", lambda: Response(openapi.PAGE, media_type="text/html")),
        _get("/static/examples.json", lambda: _json({"examples": live.current.examples})),
        *_page(),
    ]

    @asynccontextmanager
    async def following(app: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(live.follow(poll_seconds))
        yield
        task.cancel()

    app = Starlette(
        routes=routes,
        lifespan=following,
        middleware=[_cors(origins)] if origins else [],
        exception_handlers={Refused: _refused, HTTPException: _no_such_route, ClientDisconnect: _left},
    )
    app.router.redirect_slashes = False
    return _Watched(app, metrics, frozenset(route.path for route in routes), hosts)


def _cors(origins: Sequence[str]) -> Middleware:
    return Middleware(
        CORSMiddleware, allow_origins=origins, allow_methods=["GET", "POST"], allow_headers=["Content-Type"],
        expose_headers=["Retry-After"],
    )  # fmt: skip


class _Desk:
    """Where requests that take work are answered: in threads, so that the event loop reads and writes for everybody.

    What takes longer than a few milliseconds has a thread of its own, and short requests pass it.
    """

    def __init__(self, live: Live, limits: Limits, threads: int) -> None:
        self._live, self._limits, self.arriving = live, limits, Waits(limits.bodies)
        self._short = Turns(threads, limits.requests)
        self._slow = Turns(1, limits.slow_requests)

    async def answer(
        self,
        address: str,
        read: Callable[[], Body],
        endpoint: Callable[[Body, Served], dict[str, Any]],
        *,
        is_short: bool,
    ) -> Response:
        """The answer to what `read` returns. `is_short`: whether reading it is, too. Raises Refused."""
        work = partial(endpoints.answer, read, endpoint, self._live.current, self._limits)
        content = await self._short.run(address, partial(work, quickly=True)) if is_short else None
        if content is None:
            content = await self._slow.run(address, work)
        return Response(content, media_type="application/json")

    def in_turn(self, make: Callable[[], Response]) -> Callable[[Request], Awaitable[Response]]:
        """An endpoint without a body that takes work."""

        async def answer(request: Request) -> Response:
            return await self._short.run(address_of(request), make)

        return answer


def _post(path: str, endpoint: Callable[[Body, Served], dict[str, Any]], kind: type[Body], desk: _Desk) -> Route:
    async def answer(request: Request) -> Response:
        if request.method == "POST":
            content = await read_body(request, desk.arriving)
            read = partial(decode, content, kind)
        else:
            content = request.scope["query_string"]
            read = partial(decode_address, content, kind)
        return await desk.answer(address_of(request), read, endpoint, is_short=len(content) <= FEW_BYTES)

    return Route(path, answer, methods=["GET", "POST"] if kind is Search else ["POST"])


def _get(path: str, make: Callable[[], Response]) -> Route:
    async def answer(request: Request) -> Response:
        return make()

    return Route(path, answer)


MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".svg": "image/svg+xml", ".js": "text/javascript"}
# Of every answer: the browser loads nothing that did not come from this service, sends nothing elsewhere, runs no
# inline script, shows no answer within another page and takes none for something else.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]


def _page() -> list[Route]:
    """The search page: GET / and GET /static/..."""

    def file(name: str, content: bytes, media_type: str) -> Route:
        path = "/" if name == "index.html" else f"/static/{name}"
        return _get(path, lambda: Response(content, media_type=media_type))

    parts = (resources.files("clicktower.flows.serve") / "static").iterdir()
    types = {part: MEDIA_TYPES.get(PurePath(part.name).suffix) for part in parts}
    return [file(part.name, part.read_bytes(), kind) for part, kind in types.items() if kind]


def _json(value: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(_encoder.encode(value), status, headers, "application/json")


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    # The rest of a body that is too slow or too long is not read.
    headers = {408: {"Connection": "close"}, 413: {"Connection": "close"}, 429: {"Retry-After": "1"}}
    return _json({"error": error.sentence}, error.status, headers.get(error.status))


async def _no_such_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    if error.status_code == 404:
        sentence = "There is nothing at this path: /docs lists the paths."
    elif error.status_code == 405:
        sentence = f"This path does not take {request.method}: use {headers.get('Allow', 'another')}."
    else:
        sentence = "The request could not be read: /docs describes valid requests."
    return _json({"error": sentence}, error.status_code, headers)


async def _left(request: Request, error: Exception) -> Response:
    return _json({"error": "The body ended before it was complete: send all of it."}, 400)


class _Watched:
    """An application that answers only to some host names, gives every answer HEADERS, counts the answers, and logs
    defects without quoting the request. An unknown path is counted as `other`.
    """

    def __init__(self, app: ASGIApp, metrics: "Metrics", paths: frozenset[str], hosts: frozenset[str] | None) -> None:
        self._app, self._metrics, self._paths, self._hosts = app, metrics, paths, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, is_counted, started = 0, False, time.perf_counter()

        def count() -> None:
            nonlocal is_counted
            if not is_counted:
                is_counted = True
                route = scope["path"] if scope["path"] in self._paths else "other"
                self._metrics.requests.labels(route, str(status)).inc()  # 0: the client left before the answer
                self._metrics.seconds.labels(route).observe(time.perf_counter() - started)

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                # No cache keeps an address or an answer with what a person typed; of other answers it asks again.
                has_query = scope["path"].startswith("/v1/") or scope["query_string"]
                caching = (b"cache-control", b"no-store" if has_query else b"no-cache")
                message["headers"] = [*message.get("headers", ()), *_HEADERS, caching]
            elif not message.get("more_body"):
                count()  # before the answer ends, so that a client that has it finds it counted
            await send(message)

        try:
            if self._hosts is None or _host_of(scope["headers"]) in self._hosts:
                await self._app(scope, receive, noted)
            else:
                do = "ask it by its address, or start it with --allow-host."
                await _json({"error": f"The service does not answer to this host name: {do}"}, 421)(
                    scope, receive, noted
                )
        except Exception as error:
            log.error("a defect: %s in %s", type(error).__name__, place(error))
            if not status:
                answer = _json({"error": "The service failed because of a defect: its log says where."}, 500)
                await answer(scope, receive, noted)
        finally:
            count()


def _host_of(headers: list[tuple[bytes, bytes]]) -> str:
    """The name in the Host header, without the port."""
    named = next((value for name, value in headers if name == b"host"), b"").decode("latin-1").lower()
    return named if named.endswith("]") else re.sub(r":\d+$", "", named)


prom.disable_created_metrics()
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class Metrics:
    """The metrics of one worker, or with `shared` of all of them, in Prometheus' text format.

    No label holds what a person typed. With several workers each writes its own numbers to files of a shared folder
    (PROMETHEUS_MULTIPROC_DIR, set before this module is imported), and any of them adds up all.
    """

    def __init__(self, *, shared: bool = False) -> None:
        self._shared = shared
        if shared:
            _forget_dead_workers(Path(os.environ["PROMETHEUS_MULTIPROC_DIR"]))
        self._registry = prom.CollectorRegistry()
        settings: dict[str, Any] = {"registry": self._registry}
        self.requests = prom.Counter("clicktower_requests", "Requests answered.", ["route", "status"], **settings)
        about = "From a request's head to its answer's end."
        self.seconds = prom.Histogram("clicktower_request_seconds", about, ["route"], buckets=_SECONDS, **settings)
        about = "New releases that the pointer named: served, or failed to open. Each worker counts its own."
        self.swaps = prom.Counter("clicktower_release_swaps", about, ["outcome"], **settings)
        about = "Workers that serve this release."
        self.release = prom.Gauge(
            "clicktower_release_info", about, ["release"], multiprocess_mode="livesum", **settings
        )
        about = "Documents that are searched."
        self.documents = prom.Gauge("clicktower_release_documents", about, multiprocess_mode="mostrecent", **settings)
        self._current = ""
        for outcome in ("served", "failed"):
            self.swaps.labels(outcome)

    def serving(self, served: Served) -> None:
        """A new release is served from now on."""
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
            return prom.generate_latest(self._registry)
        everyone = prom.CollectorRegistry()
        _EveryWorker(everyone)
        return prom.generate_latest(everyone)


class _EveryWorker(multiprocess.MultiProcessCollector):
    """The sums of all workers' files, without that of a worker which is just making it: it is empty, and no metrics."""

    def collect(self) -> Any:
        with os.scandir(self._path) as files:
            return self.merge([file.path for file in files if file.name.endswith(".db") and _size_bytes(file)])


def _size_bytes(file: os.DirEntry[str]) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:  # of a worker that was killed
        return 0


def _forget_dead_workers(folder: Path) -> None:
    """Leave out of the sums what a worker served that was killed; its counts stay."""
    for pid in {int(file.stem.rpartition("_")[2]) for file in folder.glob("gauge_live*.db")}:
        try:
            os.kill(pid, 0)
        except OSError:  # nobody has its number, or somebody else
            multiprocess.mark_process_dead(pid)
