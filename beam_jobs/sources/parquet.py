"""Parquet with a column mapping: names of columns, or dotted paths into structs.

A line is a row, and its place is its row number. A unit is some row groups. Two rows are exact repeats if they agree in
every mapped column; the mapping's `line_id` can name a column that distinguishes rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clicktower.beam_jobs.sources import read_lines
from clicktower.beam_jobs.sources.field_names import check_columns
from clicktower.beam_jobs.sources.lake_tables import LakeTable, leaves
from clicktower.beam_jobs.sources.log_files import find_files, unreadable
from clicktower.beam_jobs.sources.log_rows import mapped_log_rows
from clicktower.beam_jobs.sources.mapping import ColumnMapping
from clicktower.beam_jobs.sources.source import ParsedBlock, RowsOf, parsed_lines
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.text_file import is_utf8

BATCH_ROWS = 1 << 16


@dataclass(frozen=True, kw_only=True, slots=True)
class ParquetSource:
    """A log, or other rows, in Parquet files."""

    mapping: ColumnMapping
    rows_of: RowsOf = mapped_log_rows

    def plan(self, logs: Sequence[str]) -> read_lines.ReadingPlan:
        """Also raises UsageError for a mapped column that is missing from a file or has an unusable type, and for a
        table that does not tell where its columns are.
        """
        log = find_files(logs)
        schemas: dict[str, pa.Schema] = {}
        groups: dict[str, list[Any]] = {}
        for file in log.paths:
            if not _size(file):
                continue
            with _opened(file) as parquet:
                schemas[file] = parquet.schema_arrow
                groups[file] = [parquet.metadata.row_group(number) for number in range(parquet.num_row_groups)]
        if not schemas:
            raise read_lines.empty_input_error(logs)
        places = self._places(schemas, cast(Mapping[str, LakeTable | None], log.tables))
        sizes = {file: [group.total_byte_size for group in of_file] for file, of_file in groups.items()}
        return read_lines.ReadingPlan(
            files=log.paths,
            units=[unit for file in schemas for unit in _units(file, sizes[file], places[file])],
            stored_bytes=sum(_stored(group) for of_file in groups.values() for group in of_file),
            estimated_bytes=sum(map(sum, sizes.values())),
            renamed={file: names for file, names in places.items() if self._is_renamed(schemas[file], names)},
        )

    def read(self, unit: read_lines.Unit) -> Iterator[ParsedBlock]:
        with _opened(unit.file) as parquet:
            groups = [parquet.metadata.row_group(number) for number in range(unit.end)]
            offset = sum(group.num_rows for group in groups[: unit.start])
            num_rows = sum(group.num_rows for group in groups[unit.start :])
            stored, first = sum(_stored(group) for group in groups[unit.start :]), offset
            names = dict(zip(self.mapping.columns.named(), unit.places, strict=True))
            batches = parquet.iter_batches(
                batch_size=BATCH_ROWS,
                row_groups=list(range(unit.start, unit.end)),
                columns=sorted({name for name in names.values() if name is not None}),
            )
            for batch in batches:
                columns = {ours: _column(batch, name) for ours, name in names.items()}
                before, after = offset - first, offset - first + batch.num_rows
                stored_bytes = stored * after // num_rows - stored * before // num_rows
                yield self._parse(columns, batch.num_rows, offset, stored_bytes)
                offset += batch.num_rows

    def _parse(self, columns: dict[str, pa.Array], num_rows: int, offset: int, stored_bytes: int) -> ParsedBlock:
        is_bad = np.zeros(num_rows, bool)
        for column in columns.values():
            is_bad |= _not_utf8(column)
        numbers = np.flatnonzero(~is_bad)
        if is_bad.any():
            columns = {ours: column.take(pa.array(numbers)) for ours, column in columns.items()}
        hashes = read_lines.line_hashes(_row_bytes(columns, len(numbers)))
        columns.pop("line_id", None)
        rows, unreadable, reasons, wrong = self.rows_of(hashes, columns, self.mapping)
        rejects = dict.fromkeys(np.flatnonzero(is_bad).tolist(), read_lines.NOT_UTF8)
        rejects |= dict(zip(numbers[unreadable].tolist(), reasons, strict=True))
        parsed = parsed_lines(rows, np.arange(num_rows), rejects, wrong)
        return parsed.placed(offset, num_lines=num_rows, offset=offset, stored_bytes=stored_bytes)

    def _places(
        self, schemas: dict[str, pa.Schema], tables: Mapping[str, LakeTable | None]
    ) -> dict[str, tuple[str | None, ...]]:
        """Where each file has each mapped column. Of a table the mapping names the columns that it has now."""
        file_leaves = {file: leaves(schema) for file, schema in schemas.items()}
        held = {file: table.leaves if (table := tables[file]) else file_leaves[file] for file in schemas}
        check_columns({file: [leaf.name for leaf in columns] for file, columns in held.items()}, self.mapping)
        places: dict[str, list[str | None]] = {file: [] for file in schemas}
        for ours, column in self.mapping.columns.named().items():
            kinds: dict[str, pa.DataType] = {}
            for file, schema in schemas.items():
                name: str | None = column if isinstance(column, str) else held[file][column - 1].name
                if name and (table := tables[file]):
                    name = table.name_in(file, schema, file_leaves[file], name)
                places[file].append(name)
                kinds.update((file, leaf.kind) for leaf in file_leaves[file] if leaf.name == name)
            _check_types(ours, column, kinds)
        return {file: tuple(names) for file, names in places.items()}

    def _is_renamed(self, schema: pa.Schema, places: Sequence[str | None]) -> bool:
        """Whether a file has a column of the mapping elsewhere than under the mapping's own name."""
        names = {leaf.name for leaf in leaves(schema)}
        columns = self.mapping.columns.named().values()
        return any(
            isinstance(column, str) and place != (column if column in names else None)
            for column, place in zip(columns, places, strict=True)
        )


