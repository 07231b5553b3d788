"""The fields of a log: their names, in how many lines they are, and what their values look like. Never a value."""

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

from beam_jobs.sources.json_decoding import FAILURES, is_too_deep

ACTIONS = frozenset({"index", "create", "update", "delete"})
OTHER_KEYS = "*"
_MAX_DEPTH, _MAX_KEYS = 4, 40
_ISO = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d.*)?")
_MAX_EVENTS = 200
# Digits of a number of seconds, ms, us, ns since 1970, for the years 2001 to 2286.
_EPOCHS = {10: "seconds", 13: "milliseconds", 16: "microseconds", 19: "nanoseconds"}


@dataclass(kw_only=True, slots=True)
class Fields:
    """What some lines hold. `paths`: lines with each key or dotted path; `shapes`: what its values look like.

    `texts`: the short values of each path that may name events. They are compared with words that we know, and
    never shown otherwise.
    """

    num_lines: int = 0  # objects, or records
    num_other: int = 0  # lines that are no object
    num_actions: int = 0  # bulk action lines
    num_hits: int = 0  # objects with the event in `_source`
    paths: Counter[str] = field(default_factory=Counter)
    shapes: dict[str, Counter[str]] = field(default_factory=dict)
    texts: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, other: "Fields") -> None:
        self.num_lines += other.num_lines
        self.num_other += other.num_other
        self.num_actions += other.num_actions
        self.num_hits += other.num_hits
        self.paths.update(other.paths)
        for name, counts in other.shapes.items():
            self.shapes.setdefault(name, Counter()).update(counts)
        for name, counts in other.texts.items():
            self.texts.setdefault(name, Counter()).update(counts)

    def share(self, path: str) -> float:
        return self.paths[path] / self.num_lines if self.num_lines else 0.0

    def shape(self, path: str) -> str:
        """What most values of a path look like."""
        counts = self.shapes.get(path)
        return counts.most_common(1)[0][0] if counts else "nothing"

    def leaves(self) -> list[str]:
        """Paths that hold values, and names that may be shown, the most frequent first."""
        return [path for path, _ in self.paths.most_common() if self.shape(path) != "object" and is_showable(path)]


def fields_of_json(lines: Iterable[bytes]) -> Fields:
    """The fields of lines of JSON; of exported hits those of the event."""
    found = Fields()
    for line in lines:
        value: Any = None
        if not is_too_deep(line):
            with suppress(*FAILURES):
                value = msgspec.json.decode(line)
        if not isinstance(value, dict):
            found.num_other += 1
            continue
        if len(value) == 1 and next(iter(value)) in ACTIONS and isinstance(next(iter(value.values())), dict):
            found.num_actions += 1
            continue
        if isinstance(value.get("_source"), dict) and "query_id" not in value:
            found.num_hits += 1
            value = value["_source"]
        found.num_lines += 1
        _visit(value, "", found, 0)
    return found


def fields_of_records(names: Sequence[str], records: Iterable[Sequence[str]]) -> Fields:
    """The fields of delimited records, by the names of their columns."""
    found = Fields()
    for record in records:
        found.num_lines += 1
        for name, value in zip(names, record, strict=False):
            if value:
                _note(name, value, found)
    return found


def shape_of(value: Any) -> str:
    """What a value looks like, in words."""
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, dict):
        return "object"
    if isinstance(value, list):
        return "list"
    if isinstance(value, float):
        return "number"
    text = str(value)
    if text.isascii() and text.isdigit():
        if len(text) in _EPOCHS and text[0] in "12":
            return f"{_EPOCHS[len(text)]} since 1970"
        return "whole number"
    if _ISO.fullmatch(text):
        return "ISO time"
    if text.startswith(("http://", "https://")):
        return "address"
    return "text" if " " in text else "word"


def _visit(value: dict[str, Any], name: str, found: Fields, depth: int) -> None:
    keys = list(value)
    if len(keys) > _MAX_KEYS:  # a table of values, not names of fields
        found.paths[f"{name}.{OTHER_KEYS}" if name else OTHER_KEYS] += 1
        keys = [key for key in keys[:_MAX_KEYS] if not depth]
    for key in keys:
        inner, path = value[key], f"{name}.{key}" if name else key
        if inner is None or inner == "":
            continue
        if isinstance(inner, dict) and depth < _MAX_DEPTH:
            found.paths[path] += 1
            found.shapes.setdefault(path, Counter())["object"] += 1
            _visit(inner, path, found, depth + 1)
        else:
            _note(path, inner, found)


def _note(path: str, value: Any, found: Fields) -> None:
    if path not in found.paths and len(found.paths) >= 1000:
        path = OTHER_KEYS
    found.paths[path] += 1
    found.shapes.setdefault(path, Counter())[shape_of(value)] += 1
    if isinstance(value, str) and len(value) <= 30:
        texts = found.texts.setdefault(path, Counter())
        if value in texts or len(texts) < _MAX_EVENTS:
            texts[value] += 1


# Names that other logs give to what we need: an exact one, one spelt otherwise, one a letter away.
#
# A name is compared without case, without `_`, `-`, `.`, `@` and blanks, so `queryId`, `query_id` and `Query ID` are
# one.


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
