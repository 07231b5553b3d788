"""JSON lines -> columns by paths of keys.

Each set of columns gets a struct type with their fields and no others. A field that a line lacks is null; one of
another type makes the line unreadable, unless the line can do without it (log_rows.OPTIONAL).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np

from clicktower.beam_jobs.sources.log_rows import OPTIONAL, WrongValues, kind_of_value
from clicktower.beam_jobs.sources.read_lines import BLANK, FAILURES, NOT_UTF8, not_utf8

Path = tuple[str, ...]  # the keys that lead to a value of a JSON object
NOT_JSON, WRONG_FIELD = "unreadable_not_json", "unreadable_field"
MAX_DEPTH = 200  # deeper than any log
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"?')
_MAYBE_BOOLEAN = ("label",)  # of our columns; the others are text or numbers

as_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class JsonColumns:
    """Our columns in the objects of JSON lines. `ways_of`: the paths to each; the first with a value counts.

    An object here has only the columns' values, under attributes: a struct, or a namespace if it was read loosely.
    """

    def __init__(self, ways_of: Mapping[str, Sequence[Path]]) -> None:
        self.ways_of = ways_of
        leaves = {
            way: str | int | float | bool | None if name in _MAYBE_BOOLEAN else str | int | float | None
            for name, ways in sorted(ways_of.items())
            for way in ways
        }
        struct, self._attributes = _struct(leaves)
        self.decode: Callable[[bytes | msgspec.Raw], Any] = msgspec.json.Decoder(struct).decode

    def read(self, block: bytes, lines: Sequence[bytes], wrong: WrongValues) -> tuple[list[Any], dict[int, str]]:
        """(the object of each line, None for one that cannot be read; the fate of each of these, by the line's number).

        `block` is all the lines together. `wrong`: values of wrong types are added to it.
        """
        rejects = dict.fromkeys(not_utf8(block, lines), NOT_UTF8)
        for number in [number for number, line in enumerate(lines) if len(line) > 2 * MAX_DEPTH]:
            if number not in rejects and is_too_deep(lines[number]):
                rejects[number] = NOT_JSON
        if rejects:
            lines = [b"" if number in rejects else line for number, line in enumerate(lines)]
        objects: list[Any] = []
        decoded = map(self.decode, lines)
        while True:
            try:
                objects.extend(decoded)  # the lines before an error stay
                return objects, rejects
            except FAILURES:
                number = len(objects)
                fate = rejects.get(number) or _fate_of_failure(lines[number])
                objects.append(self.read_loosely(lines[number], wrong) if fate == WRONG_FIELD else None)
                if objects[number] is None:
                    rejects[number] = fate

    def read_loosely(self, line: bytes | msgspec.Raw, wrong: WrongValues) -> SimpleNamespace | None:
        """The object of a line without the values of wrong types, which are counted; None if it needs one of them."""
        try:
            fields = msgspec.json.decode(line)
        except FAILURES:  # a number that no float holds, say
            wrong["some field: a number out of range"] += 1
            return None
        result, is_lost = SimpleNamespace(), False
        for name, ways in self.ways_of.items():
            allowed = (str, int, float, bool) if name in _MAYBE_BOOLEAN else (str, int, float)
            values = [(way, value) for way in ways if (value := _along(fields, way)) is not None]
            usable = [(way, value) for way, value in values if type(value) in allowed]
            if usable:
                way, value = usable[0]
                *outer, last = self._attributes[way]
                place = result.__dict__
                for attribute in outer:
                    place = place.setdefault(attribute, SimpleNamespace()).__dict__
                place[last] = value
            elif values:
                _, first = values[0]
                wrong[f"{name}: {kind_of_value(first.value if isinstance(first, _InTheWay) else first)}"] += 1
                is_lost |= name not in OPTIONAL
        return None if is_lost else result

    def column(self, name: str, objects: Sequence[Any]) -> list[Any]:
        """The values of a column."""
        column: list[Any] = []
        for way in self.ways_of[name]:
            values = objects
            for attribute in self._attributes[way]:
                values = [getattr(value, attribute, None) for value in values]
            column = (
                [new if old is None else old for old, new in zip(column, values, strict=True)] if column else [*values]
            )
        return column


def _struct(leaves: Mapping[Path, Any], begin: Path = ()) -> tuple[Any, dict[Path, tuple[str, ...]]]:
    """A struct type for the paths, which begin alike, and the attributes that lead to each of its leaves."""
    fields: list[tuple[str, Any, None]] = []
    names: dict[str, str] = {}
    attributes: dict[Path, tuple[str, ...]] = {}
    for number, key in enumerate(sorted({path[len(begin)] for path in leaves})):
        attribute, path = f"field_{number}", (*begin, key)
        names[attribute] = key
        kind = leaves.get(path)
        if path in leaves:
            attributes[path] = (attribute,)
        if below := {leaf: of_leaf for leaf, of_leaf in leaves.items() if leaf != path and leaf[: len(path)] == path}:
            inner, inner_attributes = _struct(below, path)
            kind = inner | kind
            attributes |= {leaf: (attribute, *inner_path) for leaf, inner_path in inner_attributes.items()}
        fields.append((attribute, kind, None))
    return msgspec.defstruct(f"Level{len(begin)}", fields, rename=names, gc=False), attributes


@dataclass(frozen=True, slots=True)
class _InTheWay:
    """A value where a path of keys needs an object."""

    value: Any


def _along(value: Any, path: Path) -> Any:
    """The value at the end of a path of keys, or what is in its way."""
    for key in path:
        if not isinstance(value, Mapping):
            return None if value is None else _InTheWay(value)
        value = value.get(key)
    return value


def _fate_of_failure(line: bytes) -> str:
    """Why a line is not decoded: it is blank, no JSON object, or has a field of a wrong type."""
    if not line.strip():
        return BLANK
    try:
        as_object(line)
    except FAILURES:
        return NOT_JSON
    return WRONG_FIELD


def is_too_deep(line: bytes) -> bool:
    """Whether a line nests more than MAX_DEPTH values; for a line that is not JSON either answer is fine."""
    if line.count(b"{") + line.count(b"[") <= MAX_DEPTH:
        return False
    marks = np.frombuffer(_STRING.sub(b"", line), np.uint8)
    steps = np.isin(marks, list(b"{[")).astype(np.int64) - np.isin(marks, list(b"}]"))
    return bool(np.cumsum(steps).max(initial=0) > MAX_DEPTH)
