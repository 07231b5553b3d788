"""The description of the service: OpenAPI 3.1 as JSON, and a plain page from it that loads nothing."""

import json
from typing import Any

import msgspec
from jinja2 import Environment, PackageLoader

from clicktower.flows.releases.search import Hit
from clicktower.flows.serve.endpoints import Embed, Explain, Search

_REFUSALS = {
    "400": "The body is not JSON, or the address not UTF-8.",
    "404": "No such release or document.",
    "408": "The body did not arrive in time, or gave way to others.",
    "413": "The body is too long.",
    "415": "The body is not declared as JSON.",
    "421": "The service does not answer to this host name.",
    "422": "The body or the address is readable, but not what is asked for.",
    "429": "The service is at its limit of concurrent requests.",
}
_OF_BODIES = ("408", "413", "415")
_SEARCH = "The best documents for a query."
_EXAMPLES = {
    "/v1/search": {"query": "angle bracket", "k": 3},
    "/v1/embed": {"texts": ["angle bracket"], "side": "query"},
    "/v1/explain": {"query": "angle bracket", "title": "steel angle bracket 90 degree"},
}
_DIGEST = {"type": "string", "description": "The release that the whole answer is of."}


def _build_description() -> dict[str, Any]:
    _, parts = msgspec.json.schema_components((Search, Embed, Explain, Hit), ref_template="#/components/schemas/{name}")
    parts["Error"] = _answer({"error": {"type": "string", "description": "What was found, and what to do."}})
    hits = {"type": "array", "items": {"$ref": "#/components/schemas/Hit"}}
    milliseconds = {"type": "number"}
    number = {"type": "integer"}
    vectors = {"type": "array", "items": {"type": "array", "items": {"type": "number"}}}
    answer = {"release": _DIGEST, "query": {"type": "string"}, "mode": {"type": "string"}, "took_ms": milliseconds}
    return {
        "openapi": "3.1.0",
        "info": {"title": "clicktower", "version": "1", "description": "Search by sentence embeddings and by BM25."},
        "paths": {
            "/v1/search": _post(_SEARCH, "Search", hits_answer := _answer(answer | {"hits": hits}))
            | _get_by_parameters(f"{_SEARCH[:-1]}, for a browser or curl.", parts["Search"], hits_answer),
            "/v1/embed": _post(
                "The vectors of texts as they are compared: by cosine of length 1.",
                "Embed",
                _answer({"release": _DIGEST, "dimensions": number, "vectors": vectors}),
            ),
            "/v1/explain": _post(
                "The score that a search gives a title, and what vectors, words and terms contribute to it.",
                "Explain",
                _answer({"release": _DIGEST, "took_ms": milliseconds, **_explanation()}),
            ),
            "/v1/release": _get("What is served, and how good it was measured.", _answer({"release": _DIGEST})),
            "/healthz": _get("Whether it serves.", _answer({"status": {"const": "ok"}, "release": _DIGEST})),
            "/metrics": _get("Counts and times for Prometheus.", {"type": "string"}, "text/plain"),
        },
        "components": {"schemas": parts},
    }


def _explanation() -> dict[str, Any]:
    """The answer of word_shares.explain_hit."""
    real, text, count = {"type": "number"}, {"type": "string"}, {"type": "integer"}
    maybe = {"type": ["number", "null"]}
    of_word = {"words": real, "terms": real}
    word = {"word": text, "share": maybe, "moved": maybe, "keyword": {"type": ["boolean", "null"]},
            "in_other": {"type": "boolean"}}  # fmt: skip
    of_query = {
        "contributions": _answer(of_word) | {"description": "What the word adds to the score."},
        "match": _answer({"word": text, "cosine": real, "weight": real})
        | {"type": ["object", "null"], "description": "The word's best match in the title; weight × cosine adds to M."},
        "terms": {"type": "array", "items": text, "description": 'None of a word such as "&".'},
        "bm25": real,
    }

    def words_of(properties: dict[str, Any]) -> dict[str, Any]:
        return _answer({"text": text, "num_words": count, "words": {"type": "array", "items": _answer(properties)}})

    return {
        "mode": text,
        "score": real | {"description": "As /v1/search ranks by it."},
        "word_share": maybe,
        "lexical_share": maybe,
        "contributions": _answer({"vectors": real, **of_word}) | {"description": "They add up to the score exactly."},
        "cosine": maybe,
        "distance": maybe,
        "words": maybe,
        "terms": real,
        "bm25": real,
        "query": words_of(word | of_query),
        "title": words_of(word),
    }


def _answer(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _post(summary: str, body: str, answer: dict[str, Any]) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{body}"}}}
    responses = _answers_of(answer, _REFUSALS)
    return {"post": {"summary": summary, "requestBody": {"required": True, "content": content}, "responses": responses}}


def _get_by_parameters(summary: str, body: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """The fields of a body as parameters of an address."""
    parameters = [
        {"name": "q" if name == "query" else name, "in": "query", "required": name in body["required"]}
        | ({"content": {"application/json": {"schema": schema}}} if name == "where" else {"schema": schema})
        for name, schema in body["properties"].items()
    ]
    of_address = {status: words for status, words in _REFUSALS.items() if status not in _OF_BODIES}
    return {"get": {"summary": summary, "parameters": parameters, "responses": _answers_of(answer, of_address)}}


def _answers_of(answer: dict[str, Any], refusals: dict[str, str]) -> dict[str, Any]:
    refused = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    answers = _answer_schema(answer, "application/json")
    return answers | {status: {"description": words, "content": refused} for status, words in refusals.items()}


def _get(summary: str, answer: dict[str, Any], media_type: str = "application/json") -> dict[str, Any]:
    return {"get": {"summary": summary, "responses": _answer_schema(answer, media_type)}}


def _answer_schema(schema: dict[str, Any], media_type: str) -> dict[str, Any]:
    return {"200": {"description": "The answer.", "content": {media_type: {"schema": schema}}}}


DESCRIPTION = _build_description()
CONTENT = json.dumps(DESCRIPTION).encode()
_pages = Environment(
    loader=PackageLoader("clicktower.flows", "serve"), autoescape=True, trim_blocks=True, lstrip_blocks=True
)
_pages.filters["json"] = json.dumps
_pages.filters["without_words"] = lambda field: {
    key: value for key, value in field.items() if key not in ("default", "description")
}
PAGE = _pages.get_template("docs.html").render(described=DESCRIPTION, examples=_EXAMPLES).encode()