def _check_types(ours: str, column: str | int, kinds: dict[str, pa.DataType]) -> None:
    wrong = [file for file, kind in kinds.items() if not _is_usable(ours, kind)]
    right = [file for file in kinds if file not in wrong]
    if wrong:
        also = f", while {right[0]} has {_words(kinds[right[0]])}" if right else ""
        raise UsageError(
            f"The mapping gives {ours} the column {column!r}; {wrong[0]} has it as {_words(kinds[wrong[0]])}{also}.",
            f"Give {_USABLE.get(ours, 'text or numbers')}.",
        )


_USABLE = {
    "line_id": "text or integers",
    "event": "text or integers",
    "user_agent": "text or integers",
    "application": "text or integers",
    "position": "integers, or text of digits",
    "time": "timestamps, dates, numbers or text",
    "dwell": "numbers, or text of digits",
    "label": "text, numbers, or true and false",
}


def _is_usable(ours: str, kind: pa.DataType) -> bool:
    is_kind = pa.types
    if _is_text(kind) or is_kind.is_integer(kind) or is_kind.is_null(kind):
        return True
    also = {
        **dict.fromkeys(("query_id", "client_id", "document_id", "query"), (is_kind.is_decimal,)),
        "position": (),
        "dwell": (),
        "label": (is_kind.is_boolean,),
        "time": (is_kind.is_timestamp, is_kind.is_date),
    }
    return ours in also and any(test(kind) for test in (is_kind.is_floating, *also[ours]))


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _words(kind: pa.DataType) -> str:
    """A type for an error. Of a list or a map only that: the names within may be text of the log."""
    return "a list or a map" if pa.types.is_nested(kind) else str(kind)


def _column(batch: pa.RecordBatch, name: str | None) -> pa.Array:
    """A column of a batch as text, integers, other numbers or times; never a dictionary, nor a large or view type.
    Nulls for a column that the file lacks.
    """
    if name is None:
        return pa.nulls(batch.num_rows, pa.string())
    if name in batch.schema.names:
        column = batch.column(name)
    else:
        path = name.split(".")
        length = next(n for n in range(1, len(path)) if ".".join(path[:n]) in batch.schema.names)
        column = pc.struct_field(batch.column(".".join(path[:length])), path[length:])
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_null(column.type):
        return column.cast(pa.string())
    return column.cast(pa.string()) if _is_text(column.type) else column


def _not_utf8(column: pa.Array) -> Any:
    if not pa.types.is_string(column.type):
        return False
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return np.array([not is_utf8(value) for value in column.cast(pa.binary()).to_pylist()], bool)
    return False


def _row_bytes(columns: dict[str, pa.Array], num_rows: int) -> list[bytes]:
    """The identity of a row: its mapped values, each preceded by its length, so that different rows never have the same
    bytes.
    """
    parts = []
    for _, column in sorted(columns.items()):
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        text = column.cast(pa.string())
        length = pc.binary_length(text).cast(pa.string())
        parts.append(pc.fill_null(pc.binary_join_element_wise(length, text, ":"), "-"))
    joined = pc.binary_join_element_wise(*parts, ",").cast(pa.binary())
    return joined.to_pylist() if parts else [b""] * num_rows


def _units(file: str, sizes: list[int], places: tuple[str | None, ...]) -> list[read_lines.Unit]:
    """Row groups, combined until they are worth a unit."""
    units, start, size = [], 0, 0
    for number, group in enumerate(sizes):
        size += group
        if size >= read_lines.RANGE_BYTES or number == len(sizes) - 1:
            units.append(
                read_lines.Unit(file=file, start=start, end=number + 1, kind=read_lines.PARQUET, places=places)
            )
            start, size = number + 1, 0
    return units


def _stored(group: Any) -> int:
    return sum(group.column(number).total_compressed_size for number in range(group.num_columns))


def _size(file: str) -> int:
    try:
        return storage.size_bytes(file) or 0
    except OSError as error:
        raise unreadable(file, error) from None


@contextmanager
def _opened(file: str) -> Iterator[pq.ParquetFile]:
    """An open Parquet file; any error while it is open becomes a StageError."""
    try:
        with storage.open_read(file) as opened:
            yield pq.ParquetFile(opened)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise _damaged(file, error) from None
    except OSError as error:
        if error.errno is None:  # Arrow's own have no number
            raise _damaged(file, error) from None
        raise unreadable(file, error) from None


def _damaged(file: str, error: Exception) -> StageError:
    is_parquet = "magic bytes" not in str(error) and "too small" not in str(error) and "minimum" not in str(error)
    return StageError(
        f"{file} is "
        + ("a damaged Parquet file." if is_parquet else "no Parquet file, or was cut off.")
        + " Nothing of it was kept.",
        "Copy or write the file again, or leave it out.",
    )
