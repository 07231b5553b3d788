"""Logs, and other rows, in JSON lines with a column mapping.

A column is a name at the top, or a dotted path into nested JSON; lists cannot be mapped. A key may contain the dots of
its path itself: `{"user.id": "c7"}` is `{"user": {"id": "c7"}}`.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import msgspec

from clicktower.beam_jobs.sources.field_names import check_keys
from clicktower.beam_jobs.sources.json_columns import JsonColumns, Path, is_too_deep
from clicktower.beam_jobs.sources.log_rows import WrongValues, mapped_log_rows
from clicktower.beam_jobs.sources.mapping import ColumnMapping, NamedColumns
from clicktower.beam_jobs.sources.read_lines import (
    FAILURES,
    ReadingPlan,
    Unit,
    bare_lines,
    plan_reading,
    read_blocks,
    split_lines,
)
from clicktower.beam_jobs.sources.source import LineSource, ParsedBlock, RowsOf, parsed_lines, rows_of_lines, starts_of
from clicktower.schemas.errors import UsageError

_LOOK_BYTES, _LOOK_LINES, _MAX_LOOKED_AT = 1 << 20, 2000, 8


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
        check_keys(seen, self.mapping.columns)
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
