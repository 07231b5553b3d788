"""Documents in JSON lines, CSV and Parquet, and their columns besides id and title."""

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import compress
from typing import IO, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from clicktower.schemas import storage
from clicktower.schemas.documents import (
    CODES,
    FORM,
    MAX_TEXT_BYTES,
    DocumentsBlock,
    decoded,
    named_places,
    new_block,
    no_column,
)
from clicktower.schemas.errors import StageError
from clicktower.schemas.text_contract import ids
from clicktower.schemas.text_file import is_utf8

_MOST_EXACT = 2.0**53  # a whole float beyond it has lost digits

# JSON lines. Rows of the usual types are decoded by their few fields; any other is decoded in full, with its numbers as
# they are written.

_FIELDS = ("id", "_id", "title", "text")


class _Number(str):
    """A number as it is written."""

    @property
    def value(self) -> int | float:
        return int(self) if self.lstrip("-").isdigit() else float(self)


_in_full = json.JSONDecoder(parse_int=_Number, parse_float=_Number, parse_constant=lambda name: None).decode


@lru_cache(maxsize=4)
def _row_type(columns: tuple[str, ...]) -> tuple[Any, list[str]]:
    """(the structure of a row, the names of its fields in the file)."""
    names = list(dict.fromkeys((*_FIELDS, *columns)))
    kinds: list[Any] = [str | int | None if name in _FIELDS else str | int | float | bool | None for name in names]
    fields = [
        (f"field_{at}", kind, msgspec.field(default=None, name=name))
        for at, (name, kind) in enumerate(zip(names, kinds, strict=True))
    ]
    return msgspec.defstruct("Row", fields, gc=False), names


def parse_json(content: bytes, offset: int, columns: tuple[str, ...]) -> DocumentsBlock:
    """The documents in lines with a JSON object each. `columns`: fields to read besides id and title."""
    row_type, names = _row_type(columns)
    lines = content.split(b"\n")
    starts = np.cumsum([0, *(len(line) + 1 for line in lines)])[:-1] + offset
    if not lines[-1]:
        lines, starts = lines[:-1], starts[:-1]
    if not all(map(bytes.strip, lines)):
        holds = [bool(line.strip()) for line in lines]
        lines, starts = list(compress(lines, holds)), starts[holds]
    codes, rows = np.zeros(len(lines), np.int8), list[Any]()
    read = map(msgspec.json.Decoder(row_type).decode, lines)
    while True:
        try:
            rows.extend(read)  # the lines before an error stay
        except (ValueError, RecursionError):  # of msgspec and of UTF-8
            values, reason = _row_in_full(lines[len(rows)], names)
            codes[len(rows)] = CODES.get(reason, 0)
            rows.append(row_type(*values))
        else:
            break
    values_of = {name: [getattr(row, f"field_{at}") for row in rows] for at, name in enumerate(names)}
    texts = {name: _texts(values_of[name]) for name in _FIELDS}
    more = {name: values_of[name] for name in columns}
    return new_block(*_id_and_title(texts), codes, starts, more)


def _row_in_full(line: bytes, names: Sequence[str]) -> tuple[list[Any], str]:
    """(the values of a row, why it is no document or "")."""
    nothing: list[Any] = [None] * len(names)
    try:
        row = _in_full(line.decode())
    except (ValueError, RecursionError):
        return nothing, "unreadable"
    if not isinstance(row, dict):
        return nothing, "unreadable"
    values = dict.fromkeys(names) | {name: row[name] for name in names if name in row}
    if not isinstance(values["text"], str):
        values["text"] = None
    id_ = values["id"] if values["id"] is not None else values["_id"]
    if not isinstance(id_, str | None):
        return nothing, "unfit_id"
    if not isinstance(values["title"], str | None):
        return nothing, "unfit_title"
    if not all(isinstance(values[name], str | None) for name in _FIELDS):
        values["_id"] = None  # beside an id
    if not all(_is_whole(value) for value in values.values() if isinstance(value, str)):
        return nothing, "unreadable"
    return [
        value.value if isinstance(value, _Number) and name not in _FIELDS else value for name, value in values.items()
    ], ""


def _is_whole(text: str) -> bool:
    """Whether a text has no lone half of a letter outside the first 65,536 (a surrogate)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _texts(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values, pa.string())
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        return pa.array([None if value is None else str(value) for value in values], pa.string())


def _id_and_title(texts: Mapping[str, pa.Array]) -> tuple[pa.Array, pa.Array]:
    """The ids and titles of rows. In those with `_id` in place of id, BEIR's, text stands in for an empty title."""
    titles = texts["title"]
    nothing = pa.nulls(len(titles), pa.string())
    documents, beir_ids, text = (texts.get(name, nothing) for name in ("id", "_id", "text"))
    if beir_ids.null_count == len(titles):
        return documents, titles
    has_text = pc.fill_null(pc.not_equal(pc.utf8_trim_whitespace(titles), ""), False)
    is_beir = pc.and_(pc.is_null(documents), pc.is_valid(beir_ids))
    return pc.coalesce(documents, beir_ids), pc.if_else(pc.and_not(is_beir, has_text), text, titles)


