"""The page at /, with its style and scripts: static files of this package, and nothing from anywhere else."""

from collections.abc import Awaitable, Callable
from importlib import resources

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

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


def routes(examples: Callable[[], list[dict[str, str]]]) -> list[BaseRoute]:
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
