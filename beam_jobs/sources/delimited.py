"""Delimited text (CSV, TSV and similar) with a column mapping; and ORCAS, whose columns are known.

A line is a record. With `quoted_newlines` a record continues while a quote is open, and one worker reads a file from
its start, because record boundaries are not recognisable in the middle of a file. Otherwise plain files are split like
any log, and a line that leaves a quote open is unreadable. A quote mark within a quoted field is doubled (RFC 4180).

The header is not a line of the log: no count includes it.
"""

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from clicktower.beam_jobs.sources.field_names import check_columns
from clicktower.beam_jobs.sources.log_rows import mapped_log_rows
from clicktower.beam_jobs.sources.mapping import ColumnMapping, Columns, Mapping
from clicktower.beam_jobs.sources.read_lines import (
    BLANK,
    BLOCK_BYTES,
    MAX_LINE_BYTES,
    NOT_UTF8,
    ReadingPlan,
    Unit,
    bare_lines,
    endless_line_error,
    not_utf8,
    plan_reading,
    read_blocks,
    split_lines,
)
from clicktower.beam_jobs.sources.source import ParsedBlock, RowsOf, parsed_lines, rows_of_lines, starts_of
from clicktower.schemas.errors import StageError, UsageError

_HEADER_BYTES = 1 << 16
_WRONG_WIDTH = "unreadable_width"
csv.field_size_limit(MAX_LINE_BYTES)


@dataclass(frozen=True, kw_only=True, slots=True)
class DelimitedSource:
    """A log, or other rows, in delimited text."""

    mapping: ColumnMapping
    num_columns: int | None = None  # for a format that states it and has no header
    rows_of: RowsOf = mapped_log_rows

    def plan(self, logs: Sequence[str]) -> ReadingPlan:
        """Also raises UsageError for a header without a mapped column, or two files with different headers."""
        plan = plan_reading(logs, split=not self.mapping.quoted_newlines, encoding=self.mapping.encoding)
        if not self.mapping.header:
            _check_numbers(self.mapping)
            return plan
        headers = {unit.file: self._header(unit) for unit in plan.units if unit.start == 0}
        check_columns(headers, self.mapping)
        return replace(plan, units=[replace(unit, header=headers[unit.file]) for unit in plan.units])

    def read(self, unit: Unit) -> Iterator[ParsedBlock]:
        for offset, data, stored_bytes in self._records(unit):
            if offset == 0 and self.mapping.header and data:
                offset = min(len(data), len(split_records(data, self.mapping)[0]) + 1)
                data = data[offset:]
            records = split_records(data, self.mapping)
            parsed = self._parse(data, records, unit.header)
            yield parsed.placed(offset, num_lines=len(records), offset=offset, stored_bytes=stored_bytes)

    def _records(self, unit: Unit, block_bytes: int = BLOCK_BYTES) -> Iterator[tuple[int, bytes, int]]:
        """(offset, whole records, bytes read from the file) of each block in order."""
        held, quote = b"", self.mapping.quote_mark.encode()
        offset, stored = unit.start, 0
        for block in read_blocks(unit, block_bytes):
            if not self.mapping.quoted_newlines or not quote:
                yield block.offset, block.data, block.stored_bytes
                continue
            data, stored = held + block.data, stored + block.stored_bytes
            end = _end_of_records(data, quote)
            if len(data) - end > MAX_LINE_BYTES:
                raise endless_line_error(unit.file, offset + end)
            if end:
                yield offset, data[:end], stored
                offset, stored = offset + end, 0
            held = data[end:]
        if held:
            yield offset, held, stored  # a quote that is never closed: one unreadable record

    def _parse(self, data: bytes, cut: list[bytes], header: tuple[str, ...]) -> ParsedBlock:
        mapping = self.mapping
        lines = bare_lines(data, cut)
        rejects = dict.fromkeys(not_utf8(data, lines), NOT_UTF8)
        places = {
            ours: column - 1 if isinstance(column, int) else header.index(column)
            for ours, column in mapping.columns.named().items()
        }
        width = self.num_columns or len(header)
        least = max(places.values(), default=-1) + 1
        numbers, fields = [], []
        for number, line in enumerate(lines):
            if number in rejects:
                continue
            if not line or line.isspace():
                rejects[number] = BLANK
                continue
            values = split_fields(line.decode(), mapping)
            if values is None or (width and len(values) != width) or len(values) < least:
                rejects[number] = _WRONG_WIDTH
                continue
            numbers.append(number)
            fields.append(values)
        columns = {name: [values[place] for values in fields] for name, place in places.items()}
        rows, wrong = rows_of_lines(lines, numbers, columns, rejects, self.rows_of, mapping)
        return parsed_lines(rows, starts_of(cut), rejects, wrong)

    def _header(self, unit: Unit) -> tuple[str, ...]:
        first = next((data for _, data, _ in self._records(unit, _HEADER_BYTES)), b"")
        line = split_records(first, self.mapping)[0] if first else b""
        (line,) = bare_lines(line, [line])
        try:
            values = split_fields(line.decode(), self.mapping)
        except UnicodeDecodeError:
            values = None
        if values is None:
            raise StageError(
                f"The first line of {unit.file} should name its columns. It is not UTF-8 text, or leaves a quote open.",
                "Look at delimiter, quote and header in the mapping.",
            )
        return tuple(value.strip() for value in values)


