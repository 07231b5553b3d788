"""Names that other logs give to what we need: an exact one, one spelt otherwise, one a letter away.

A name is compared without case, without `_`, `-`, `.`, `@` and blanks, so `queryId`, `query_id` and `Query ID` are one.
"""

import difflib
import re
from collections.abc import Iterable, Mapping

# Ours -> what it is called elsewhere, the likeliest first. Two parts are a key within an object of that name.
ALIASES: Mapping[str, tuple[str, ...]] = {
    "query_id": (
        "query_id", "qid", "search_id", "sid", "query.id", "search.id", "request_id", "search_request_id", "query_uid",
        "query_uuid", "search_uuid", "query_guid", "qry_id",
    ),
    "client_id": (
        "client_id", "user_id", "visitor_id", "anon_id", "anonymous_id", "cookie_id", "device_id", "customer_id", "uid",
        "client", "user", "visitor", "user.id", "client.id", "visitor.id", "uuid", "session_id", "session",
    ),
    "query": (
        "user_query", "query", "query_text", "search_term", "search_query", "search_text", "search.query",
        "search.text", "query.text", "keywords", "keyword", "q", "term", "phrase", "search_phrase", "text", "search",
    ),
    "document_id": (
        "object_id", "document_id", "doc_id", "product_id", "item_id", "product.id", "item.id", "document.id", "doc.id",
        "object.id", "sku", "asin", "did", "click_url", "clicked_url", "url", "product", "item", "document", "doc",
        "article_id", "listing_id", "internal_id",
    ),
    "position": ("ordinal", "position", "rank", "item_rank", "pos", "index", "click_rank", "result_position", "slot"),
    "time": (
        "timestamp", "time", "ts", "datetime", "date_time", "event_time", "query_time", "created_at", "at", "date",
        "epoch", "unix_time", "time_stamp",
    ),
    "event": ("action_name", "event", "event_type", "event_name", "action", "action_type", "type", "interaction"),
    "user_agent": ("user_agent", "ua", "agent", "http_user_agent", "browser"),
    "application": ("application", "app", "app_name", "application_name"),
}  # fmt: skip
# What a value of an event column means, compared in the same way.
EVENT_ROOTS = {
    "click": ("click", "tap", "select", "clickthrough", "productclick", "itemclick", "resultclick", "hitclick"),
    "impression": ("impression", "shown", "view", "viewed", "display", "displayed", "serp", "impressed", "productview"),
    "search": ("search", "query", "searched"),
}
_NAME = re.compile(r"[A-Za-z_@][A-Za-z0-9_.@ -]{0,59}")
_PLAIN = re.compile(r"[^a-z0-9]")
_LONG_DIGITS = re.compile(r"\d{5,}|[0-9a-fA-F]{12,}")
_NEAR = 0.8


def plain_name(name: str) -> str:
    """A name without what it may be spelt with or without."""
    return _PLAIN.sub("", name.lower())


def is_showable(name: str) -> bool:
    """Whether a key looks like the name of a field, and not like a value that serves as a key."""
    return bool(_NAME.fullmatch(name)) and not _LONG_DIGITS.search(name)


def alias_rank(ours: str, name: str) -> int | None:
    """How usual a name (a key, or a dotted path) is for ours: 0 the most; None where it is not known for it."""
    parts = name.split(".")
    spellings = {plain_name(parts[-1]), plain_name("".join(parts[-2:]))}
    ranks = [rank for rank, alias in enumerate(ALIASES[ours]) if plain_name(alias) in spellings]
    return min(ranks, default=None)


def best_name(ours: str, names: Iterable[str]) -> str | None:
    """The name among these that most likely means ours: an alias, of several the most usual, then the least nested."""
    ranked = [(rank, name.count("."), name) for name in names if (rank := alias_rank(ours, name)) is not None]
    return min(ranked)[2] if ranked else None


def near_name(expected: str, names: Iterable[str]) -> str | None:
    """The name among these whose last key is nearly the last key of an expected path, by its letters."""
    wanted = plain_name(expected.split(".")[-1])
    scored = [(difflib.SequenceMatcher(None, wanted, plain_name(name.split(".")[-1])).ratio(), name) for name in names]
    likely = [pair for pair in scored if pair[0] >= _NEAR]
    return max(likely)[1] if likely else None


def event_kind(value: str) -> str | None:
    """What a value of an event column probably means: search, impression, click, or nothing that we know."""
    name = plain_name(value)
    return next((kind for kind, roots in EVENT_ROOTS.items() if name in roots), None)
