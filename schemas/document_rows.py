"""The rows of a documents file: tab-separated text, JSON lines, CSV and Parquet -> ids, titles and other columns.

Whether a row is a document depends on that row alone (UNFIT), so that a file read in parts has the same documents as
one read at once.
"""

import csv
import io
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import compress
from typing import IO, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from clicktower.schemas.errors import StageError
from clicktower.schemas.identifiers import MARKS_OF_NOTHING, ids

FORM = "Give UTF-8 `id<TAB>title` lines, or CSV (commas, a header), JSON lines or Parquet with id and title."
MAX_TEXT_BYTES = 1 << 20

# Why a row is no document: (what is said of such rows, what to do). The first reason of a row counts.
UNFIT = {
    "unreadable": (
        "of other bytes than UTF-8, with half a letter, with an open quote or without a JSON object",
        "Write these rows again, as UTF-8.",
    ),
    "other_columns": (
        "with more or fewer columns than id and title, or than the header",
        "Write tabs within titles as spaces; give more columns as CSV with a header or as JSON lines.",
    ),
    "without_id": ("without an id", "Give each document an id."),
    "unfit_id": (
        "with an id that is neither text nor a whole number, or holds a control character",
        "Write ids as text without line ends, tabs and other control characters.",
    ),
    "unfit_title": ("with a title that is not text", "Write each title as one text."),
    "too_long": (f"with an id or a title of more than {MAX_TEXT_BYTES:,} bytes", "Shorten these texts."),
}
CODES = {reason: code for code, reason in enumerate(UNFIT, start=1)}  # of a row; 0: it is a document
SHOWN_PLACES = 3

_CONTROLS = r"[\p{Cc}\x{2028}\x{2029}]"  # line ends, and what no reader of TREC's forms expects
_MOST_EXACT = 2.0**53  # a whole float beyond it has lost digits


@dataclass(frozen=True, kw_only=True, slots=True)
class RowCounts:
    """How many rows are documents, and how many are none, by reason (UNFIT), with the first places of each: the bytes
    before the line in the uncompressed file, or the rows before it in a Parquet file.
    """

    documents: int = 0
    unfit: Mapping[str, int] = field(default_factory=dict)
    places: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def skipped(self) -> int:
        return sum(self.unfit.values())


def add_up_rows(parts: Iterable[RowCounts]) -> RowCounts:
    """The rows of all parts of a file together."""
    documents, unfit, places = 0, Counter[str](), defaultdict[str, list[int]](list)
    for part in parts:
        documents += part.documents
        unfit.update(part.unfit)
        for reason, here in part.places.items():
            places[reason] += here
    first = {reason: tuple(sorted(here)[:SHOWN_PLACES]) for reason, here in places.items()}
    return RowCounts(documents=documents, unfit=dict(unfit), places=first)


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentsBlock:
    """The documents of some rows of a file. `more`: the values of other columns, a list or an array each."""

    table: pa.Table  # id, title; a title may be null
    places: np.ndarray  # of the documents, as in RowCounts
    rows: RowCounts
    more: Mapping[str, Any] = field(default_factory=dict)


def _block(
    ids_: pa.Array, titles: pa.Array, codes: np.ndarray, places: np.ndarray, more: Mapping[str, Any] | None = None
) -> DocumentsBlock:
    """The documents among some rows. `codes`: int8, why a row is none, as far as its form says so."""
    written = ids(ids_)
    length = pc.max_element_wise(pc.binary_length(written), pc.binary_length(titles))
    for reason, holds in (
        (
            "without_id",
            pc.or_(pc.is_null(written), pc.is_in(written, value_set=pa.array(MARKS_OF_NOTHING, pa.string()))),
        ),
        ("unfit_id", pc.match_substring_regex(written, _CONTROLS)),
        ("too_long", pc.greater(length, MAX_TEXT_BYTES)),
    ):
        codes[(codes == 0) & holds.fill_null(False).to_numpy(zero_copy_only=False)] = CODES[reason]
    table = pa.table({"id": written, "title": titles})
    fits, more = codes == 0, more or {}
    if fits.all():
        return DocumentsBlock(table=table, places=places, rows=RowCounts(documents=len(codes)), more=more)
    rows_of = {reason: np.flatnonzero(codes == code) for reason, code in CODES.items()}
    counts = RowCounts(
        documents=int(fits.sum()),
        unfit={reason: len(rows) for reason, rows in rows_of.items() if len(rows)},
        places={reason: tuple(places[rows[:SHOWN_PLACES]].tolist()) for reason, rows in rows_of.items() if len(rows)},
    )
    kept = kept_rows(more, fits)
    return DocumentsBlock(table=table.filter(pa.array(fits)), places=places[fits], rows=counts, more=kept)


