"""The fields of a log: their names, in how many lines they are, and what their values look like. Never a value."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

from beam_jobs.checking.names import is_showable
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
