"""The description of the service: OpenAPI 3.1 as JSON, and a plain page made of it that loads nothing."""

import html
import json
from typing import Any

import msgspec

from flows.releases.search import Hit
from flows.serve.endpoints import Embed, Explain, Search

PAGE_HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'self'", "X-Content-Type-Options": "nosniff"}

_REFUSALS = {
    "400": "The body is not JSON.",
    "404": "No such release or document.",
    "408": "The body did not arrive in time.",
    "413": "The body is too long.",
    "415": "The body is not declared as JSON.",
    "421": "The service does not answer to this host name.",
    "422": "The body is JSON, but not what is asked for.",
    "429": "The service is at its limit of concurrent requests.",
}
_OBJECT: dict[str, Any] = {"type": "object"}
_DIGEST = {"type": "string", "description": "The release that the whole answer is of."}


def _described() -> dict[str, Any]:
    _, parts = msgspec.json.schema_components((Search, Embed, Explain, Hit), ref_template="#/components/schemas/{name}")
    parts["Error"] = _answer({"error": {"type": "string", "description": "What was found, and what to do."}})
    hits = {"type": "array", "items": {"$ref": "#/components/schemas/Hit"}}
    milliseconds = {"type": "number"}
    number = {"type": "integer"}
    vectors = {"type": "array", "items": {"type": "array", "items": {"type": "number"}}}
    found = {"release": _DIGEST, "query": {"type": "string"}, "mode": {"type": "string"}, "took_ms": milliseconds}
    return {
        "openapi": "3.1.0",
        "info": {"title": "clicktower", "version": "1", "description": "Search by sentence embeddings and by BM25."},
        "paths": {
            "/v1/search": _post("The best documents for a query.", "Search", _answer(found | {"hits": hits})),
            "/v1/embed": _post(
                "The vectors of texts as they are compared: by cosine of length 1.",
                "Embed",
                _answer({"release": _DIGEST, "dimensions": number, "vectors": vectors}),
            ),
            "/v1/explain": _post(
                "What carried the score of a query and a title.",
                "Explain",
                _answer({"release": _DIGEST, "took_ms": milliseconds, "query": _OBJECT, "title": _OBJECT}),
            ),
            "/v1/release": _get("What is served, and how good it was measured.", _answer({"release": _DIGEST})),
            "/healthz": _get("Whether it serves.", _answer({"status": {"const": "ok"}, "release": _DIGEST})),
            "/metrics": _get("Counts and times for Prometheus.", {"type": "string"}, "text/plain"),
        },
        "components": {"schemas": parts},
    }


def _answer(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _post(summary: str, body: str, answer: dict[str, Any]) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{body}"}}}
    refused = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    refusals = {status: {"description": told, "content": refused} for status, told in _REFUSALS.items()}
    asked = {"summary": summary, "requestBody": {"required": True, "content": content}}
    return {"post": {**asked, "responses": _answered(answer, "application/json") | refusals}}


def _get(summary: str, answer: dict[str, Any], media_type: str = "application/json") -> dict[str, Any]:
    return {"get": {"summary": summary, "responses": _answered(answer, media_type)}}


def _answered(schema: dict[str, Any], media_type: str) -> dict[str, Any]:
    return {"200": {"description": "The answer.", "content": {media_type: {"schema": schema}}}}


def _page(described: dict[str, Any]) -> str:
    """A heading, a table of fields and an example for each path."""
    parts = []
    for path, ways in described["paths"].items():
        for method, way in ways.items():
            parts.append(f"<h2><code>{method.upper()} {path}</code></h2><p>{html.escape(way['summary'])}</p>")
            if "requestBody" in way:
                name = way["requestBody"]["content"]["application/json"]["schema"]["$ref"].rsplit("/", 1)[1]
                parts.append(_fields(described["components"]["schemas"][name]))
                parts.append(f"<pre>{html.escape(_example(path))}</pre>")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>clicktower: the service</title>'
        '<link rel="stylesheet" href="/static/page.css"></head><body><main><h1>The service</h1>'
        '<p>The same for programs: <a href="/openapi.json">openapi.json</a> (OpenAPI 3.1). '
        'Every refusal is <code>{"error": "a sentence"}</code> with a status from 400 to 499.</p>'
        f"{''.join(parts)}</main></body></html>"
    )


def _fields(schema: dict[str, Any]) -> str:
    rows = []
    for name, field in schema["properties"].items():
        needed = "must be given" if name in schema.get("required", ()) else f"otherwise {json.dumps(field['default'])}"
        shape = json.dumps({key: value for key, value in field.items() if key not in ("default", "description")})
        told = html.escape(f"{needed}. {field.get('description', '')}")
        rows.append(f"<tr><td><code>{name}</code></td><td>{told}</td><td><code>{html.escape(shape)}</code></td></tr>")
    return f"<table>{''.join(rows)}</table>"


def _example(path: str) -> str:
    body = {
        "/v1/search": {"query": "angle bracket", "k": 3},
        "/v1/embed": {"texts": ["angle bracket"], "side": "query"},
        "/v1/explain": {"query": "angle bracket", "title": "steel angle bracket 90 degree"},
    }[path]
    return f"curl -H 'Content-Type: application/json' http://127.0.0.1:8080{path} -d '{json.dumps(body)}'"


DESCRIPTION = _described()
CONTENT = json.dumps(DESCRIPTION).encode()
PAGE = _page(DESCRIPTION).encode()
