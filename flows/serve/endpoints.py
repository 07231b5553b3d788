"""The endpoints: a request body, which is checked or refused in one sentence, -> an object.

Each takes the served release once, so its answer is entirely from that one. All run in a thread (turns): the event loop
only reads and writes.
"""

import asyncio
import re
import time
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request

from clicktower.flows.releases.document_filter import Operator, Value
from clicktower.flows.releases.interleaving import interleaved_search
from clicktower.flows.releases.search import PAGED, Mode, OpenRelease
from clicktower.flows.releases.word_shares import explain_hit
from clicktower.flows.serve.limits import Limits, Refused, address_of
from clicktower.flows.serve.live import Served
from clicktower.flows.serve.turns import Waits
from clicktower.schemas.errors import UsageError
from clicktower.training.model.embedding import search_vectors

MOST_BYTES = 1_000_000  # of a body
BODY_SECONDS = 20.0  # for the whole body to arrive
MOST_LETTERS = 2_000  # of an id
MOST_TEXTS = 256
MOST_RESULTS = 1_000

# A request with more takes longer than a few milliseconds.
FEW_BYTES = 8_192  # of a body
_FEW_WORDS = 32
_FEW_RESULTS = 100  # above it every document may be compared: milliseconds for a million, tens without a kernel

# Unprintable characters except white space: they could corrupt a terminal or a log file.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")

LexicalShare = Annotated[
    float, Meta(ge=0, lt=1, description="Of the terms in a hybrid's score; by default the model's.")
]
Text = Annotated[str, Meta(min_length=1, description="Up to 2,000 letters and 500 words, unless it is set otherwise.")]
QueryId = Annotated[str, Meta(max_length=MOST_LETTERS, description="Hits of two releases; one id gives one list.")]
Digest = Annotated[str, Meta(max_length=64, description="Answer from this release or not at all.")]


class Embed(Struct, forbid_unknown_fields=True, kw_only=True):
    texts: Annotated[list[Text], Meta(min_length=1, max_length=MOST_TEXTS)]
    side: Annotated[Literal["query", "document"], Meta(description="Each side has a tower of its own.")]
    release: Digest | None = None


class Search(Struct, forbid_unknown_fields=True, kw_only=True):
    query: Text
    k: Annotated[int, Meta(ge=1, le=MOST_RESULTS, description="How many documents.")] = 10
    offset: Annotated[int, Meta(ge=0, lt=PAGED, description=f"Hits to skip; with k at most {PAGED}.")] = 0
    mode: Mode = "hybrid"
    lexical_share: LexicalShare | None = None
    where: Annotated[
        dict[str, Value | list[Value] | dict[Operator, Value | list[Value]]] | None,
        Meta(description='Documents whose columns match: a value, any of a list, or operators, {"price": {"lt": 20}}.'),
    ] = None
    interleave: QueryId | None = None
    release: Digest | None = None


class Explain(Struct, forbid_unknown_fields=True, kw_only=True):
    query: Text
    id: Annotated[str, Meta(max_length=MOST_LETTERS, description="Of a document; or give a title.")] | None = None
    title: Text | None = None
    mode: Annotated[Mode, Meta(description="Of the search whose score is explained.")] = "hybrid"
    lexical_share: LexicalShare | None = None
    release: Digest | None = None


Body = TypeVar("Body", Embed, Search, Explain)
_TEXTS = {"query", "texts", "title"}  # the fields that are read as words
_encoder = msgspec.json.Encoder()


# Parameters of an address that are JSON; the others are text.
_JSON_PARAMETERS = {"k", "offset", "lexical_share", "where"}


async def read_body(request: Request, arriving: Waits) -> bytes:
    """The body of a request. Raises Refused for content of another type, too long or too slow."""
    media_type = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if media_type != "application/json":
        raise Refused(415, "The body's content type is not application/json: send JSON and the header "
                           "Content-Type: application/json.")  # fmt: skip
    content, address = bytearray(), address_of(request)
    try:
        async with asyncio.timeout(BODY_SECONDS) as limit:
            give_way = partial(limit.reschedule, 0)
            arriving.begin(address, give_way)
            try:
                async for chunk in request.stream():
                    content += chunk
                    if len(content) > MOST_BYTES:
                        raise Refused(413, f"The body is longer than {MOST_BYTES:,} bytes: send less at a time.")
            finally:
                arriving.end(address, give_way)
    except TimeoutError:
        raise Refused(408, f"The body did not arrive within {BODY_SECONDS:.0f} seconds, or before too many others: "
                           "send it at once.") from None  # fmt: skip
    return bytes(content)


def decode(content: bytes, kind: type[Body]) -> Body:
    """Raises Refused for other content."""
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:
        raise Refused(422, f"The body cannot be used ({_plain(error)}): /docs describes valid requests.") from None
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        raise Refused(400, "The body is not JSON in UTF-8: send one JSON object.") from None


def decode_address(parameters: bytes, kind: type[Body]) -> Body:
    """The fields of a body as the parameters of an address, where q stands for query. Raises Refused."""
    fields: dict[str, Any] = {}
    try:
        for name, text in parse_qsl(parameters.decode(), keep_blank_values=True, errors="strict"):
            field = "query" if name == "q" else name
            if field in fields:
                raise Refused(422, "The address has a parameter twice: give each once.")
            fields[field] = _json_or_text(text) if field in _JSON_PARAMETERS else text
        return msgspec.convert(fields, kind)
    except UnicodeError:
        raise Refused(400, "The address is not UTF-8: encode its parameters by percent signs.") from None
    except msgspec.ValidationError as error:
        raise Refused(422, f"The address cannot be used ({_plain(error)}): /docs describes valid requests.") from None