# CSV with a header (RFC 4180).


def parse_csv(uri: str, content: bytes, offset: int, columns: Sequence[str]) -> DocumentsBlock:
    """The documents in a whole CSV file. Raises StageError if its header lacks a column."""
    is_right = is_utf8(content)
    lines = list(io.StringIO(content.decode(errors="surrogateescape"), newline="\n"))
    starts = np.append(0, np.flatnonzero(np.frombuffer(content, np.uint8) == ord("\n")) + 1) + offset
    records = ((at, cells) for at, cells in _records(lines) if cells is None or any(map(str.strip, cells)))
    _, header = next(records, (0, None))
    names = [name.strip() for name in header or ()]
    fields = _wanted_columns(uri, names, columns)
    places, codes, rows = list[int](), list[int](), list[list[str | None]]()
    nothing: list[str | None] = [None] * len(fields)
    at_of = [names.index(name) for name in fields]
    for at, cells in records:
        reason, values = "", nothing
        if cells is None:
            reason = "unreadable"
        elif len(cells) != len(names):
            reason = "other_columns"
        else:
            values = [cells[place] for place in at_of]
            if not is_right and not all(_is_whole(cells[place]) for place in at_of):
                reason, values = "unreadable", nothing
        places.append(at)
        codes.append(CODES.get(reason, 0))
        rows.append(values)
    values_of = dict(zip(fields, map(list, zip(*rows, strict=True)), strict=True)) if rows else {}
    texts = {name: pa.array(values_of.get(name, []), pa.string()) for name in fields if name in _FIELDS}
    more = {name: values_of.get(name, []) for name in columns}
    return new_block(*_id_and_title(texts), np.array(codes, np.int8), starts[np.array(places, np.int64)], more)


def _records(lines: Sequence[str]) -> Iterator[tuple[int, list[str] | None]]:
    """(the number of its first line, its cells) of each record; no cells if a quote is open or ends within a cell.

    Reading goes on after that record's first line, so that one wrong quote does not swallow what follows.
    """
    limit = csv.field_size_limit(max(map(len, lines), default=0) + MAX_TEXT_BYTES)
    start = 0
    try:
        while start < len(lines):
            begun, reader = start, csv.reader(map(lines.__getitem__, range(start, len(lines))), strict=True)
            try:
                for cells in reader:
                    yield start, cells
                    start = begun + reader.line_num
            except csv.Error:
                yield start, None
                start += 1
    finally:
        csv.field_size_limit(limit)


_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


def cell_values(cells: Sequence[str | None]) -> list[Any]:
    """The values of a CSV column: numbers or booleans if every cell is written as JSON writes them, otherwise texts."""
    held = {cell for cell in cells if cell}
    if held <= {"true", "false"}:
        return [cell == "true" if cell else None for cell in cells]
    if all(map(_NUMBER.fullmatch, held)):
        return [_Number(cell).value if cell else None for cell in cells]
    return [cell or None for cell in cells]


# Parquet.


def parquet_blocks(uri: str, columns: Sequence[str] = ()) -> Iterator[DocumentsBlock]:
    """The documents of a Parquet file in order, in blocks. Raises StageError."""
    with storage.open_read(uri) as file:
        rows = open_parquet(uri, file)
        for number in range(rows.num_row_groups):
            yield from read_row_group(uri, rows, number, columns)


def open_parquet(uri: str, file: IO[bytes]) -> pyarrow.parquet.ParquetFile:
    """A Parquet file. Raises StageError if it is not one."""
    try:
        return pyarrow.parquet.ParquetFile(file)
    except pa.ArrowInvalid as error:
        raise _not_of_form(uri, error) from None


def read_row_group(
    uri: str, rows: pyarrow.parquet.ParquetFile, number: int, columns: Sequence[str] = ()
) -> Iterator[DocumentsBlock]:
    """The documents of a row group. Raises StageError."""
    fields = _wanted_columns(uri, rows.schema_arrow.names, columns)
    try:
        table = rows.read_row_group(number, columns=fields)
    except (pa.ArrowException, OSError) as error:
        if getattr(error, "errno", None) is not None:
            raise
        raise _not_of_form(uri, error) from None
    first_row = sum(rows.metadata.row_group(earlier).num_rows for earlier in range(number))
    for batch in table.to_batches():
        codes = np.zeros(len(batch), np.int8)
        texts = {name: _text_column(name, batch[name], codes) for name in fields if name in _FIELDS}
        places = np.arange(first_row, first_row + len(batch))
        yield new_block(*_id_and_title(texts), codes, places, {name: batch[name] for name in columns})
        first_row += len(batch)


