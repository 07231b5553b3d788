"""The rows of a documents file -> ids, titles and other columns; those of tab-separated text (document_forms: others).

Whether a row is a document depends on that row alone (UNFIT), so that a file read in parts has the same documents as
one read at once.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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


def new_block(
    ids_: pa.Array, titles: pa.Array, codes: np.ndarray, places: np.ndarray, more: Mapping[str, Any] | None = None
) -> DocumentsBlock:
    """The documents among some rows. `codes`: int8, why a row is not a document, as far as its form says so."""
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


def decoded(column: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """(binary as text, null where it is not UTF-8; where that is)."""
    try:
        return column.cast(pa.string()), np.zeros(len(column), bool)
    except pa.ArrowInvalid:
        values = column.to_pylist()
        is_wrong = np.array([value is not None and not is_utf8(value) for value in values], bool)
        right = [None if wrong else value for value, wrong in zip(values, is_wrong, strict=True)]
        return pa.array(right, pa.binary()).cast(pa.string()), is_wrong


def is_utf8(value: bytes) -> bool:
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
    documents, wrong_ids = decoded(pieces.take(pa.array(np.arange(0, num_pieces, 4))))
    titles, wrong_titles = decoded(pieces.take(pa.array(np.arange(2, num_pieces, 4))))
    codes = np.where(num_tabs != 1, CODES["other_columns"], 0).astype(np.int8)
    codes[wrong_ids | wrong_titles] = CODES["unreadable"]
    return new_block(documents, pc.utf8_rtrim(titles, "\r"), codes, starts + offset)


def no_column(uri: str, name: str) -> StageError:
    return StageError(
        f"The file {uri} has no column {name!r}, or no value in it.",
        "Name columns of CSV, JSON lines or Parquet; tab-separated lines have id and title alone.",
    )