def _json_or_text(text: str) -> Any:
    """The JSON value of a parameter; other text as it is, which is then of the wrong type."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return text


def answer(
    read: Callable[[], Body],
    endpoint: Callable[[Body, Served], dict[str, Any]],
    served: Served,
    limits: Limits,
    *,
    quickly: bool = False,
) -> bytes | None:
    """The answer to what `read` returns, as JSON; None for `quickly` if it takes more than a few milliseconds.

    Raises Refused.
    """
    body = read()
    num_words = _require_texts(body, limits)
    if quickly and (isinstance(body, Explain) or num_words > _FEW_WORDS or _looks_at_all(body)):
        return None
    return _encoder.encode(endpoint(body, served))


def _require_texts(body: Body, limits: Limits) -> int:
    """The number of words of all texts that are read. Raises Refused for long ones, and for control characters."""
    num_words = 0
    for name in body.__struct_fields__:
        value = getattr(body, name)
        for text in value if isinstance(value, list) else [value]:
            if not isinstance(text, str):
                continue
            if match := _CONTROL.search(text):
                raise Refused(422, f"The field {name} has a control character (U+{ord(match[0]):04X}) at place "
                                   f"{match.start() + 1}: take it out.")  # fmt: skip
            if name in _TEXTS:
                try:
                    num_words += limits.require_text(name, text)
                except UsageError as error:
                    raise _unusable(error) from None
    return num_words


def _looks_at_all(body: Body) -> bool:
    """Whether a search looks at every document."""
    return isinstance(body, Search) and (body.offset + body.k > _FEW_RESULTS or bool(body.where))


def _plain(error: msgspec.ValidationError) -> str:
    """msgspec's "Expected `int` >= 1 - at `$.k`" as "k: expected int >= 1". It quotes no value of a text field."""
    reason, _, where = str(error).replace("`", "").partition(" - at $")
    reason = reason[:1].lower() + reason[1:200]
    return f"{where.lstrip('.')}: {reason}" if where else reason


def embed(body: Embed, served: Served) -> dict[str, Any]:
    opened = _of_release(body.release, served)
    try:
        vectors = search_vectors(opened.encoder, body.texts, body.side)
    except UsageError as error:
        raise Refused(422, f"A text without a word has no vector ({error.problem}): leave it out.") from None
    return {"release": opened.release.digest, "dimensions": vectors.shape[1], "vectors": vectors.tolist()}


def search(body: Search, served: Served) -> dict[str, Any]:
    opened, started = _of_release(body.release, served), time.perf_counter()
    search = opened.search
    if body.interleave is not None:
        if served.rival is None:
            raise Refused(422, "The service has no release to interleave with: start it with --against DIGEST, "
                               "or leave the field interleave out.")  # fmt: skip
        search = partial(interleaved_search, opened, served.rival, body.interleave)
    try:
        hits = search(
            body.query, body.k, mode=body.mode, offset=body.offset, lexical_share=body.lexical_share, details=True,
            where=body.where,
        )  # fmt: skip
    except UsageError as error:
        raise _unusable(error) from None
    took_ms = round((time.perf_counter() - started) * 1000, 3)
    return {
        "release": opened.release.digest, "query": body.query, "mode": body.mode, "took_ms": took_ms, "hits": hits
    }  # fmt: skip


def explain(body: Explain, served: Served) -> dict[str, Any]:
    opened, started = _of_release(body.release, served), time.perf_counter()
    if (body.id is None) == (body.title is None):
        raise Refused(422, "A query is explained with one title: give either the id of a document or a title.")
    title = body.title if body.id is None else opened.title_of(body.id)
    if title is None:
        raise Refused(404, "No document has this id: take one from the hits of /v1/search.")
    try:
        explained = explain_hit(opened, body.query, title, body.mode, lexical_share=body.lexical_share)
    except UsageError as error:
        raise _unusable(error) from None
    took_ms = round((time.perf_counter() - started) * 1000, 3)
    return {"release": opened.release.digest, "took_ms": took_ms, **explained}


def release(served: Served) -> dict[str, Any]:
    about = served.opened.release
    return {
        "release": about.digest,
        "created": about.created,
        "num_documents": about.num_documents,
        "dimensions": about.dimensions,
        "similarity": about.similarity,
        "word_share": served.opened.encoder.word_share,
        "lexical_share": served.opened.encoder.lexical_share,
        "lexical_contract": dict(about.lexical),
        "text_contract": dict(about.text_contract),
        "index": dict(about.index),
        "evaluation": dict(about.evaluation),
        "labels": dict(about.labels),
    }


def _of_release(release: str | None, served: Served) -> OpenRelease:
    if release is not None and release != served.digest:
        raise Refused(404, f"The release asked for is not the one that is served, {served.digest}: "
                           "leave the field release out, or ask for that one.")  # fmt: skip
    return served.opened


def _unusable(error: UsageError) -> Refused:
    return Refused(422, f"{error.problem} {error.fix}")
