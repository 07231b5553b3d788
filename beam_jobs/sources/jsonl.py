"""JSON lines -> columns by paths of keys; and logs of JSON lines with a column mapping.

Each set of columns gets a struct type with their fields and no others. A field that a line lacks is null; one of
another type makes the line unreadable, unless the line can do without it (log_rows.OPTIONAL). Lists cannot be mapped.
In a mapping a column is a name at the top, or a dotted path into nested JSON. A key may contain the dots of its path
itself: `{"user.id": "c7"}` is `{"user": {"id": "c7"}}`.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pkgutil import resolve_name
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np

from clicktower.beam_jobs.sources.log_rows import OPTIONAL, WrongValues, kind_of_value, mapped_log_rows
from clicktower.beam_jobs.sources.mapping import ColumnMapping, NamedColumns
from clicktower.beam_jobs.sources.read_lines import (
    BLANK,
    FAILURES,
    NOT_UTF8,
    ReadingPlan,
    Unit,
    bare_lines,
    not_utf8,
    plan_reading,
    read_blocks,
    split_lines,
)
from clicktower.beam_jobs.sources.source import LineSource, ParsedBlock, RowsOf, parsed_lines, rows_of_lines, starts_of
from clicktower.schemas.errors import UsageError

Path = tuple[str, ...]  # the keys that lead to a value of a JSON object
NOT_JSON, WRONG_FIELD = "unreadable_not_json", "unreadable_field"
MAX_DEPTH = 200  # deeper than any log
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"?')
_MAYBE_BOOLEAN = ("label",)  # of our columns; the others are text or numbers
_LOOK_BYTES, _LOOK_LINES, _MAX_LOOKED_AT = 1 << 20, 2000, 8

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


# Logs with a column mapping.


@dataclass(frozen=True, kw_only=True, slots=True)
class JsonSource:
    """A log, or other rows, in JSON lines."""

    mapping: ColumnMapping
    rows_of: RowsOf = mapped_log_rows

    def plan(self, logs: Sequence[str]) -> ReadingPlan:
        """Also raises UsageError if the first lines of the files show that a mapped key is misspelt."""
        path_of = paths(self.mapping.columns)
        plan = plan_reading(logs, encoding=self.mapping.encoding)
        starts = [unit for unit in plan.units if unit.start == 0]
        step = -(-len(starts) // _MAX_LOOKED_AT)
        seen: set[str] = set()
        for unit in starts[::step]:
            seen |= _keys(next(read_blocks(unit, _LOOK_BYTES)).data, max(map(len, path_of.values())))
        resolve_name("clicktower.beam_jobs.sources.field_names:check_keys")(seen, self.mapping.columns)
        return plan

    def read(self, unit: Unit) -> Iterator[ParsedBlock]:
        return LineSource(parse=partial(parse_block, mapping=self.mapping, rows_of=self.rows_of)).read(unit)


def parse_block(block: bytes, mapping: ColumnMapping, rows_of: RowsOf = mapped_log_rows) -> ParsedBlock:
    """The rows of a block of whole lines."""
    json_columns = _json_columns(mapping.columns)
    cut = split_lines(block)
    lines = bare_lines(block, cut)
    wrong: WrongValues = Counter()
    objects, rejects = json_columns.read(block, lines, wrong)
    numbers = [number for number in range(len(lines)) if number not in rejects]
    objects = [objects[number] for number in numbers]
    columns = {name: json_columns.column(name, objects) for name in json_columns.ways_of}
    rows, wrong_in_rows = rows_of_lines(lines, numbers, columns, rejects, rows_of, mapping)
    return parsed_lines(rows, starts_of(cut), rejects, wrong + wrong_in_rows)


@cache
def _json_columns(columns: NamedColumns) -> JsonColumns:
    return JsonColumns({name: ways(path) for name, path in paths(columns).items()})


def paths(columns: NamedColumns) -> dict[str, Path]:
    """Our name -> the path of keys. Raises UsageError for a number, and for a path that runs through another."""
    result: dict[str, Path] = {}
    for name, column in columns.named().items():
        if isinstance(column, int) or not all(column.split(".")):
            raise UsageError(
                f"The mapping gives {name} the column {column!r} of JSON lines: neither a key nor a path of keys.",
                "Give a key (`query`) or a dotted path (`search.query`).",
            )
        result[name] = tuple(column.split("."))
    for name, path in result.items():
        for name_of, longer in result.items():
            if len(longer) > len(path) and longer[: len(path)] == path:
                raise UsageError(
                    f"The mapping gives {name} the column {'.'.join(path)!r}, and {name_of} a column within it, so it"
                    " cannot be text or a number.",
                    "Name one of the values within it.",
                )
    return result


def ways(path: Path) -> list[Path]:
    """The keys that a path may stand for: its own first, then those with dots; `a.b.c` may be `c` within `a.b`."""
    if len(path) == 1:
        return [path]
    apart = [(path[0], *later) for later in ways(path[1:])]
    return apart + [(f"{path[0]}.{first}", *later) for first, *later in ways(path[1:])]


def _keys(data: bytes, depth: int) -> set[str]:
    """The keys of some lines; keys of nested objects as dotted paths."""
    result: set[str] = set()
    for line in bare_lines(data, split_lines(data)[:_LOOK_LINES]):
        if is_too_deep(line):
            continue
        with suppress(*FAILURES):
            _visit(msgspec.json.decode(line), "", depth, result)
    return result


def _visit(value: Any, name: str, depth: int, names: set[str]) -> None:
    if isinstance(value, dict) and depth:
        for key, inner in value.items():
            _visit(inner, f"{name}.{key}" if name else key, depth - 1, names)
    elif name:
        names.add(name)
