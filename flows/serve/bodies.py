"""Requests of the endpoints: parsing a body into one, or refusing it in one sentence."""

import asyncio
import re
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request

from flows.releases.search import WEIGHT, Mode

MOST_BYTES = 1_000_000  # of a body
BODY_SECONDS = 20.0  # seconds until the whole body must have arrived
MOST_LETTERS = 2_000  # of a text
MOST_TEXTS = 256
MOST_RESULTS = 1_000
MOST_WEIGHT = 1_000.0

# Unprintable characters except white space: they could corrupt a terminal or a log file.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")

Text = Annotated[str, Meta(min_length=1, max_length=MOST_LETTERS)]
Digest = Annotated[str, Meta(max_length=64, description="Answer from this release or not at all.")]


class Refused(Exception):
    """A request that cannot be answered: a status from 400 to 499 and a sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        self.status, self.sentence = status, sentence
        super().__init__(sentence)


class Embed(Struct, forbid_unknown_fields=True, kw_only=True):
    texts: Annotated[list[Text], Meta(min_length=1, max_length=MOST_TEXTS)]
    side: Annotated[Literal["query", "document"], Meta(description="Each side has a tower of its own.")]
    release: Digest | None = None


class Search(Struct, forbid_unknown_fields=True, kw_only=True):
    query: Text
    k: Annotated[int, Meta(ge=1, le=MOST_RESULTS, description="How many documents.")] = 10
    mode: Mode = "vector"
    weight: Annotated[float, Meta(ge=0, le=MOST_WEIGHT, description="Of BM25 in a hybrid: cosine + weight * BM25.")] = (
        WEIGHT
    )
    release: Digest | None = None


class Explain(Struct, forbid_unknown_fields=True, kw_only=True):
    query: Text
    id: Annotated[str, Meta(max_length=MOST_LETTERS, description="Of a document; or give a title.")] | None = None
    title: Text | None = None
    release: Digest | None = None


Body = TypeVar("Body", Embed, Search, Explain)


async def read_body(request: Request, kind: type[Body]) -> Body:
    """Raises Refused."""
    media_type = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if media_type != "application/json":
        raise Refused(415, "The body's content type is not application/json: send JSON and the header "
                           "Content-Type: application/json.")  # fmt: skip
    content = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                content += chunk
                if len(content) > MOST_BYTES:
                    raise Refused(413, f"The body is longer than {MOST_BYTES:,} bytes: send less at a time.")
    except TimeoutError:
        raise Refused(408, f"The body did not arrive within {BODY_SECONDS:.0f} seconds: send it at once.") from None
    try:
        body = msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:
        raise Refused(422, f"The body cannot be used ({_plain(error)}): /docs describes valid requests.") from None
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        raise Refused(400, "The body is not JSON in UTF-8: send one JSON object.") from None
    for name, text in _texts(body):
        if found := _CONTROL.search(text):
            raise Refused(422, f"The field {name} has a control character (U+{ord(found[0]):04X}) at place "
                               f"{found.start() + 1}: take it out.")  # fmt: skip
    return body


def _texts(body: Embed | Search | Explain) -> list[tuple[str, str]]:
    if isinstance(body, Embed):
        return [("texts", text) for text in body.texts]
    named: list[tuple[str, Any]] = [(name, getattr(body, name)) for name in ("query", "id", "title", "release")
                                    if hasattr(body, name)]  # fmt: skip
    return [(name, text) for name, text in named if text is not None]


def _plain(error: msgspec.ValidationError) -> str:
    """msgspec's "Expected `int` >= 1 - at `$.k`" as "k: expected int >= 1". It quotes no value of a text field."""
    what, _, where = str(error).replace("`", "").partition(" - at $")
    what = what[:1].lower() + what[1:200]
    return f"{where.lstrip('.')}: {what}" if where else what