def kept_rows(more: Mapping[str, Any], kept: np.ndarray) -> dict[str, Any]:
    """The values of other columns in some rows. `kept`: bool, one for each row."""
    return {
        name: list(compress(values, kept)) if isinstance(values, list) else values.filter(pa.array(kept))
        for name, values in more.items()
    }


def _decoded(column: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """(binary as text, null where it is not UTF-8; where that is)."""
    try:
        return column.cast(pa.string()), np.zeros(len(column), bool)
    except pa.ArrowInvalid:
        values = column.to_pylist()
        is_wrong = np.array([value is not None and not _is_utf8(value) for value in values], bool)
        right = [None if wrong else value for value, wrong in zip(values, is_wrong, strict=True)]
        return pa.array(right, pa.binary()).cast(pa.string()), is_wrong


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


# Tab-separated text: a title has no tab.


def parse_tabs(content: bytes, offset: int) -> DocumentsBlock:
    """The documents in lines of `id TAB title`. `offset`: the bytes of the file before them, here and below."""
    if not content.endswith(b"\n"):
        content += b"\n"
    data = np.frombuffer(content, np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    starts = np.append(0, ends[:-1] + 1)
    tabs = np.flatnonzero(data == ord("\t"))
    first = np.searchsorted(tabs, starts)
    num_tabs = np.searchsorted(tabs, ends) - first
    is_line = np.ones(len(ends), bool)
    may_be_blank = np.flatnonzero((num_tabs != 1) | (data[starts] <= ord(" "))).tolist()
    is_line[[row for row in may_be_blank if not content[starts[row] : ends[row]].strip()]] = False
    starts, ends, first, num_tabs = (each[is_line] for each in (starts, ends, first, num_tabs))
    tab = np.where(num_tabs > 0, np.append(tabs, len(data))[first], ends)
    # Bounds of id, tab, title and line end in turn: pieces that cover the bytes are a column without moving any byte.
    bounds = np.stack([starts, tab, np.minimum(tab + 1, ends), ends], axis=1).reshape(-1)
    num_pieces = max(0, len(bounds) - 1)
    pieces = pa.Array.from_buffers(pa.large_binary(), num_pieces, [None, pa.py_buffer(bounds), pa.py_buffer(content)])
    documents, wrong_ids = _decoded(pieces.take(pa.array(np.arange(0, num_pieces, 4))))
    titles, wrong_titles = _decoded(pieces.take(pa.array(np.arange(2, num_pieces, 4))))
    codes = np.where(num_tabs != 1, CODES["other_columns"], 0).astype(np.int8)
    codes[wrong_ids | wrong_titles] = CODES["unreadable"]
    return _block(documents, pc.utf8_rtrim(titles, "\r"), codes, starts + offset)


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
    decoded = map(msgspec.json.Decoder(row_type).decode, lines)
    while True:
        try:
            rows.extend(decoded)  # the lines before an error stay
        except (ValueError, RecursionError):  # of msgspec and of UTF-8
            values, reason = _row_in_full(lines[len(rows)], names)
            codes[len(rows)] = CODES.get(reason, 0)
            rows.append(row_type(*values))
        else:
            break
    values_of = {name: [getattr(row, f"field_{at}") for row in rows] for at, name in enumerate(names)}
    texts = {name: _texts(values_of[name]) for name in _FIELDS}
    more = {name: values_of[name] for name in columns}
    return _block(*_id_and_title(texts), codes, starts, more)


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
    is_utf8 = _is_utf8(content)
    lines = list(io.StringIO(content.decode(errors="surrogateescape"), newline="\n"))
    starts = np.append(0, np.flatnonzero(np.frombuffer(content, np.uint8) == ord("\n")) + 1) + offset
    records = ((at, cells) for at, cells in _records(lines) if cells is None or any(map(str.strip, cells)))
    _, header = next(records, (0, None))
    names = [name.strip() for name in header or ()]
    selection = _wanted_columns(uri, names, columns)
    places, codes, rows = list[int](), list[int](), list[list[str | None]]()
    nothing: list[str | None] = [None] * len(selection)
    at_of = [names.index(name) for name in selection]
    for at, cells in records:
        reason, values = "", nothing
        if cells is None:
            reason = "unreadable"
        elif len(cells) != len(names):
            reason = "other_columns"
        else:
            values = [cells[place] for place in at_of]
            if not is_utf8 and not all(_is_whole(cells[place]) for place in at_of):
                reason, values = "unreadable", nothing
        places.append(at)
        codes.append(CODES.get(reason, 0))
        rows.append(values)
    values_of = dict(zip(selection, map(list, zip(*rows, strict=True)), strict=True)) if rows else {}
    texts = {name: pa.array(values_of.get(name, []), pa.string()) for name in selection if name in _FIELDS}
    more = {name: values_of.get(name, []) for name in columns}
    return _block(*_id_and_title(texts), np.array(codes, np.int8), starts[np.array(places, np.int64)], more)


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


def open_parquet(uri: str, file: IO[bytes]) -> pyarrow.parquet.ParquetFile:
    """A Parquet file. Raises StageError if it is none."""
    try:
        return pyarrow.parquet.ParquetFile(file)
    except pa.ArrowInvalid as error:
        raise _not_of_form(uri, error) from None


def read_row_group(
    uri: str, rows: pyarrow.parquet.ParquetFile, number: int, columns: Sequence[str] = ()
) -> Iterator[DocumentsBlock]:
    """The documents of a row group. Raises StageError."""
    selection = _wanted_columns(uri, rows.schema_arrow.names, columns)
    try:
        table = rows.read_row_group(number, columns=selection)
    except (pa.ArrowException, OSError) as error:
        if getattr(error, "errno", None) is not None:
            raise
        raise _not_of_form(uri, error) from None
    first_row = sum(rows.metadata.row_group(earlier).num_rows for earlier in range(number))
    for batch in table.to_batches():
        codes = np.zeros(len(batch), np.int8)
        texts = {name: _text_column(name, batch[name], codes) for name in selection if name in _FIELDS}
        places = np.arange(first_row, first_row + len(batch))
        yield _block(*_id_and_title(texts), codes, places, {name: batch[name] for name in columns})
        first_row += len(batch)


def _text_column(name: str, column: pa.Array, codes: np.ndarray) -> pa.Array:
    """A column of ids or titles as text; rows whose value is none get their code."""
    is_id, kind = name in ("id", "_id"), column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_null(kind):
        return column.cast(pa.string())
    if _is_text(kind):
        texts, is_wrong = _decoded(column.cast(pa.large_binary()))
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
    """The columns to read of a file that names them. Raises StageError if one is missing."""
    if "title" not in names or not {"id", "_id"} & set(names):
        missing = "title" if "title" not in names else "id"
        raise StageError(f"The file {uri} does not name a column {missing!r}.", FORM)
    if absent := [name for name in columns if name not in names]:
        raise no_column(uri, absent[0])
    of_beir = ("_id", "text") if "_id" in names else ()
    return [name for name in dict.fromkeys(("id", "title", *of_beir, *columns)) if name in names]


def no_column(uri: str, name: str) -> StageError:
    return StageError(
        f"The file {uri} has no column {name!r}, or no value in it.",
        "Name columns of CSV, JSON lines or Parquet; tab-separated lines have id and title alone.",
    )