def split_records(data: bytes, mapping: ColumnMapping) -> list[bytes]:
    """The records in some whole lines: the lines, or with `quoted_newlines` lines joined while a quote is open."""
    lines = split_lines(data)
    quote = mapping.quote_mark.encode()
    if not mapping.quoted_newlines or not quote or quote not in data:
        return lines
    records: list[bytes] = []
    held: list[bytes] = []
    is_open = False
    for line in lines:
        held.append(line)
        is_open ^= line.count(quote) % 2 == 1
        if not is_open:
            records.append(b"\n".join(held))
            held = []
    return [*records, b"\n".join(held)] if held else records


def split_fields(line: str, mapping: ColumnMapping) -> list[str] | None:
    """The fields of a record; None if a quote is left open, text follows a closing one, or nothing an escape."""
    quote = mapping.quote_mark
    if mapping.escape and mapping.escape in line:
        return _escaped_fields(line, mapping.delimiter, quote, mapping.escape)
    if not quote or quote not in line:
        return line.split(mapping.delimiter)
    try:
        reader = csv.reader([line], delimiter=mapping.delimiter, quotechar=quote, strict=True)
        records = list(reader)
    except csv.Error:
        return None
    return records[0] if len(records) == 1 else None


_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "0": "\0"}  # what letters mean after a backslash
_NULL = "\\N"  # a whole field: nothing, and no letter


@cache
def _escaped_patterns(delimiter: str, quote: str, escape: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """(a field between quotes, its first group, or without, its second, with what ends it; what stands for another
    character within quotes).
    """
    delimiter, quote, escape = map(re.escape, (delimiter, quote, escape))
    quoted = rf"{quote}((?:[^{quote}{escape}]|{escape}.|{quote}{quote})*){quote}" if quote else "((?!))"
    bare = rf"((?:[^{delimiter}{escape}]|{escape}.)*)"
    field = re.compile(rf"(?:{quoted}|{bare})({delimiter}|\Z)", re.DOTALL)
    return field, re.compile(rf"{escape}(.)" + (f"|{quote}{quote}" if quote else ""), re.DOTALL)


def _escaped_fields(line: str, delimiter: str, quote: str, escape: str) -> list[str] | None:
    """The fields of a record with escapes, as MySQL, Hive and PostgreSQL write them; None as for split_fields."""
    field, stand_in = _escaped_patterns(delimiter, quote, escape)
    controls = _CONTROLS if escape == "\\" else {}

    def meant(match: re.Match[str]) -> str:
        if match[1] is None:  # two quotes
            return quote if is_quoted else match[0]
        return controls.get(match[1], match[1])

    fields, at = [], 0
    while match := field.match(line, at):
        is_quoted = match[1] is not None
        text = match[1] if is_quoted else match[2]
        if not is_quoted and quote and text.startswith(quote):
            return None
        fields.append(text if text == _NULL else stand_in.sub(meant, text))
        if not match[3]:
            return fields
        at = match.end()
    return None


def _check_numbers(mapping: ColumnMapping) -> None:
    for ours, column in mapping.columns.named().items():
        if isinstance(column, str):
            raise UsageError(
                f"The mapping gives {ours} the column {column!r} of a file without a header, whose columns have no"
                " names.",
                "Give the column's number, counted from 1, or set header = true.",
            )


def _end_of_records(data: bytes, quote: bytes) -> int:
    """The end of the last whole record. `data` begins with a record and ends with a line."""
    if data.count(quote) % 2 == 0:
        return len(data)
    marks = np.frombuffer(data, np.uint8)
    newlines = np.flatnonzero(marks == ord("\n"))
    quotes_before = np.searchsorted(np.flatnonzero(marks == ord(quote)), newlines)
    ends = newlines[quotes_before % 2 == 0]
    return int(ends[-1]) + 1 if len(ends) else 0


# ORCAS (https://microsoft.github.io/msmarco/ORCAS): query id, query, document id, url between tabs; each line a click.

_ORCAS_MAPPING = Mapping(columns=Columns(query_id=1, query=2, document_id=3), header=False)


def orcas_source(mapping: Mapping) -> DelimitedSource:
    """The source of ORCAS, whose columns are known."""
    return DelimitedSource(mapping=_ORCAS_MAPPING, num_columns=4)  # the fourth is an address