def _text_column(name: str, column: pa.Array, codes: np.ndarray) -> pa.Array:
    """A column of ids or titles as text; rows whose value is none get their code."""
    is_id, kind = name in ("id", "_id"), column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_null(kind):
        return column.cast(pa.string())
    if _is_text(kind):
        texts, is_wrong = decoded(column.cast(pa.large_binary()))
        codes[is_wrong & (codes == 0)] = CODES["unreadable"]
        return texts
    if pa.types.is_floating(kind):
        column = column.cast(pa.float64())
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, pa.float64()), column)
        is_exact = pc.less_equal(pc.abs(column), _MOST_EXACT)
    elif pa.types.is_decimal(kind) or pa.types.is_integer(kind) or is_moment(kind):
        is_exact = pa.array(np.ones(len(column), bool))
    else:
        codes[column.is_valid().to_numpy(zero_copy_only=False)] = CODES["unfit_id" if is_id else "unfit_title"]
        return pa.nulls(len(column), pa.string())
    texts = column.cast(pa.string())
    if is_id and not is_moment(kind):
        is_whole = pc.and_(is_exact, pc.match_substring_regex(ids(texts), "^-?[0-9]+$"))
        codes[~is_whole.fill_null(True).to_numpy(zero_copy_only=False)] = CODES["unfit_id"]
    return texts


def is_moment(kind: pa.DataType) -> bool:
    return pa.types.is_date(kind) or pa.types.is_timestamp(kind)


def _is_text(kind: pa.DataType) -> bool:
    kinds = (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view())
    return kind in kinds


def _not_of_form(uri: str, error: Exception) -> StageError:
    reason = str(error).splitlines()[0][:160]
    return StageError(f"The file {uri} does not have the format that its name says ({reason}).", FORM)


# Columns by name.


def _wanted_columns(uri: str, names: Sequence[str], columns: Sequence[str]) -> list[str]:
    """The columns to read of a file that names them. Raises StageError if one is missing, or there twice."""
    if "title" not in names or not {"id", "_id"} & set(names):
        missing = "title" if "title" not in names else "id"
        raise StageError(f"The file {uri} does not name a column {missing!r}.", FORM)
    if absent := [name for name in columns if name not in names]:
        raise no_column(uri, absent[0])
    of_beir = ("_id", "text") if "_id" in names else ()
    wanted = [name for name in dict.fromkeys(("id", "title", *of_beir, *columns)) if name in names]
    for name in wanted:
        if names.count(name) > 1:
            raise StageError(
                f"The file {uri} has {names.count(name)} columns of the name {name!r}.",
                "Give each column a name of its own.",
            )
    return wanted


# Other columns, whose type is that of the whole column.


def column_of(uri: str, form: str, name: str, blocks: Sequence[DocumentsBlock]) -> pa.ChunkedArray:
    """A column by the values of all documents: text, whole numbers, numbers (if any is not whole), or booleans.

    Parquet names its type. Raises StageError for other values, and for a mixture of these.
    """
    if form == ".parquet":
        column = pa.chunked_array([block.more[name] for block in blocks])
        column = column.cast(_type_of_column(uri, name, column.type))
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            raise StageError(f"The column {name!r} of {uri} has text that is not UTF-8.", "Write it again.") from None
        return column
    values = [value for block in blocks for value in block.more[name]]
    if form == ".csv":
        values = cell_values(values)
    first = next((type(value) for value in values if value is not None), None)
    if first is None:
        raise no_column(uri, name)
    alike = (int, float) if first in (int, float) else (first,) if first in (str, bool) else ()
    is_other = [value is not None and (type(value) not in alike or _is_over_64_bits(value)) for value in values]
    if any(is_other):
        places = np.concatenate([block.places for block in blocks])
        [place] = named_places(uri, [int(places[is_other.index(True)])])
        raise StageError(
            f"The column {name!r} holds values of several types, lists or objects, or whole numbers of over 64 bits"
            f" (first at {place}).",
            "Write all its values as text, as numbers, or as true and false.",
        )
    if float in set(map(type, values)):
        return pa.chunked_array([pa.array([None if value is None else float(value) for value in values])])
    return pa.chunked_array([pa.array(values, {str: pa.string(), int: pa.int64(), bool: pa.bool_()}[first])])


def _is_over_64_bits(value: Any) -> bool:
    return type(value) is int and not -(2**63) <= value < 2**63


def _type_of_column(uri: str, name: str, kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if is_moment(kind) or kind in (pa.large_string(), pa.string_view()):
        return pa.string()
    if pa.types.is_decimal(kind):
        return pa.float64()
    if kind == pa.float16():  # which Arrow compares with nothing, and Python writes as no JSON
        return pa.float32()
    if kind == pa.string() or pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return kind
    raise StageError(
        f"The column {name!r} of {uri} has the type {kind}.", "Keep columns of text, numbers, dates or true and false."
    )


def finite(documents: pa.RecordBatch) -> pa.RecordBatch:
    """Documents with null in place of NaN and infinite numbers, which JSON does not know."""
    for at, field in enumerate(documents.schema):
        if pa.types.is_floating(field.type):
            column = documents[field.name]
            numbers = pc.if_else(pc.is_finite(column), column, pa.scalar(None, field.type))
            documents = documents.set_column(at, field.with_nullable(True), numbers)
    return documents
