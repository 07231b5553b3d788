"""JSON lines with a column mapping: names at the top, dotted paths into nested objects.

Each mapping gets a struct type with the mapped fields and no others. A mapped field that a line lacks is null; one of
another type makes the line unreadable, unless the line can do without it (log_rows.OPTIONAL). Lists cannot be mapped.
A key may contain the dots of its path itself: `{"user.id": "c7"}` is `{"user": {"id": "c7"}}`.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import msgspec

from clicktower.beam_jobs.sources import read_lines
from clicktower.beam_jobs.sources.field_names import listed, nearest
from clicktower.beam_jobs.sources.log_rows import WrongValues, mapped_log_rows
from clicktower.beam_jobs.sources.mapping import ColumnMapping, NamedColumns
from clicktower.beam_jobs.sources.source import (
    MAYBE_BOOLEAN,
    LineSource,
    ParsedBlock,
    Path,
    RowsOf,
    parsed_lines,
    usable_values,
)
from clicktower.schemas.errors import UsageError

_Value = str | int | float | None
_LOOK_BYTES, _LOOK_LINES, _MAX_LOOKED_AT = 1 << 20, 2000, 8


@dataclass(frozen=True, kw_only=True, slots=True)
class JsonSource:
    """A log, or other rows, in JSON lines."""

    mapping: ColumnMapping
    rows_of: RowsOf = mapped_log_rows

    def plan(self, logs: Sequence[str]) -> read_lines.ReadingPlan:
        """Also raises UsageError if the first lines of the files show that a mapped key is misspelt."""
        path_of = paths(self.mapping.columns)
        plan = read_lines.plan_reading(logs, encoding=self.mapping.encoding)
        starts = [unit for unit in plan.units if unit.start == 0]
        step = -(-len(starts) // _MAX_LOOKED_AT)
        seen: set[str] = set()
        for unit in starts[::step]:
            seen |= _keys(next(read_lines.read_blocks(unit, _LOOK_BYTES)).data, max(map(len, path_of.values())))
        _check_keys(seen, path_of, self.mapping.columns.EXPECTED)
        return plan

    def read(self, unit: read_lines.Unit) -> Iterator[ParsedBlock]:
        return LineSource(parse=partial(parse_block, mapping=self.mapping, rows_of=self.rows_of)).read(unit)


def parse_block(block: bytes, mapping: ColumnMapping, rows_of: RowsOf = mapped_log_rows) -> ParsedBlock:
    """The rows of a block of whole lines."""
    decode, attributes = _decoder(mapping.columns)
    cut = read_lines.split_lines(block)
    lines = read_lines.without_returns(block, cut)
    values, rejects = read_lines.decode_lines(block, lines, decode)
    wrong: WrongValues = Counter()
    loose: dict[int, dict[str, Any]] = {}  # by number of the line
    ways_of = {name: ways(path) for name, path in paths(mapping.columns).items()}
    for number in [number for number, reason in rejects.items() if reason == read_lines.WRONG_FIELD]:
        if (found := usable_values(lines[number], ways_of, wrong)) is not None:
            loose[number] = found
            del rejects[number]
    numbers = [number for number in range(len(lines)) if number not in rejects] if rejects else range(len(lines))
    kept = [lines[number] for number in numbers] if rejects else lines
    objects = [values[number] for number in numbers] if rejects else values
    columns = {name: _follow(objects, ways) for name, ways in attributes.items()}
    if loose:
        for place, number in enumerate(numbers):
            for name, value in loose.get(number, {}).items():
                columns[name][place] = value
    rows, bad, reasons, wrong_in_rows = rows_of(read_lines.line_hashes(kept), columns, mapping)
    for number, reason in zip(bad.tolist(), reasons, strict=True):
        rejects[numbers[number]] = reason
    return parsed_lines(rows, cut, rejects, wrong + wrong_in_rows)


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
    apart = [(path[0], *rest) for rest in ways(path[1:])]
    return apart + [(f"{path[0]}.{first}", *rest) for first, *rest in ways(path[1:])]


@cache
def _decoder(columns: NamedColumns) -> tuple[Callable[[bytes], Any], dict[str, list[Path]]]:
    """How to decode lines, and the attribute names that lead to each of our columns, in one way after the other."""
    path_of = paths(columns)
    leaves = {
        way: _Value | bool if name in MAYBE_BOOLEAN else _Value
        for name, path in sorted(path_of.items())
        for way in ways(path)
    }
    struct, attributes = _struct(leaves, 0)
    found = {name: [attributes[way] for way in ways(path)] for name, path in path_of.items()}
    return msgspec.json.Decoder(struct).decode, found


def _struct(leaves: dict[Path, Any], level: int) -> tuple[Any, dict[Path, tuple[str, ...]]]:
    """A struct type for the paths that agree up to `level`, and the attributes that lead to each of its leaves."""
    fields: list[tuple[str, Any, None]] = []
    names: dict[str, str] = {}
    attributes: dict[Path, tuple[str, ...]] = {}
    for number, key in enumerate(sorted({path[level] for path in leaves})):
        attribute = f"field_{number}"
        names[attribute] = key
        below = {path: kind for path, kind in leaves.items() if path[level] == key}
        if any(len(path) > level + 1 for path in below):
            inner, inner_attributes = _struct(below, level + 1)
            fields.append((attribute, inner | None, None))
            attributes |= {path: (attribute, *inner_path) for path, inner_path in inner_attributes.items()}
        else:
            fields.append((attribute, next(iter(below.values())), None))
            attributes |= dict.fromkeys(below, (attribute,))
    return msgspec.defstruct(f"Level{level}", fields, rename=names, gc=False), attributes


def _follow(objects: Sequence[Any], ways_of_column: Sequence[Path]) -> list[Any]:
    found: list[Any] = []
    for attributes in ways_of_column:
        values = objects
        for attribute in attributes:
            values = [None if value is None else getattr(value, attribute) for value in values]
        found = [new if old is None else old for old, new in zip(found, values, strict=True)] if found else list(values)
    return found


def _keys(data: bytes, depth: int) -> set[str]:
    """The keys of some lines; keys of nested objects as dotted paths."""
    result: set[str] = set()
    for line in read_lines.split_lines(data)[:_LOOK_LINES]:
        if read_lines.is_too_deep(line):
            continue
        with suppress(*read_lines.FAILURES):
            _visit(msgspec.json.decode(line), "", depth, result)
    return result


def _visit(value: Any, name: str, depth: int, names: set[str]) -> None:
    if isinstance(value, dict) and depth:
        for key, inner in value.items():
            _visit(inner, f"{name}.{key}" if name else key, depth - 1, names)
    elif name:
        names.add(name)


def _check_keys(seen: set[str], paths: dict[str, Path], expected: Sequence[str]) -> None:
    """Check the mapped keys against those seen. A key that no line has may come later or never; but it is probably
    misspelt if it is expected, or nearly equal to another.
    """
    names = {ours: ".".join(path) for ours, path in paths.items()}
    unmapped = seen - set(names.values())
    for ours, name in names.items():
        if ours == "query" and names.get("query_id") in seen:
            continue  # it may be missing, since the lines seen identify their search
        if seen and name not in seen and (ours in expected or nearest(name, unmapped)):
            raise UsageError(
                f"The mapping gives {ours} the column {name!r}; the first lines have only"
                f" {listed(sorted(seen), names.values())}{nearest(name, unmapped)}.",
                "Name one of their keys in the mapping.",
            )
