"""The service as an ASGI application: routes, refusals as JSON, and the release it follows."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib import resources
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from flows.serve import endpoints, openapi
from flows.serve.bodies import Body, Embed, Explain, Refused, Search, read_body
from flows.serve.live import Live, Served
from flows.serve.metrics import CONTENT_TYPE, CountedRequests, Metrics
from schemas.errors import place

# The limit of concurrent requests per worker: more would only wait longer. An explanation takes as long as thousands of
# searches, so its limit is low.
MOST_REQUESTS = 128
MOST_EXPLANATIONS = 4

log = logging.getLogger("clicktower.serve")
_encoder = msgspec.json.Encoder()


def build_app(live: Live, metrics: Metrics, *, poll_seconds: float, hosts: frozenset[str] | None = None) -> ASGIApp:
    """The application that answers from `live` and looks for a new release every `poll_seconds`.

    `hosts`: the names that a request may call it by, without a port; None: any.
    """

    def asking(
        endpoint: Callable[[Body, Served], Awaitable[dict[str, Any]]], kind: type[Body], at_once: int = MOST_REQUESTS
    ) -> Any:
        under_way = 0

        async def answer(request: Request) -> Response:
            nonlocal under_way
            if under_way >= at_once:
                raise Refused(429, "The service is at its limit of concurrent requests: try again in a second.")
            under_way += 1
            try:
                body = await read_body(request, kind)
                return _json(await endpoint(body, live.current))
            finally:
                under_way -= 1

        return answer

    async def release(request: Request) -> Response:
        return _json(endpoints.release(live.current))

    async def healthz(request: Request) -> Response:
        return _json({"status": "ok", "release": live.current.digest})

    async def told(request: Request) -> Response:
        return Response(metrics.text(), media_type=CONTENT_TYPE)

    async def description(request: Request) -> Response:
        return Response(openapi.CONTENT, media_type="application/json")

    async def documentation(request: Request) -> Response:
        return Response(openapi.PAGE, media_type="text/html", headers=openapi.PAGE_HEADERS)

    routes: list[BaseRoute] = [
        Route("/v1/search", asking(endpoints.search, Search), methods=["POST"]),
        Route("/v1/embed", asking(endpoints.embed, Embed), methods=["POST"]),
        Route("/v1/explain", asking(endpoints.explain, Explain, MOST_EXPLANATIONS), methods=["POST"]),
        Route("/v1/release", release),
        Route("/healthz", healthz),
        Route("/metrics", told),
        Route("/openapi.json", description),
        Route("/docs", documentation),
        *page_routes(lambda: live.current.examples),
    ]

    @asynccontextmanager
    async def following(app: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(live.follow(poll_seconds))
        yield
        task.cancel()

    app = Starlette(
        routes=routes,
        lifespan=following,
        exception_handlers={Refused: _refused, HTTPException: _no_such_route, ClientDisconnect: _left},
    )
    app.router.redirect_slashes = False
    return CountedRequests(
        _Guarded(app, hosts), metrics, frozenset(route.path for route in routes if isinstance(route, Route))
    )


class _Guarded:
    """An application that answers to some host names only, and logs defects without quoting the request."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str] | None) -> None:
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and self._hosts is not None and _host_of(scope["headers"]) not in self._hosts:
            told = (
                "The service does not answer to this host name: ask it by its address, or start it with --allow-host."
            )
            await _json({"error": told}, 421)(scope, receive, send)
            return
        started = False

        async def noted(message: Any) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception as error:
            log.error("a defect: %s in %s", type(error).__name__, place(error))
            if not started:
                answer = _json({"error": "The service failed because of a defect: its log says where."}, 500)
                await answer(scope, receive, send)


def _host_of(headers: list[tuple[bytes, bytes]]) -> str:
    """The name in the Host header, without the port."""
    named = next((value for name, value in headers if name == b"host"), b"").decode("latin-1").lower()
    return named if named.endswith("]") else re.sub(r":\d+$", "", named)


def _json(value: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(_encoder.encode(value), status, headers, "application/json")


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    # The rest of a body that is too slow or too long is not waited for.
    headers = {408: {"Connection": "close"}, 413: {"Connection": "close"}, 429: {"Retry-After": "1"}}
    return _json({"error": error.sentence}, error.status, headers.get(error.status))


async def _no_such_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        told = "There is nothing at this path: /docs lists the paths."
    elif error.status_code == 405:
        told = f"This path does not take {request.method}: use {dict(error.headers or {}).get('Allow', 'another')}."
    else:
        told = "The request could not be read: /docs describes valid requests."
    return _json({"error": told}, error.status_code, dict(error.headers or {}))


async def _left(request: Request, error: Exception) -> Response:
    return _json({"error": "The body ended before it was complete: send all of it."}, 400)


MEDIA_TYPES = {
    "index.html": "text/html",
    "page.css": "text/css",
    "icon.svg": "image/svg+xml",
    "page.js": "text/javascript",
    "keys.js": "text/javascript",
    "service.js": "text/javascript",
    "results.js": "text/javascript",
    "why.js": "text/javascript",
}
# The browser loads nothing that did not come from this service, sends nothing elsewhere, and runs no inline script.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def page_routes(examples: Callable[[], list[dict[str, str]]]) -> list[BaseRoute]:
    """GET / and GET /static/...; `examples` gives the queries to begin with (service_examples)."""

    async def offered(request: Request) -> Response:
        return JSONResponse({"examples": examples()}, headers={"Cache-Control": "no-cache"})

    parts = [Route("/" if name == "index.html" else f"/static/{name}", _file(name)) for name in MEDIA_TYPES]
    return [*parts, Route("/static/examples.json", offered)]


def _file(name: str) -> Callable[[Request], Awaitable[Response]]:
    content = (resources.files("flows.serve") / "static" / name).read_bytes()
    media_type = MEDIA_TYPES[name]

    async def answer(request: Request) -> Response:
        return Response(content, media_type=media_type, headers=HEADERS)

    return answer
