"""The documents that are searched, each with an id and a title.

The file is tab-separated text (`id TAB title`; a first line of these names is a header), CSV with a header, JSON lines
(`{"id": ..., "title": ...}`) or Parquet with the columns id and title; text may be compressed (.gz, .zst). BEIR's
corpus.jsonl (`_id`, `title`, `text`) is one too, and its text stands in for an empty title. All but tab-separated text
may have more columns, such as a price, which a release keeps on request.

Ids and titles are texts, read as they stand in the file, whatever the other rows hold; ids have the form that logs and
judgments have them in (text_contract.ids). A row that is no document is skipped, counted and named (UNFIT); if more
than half of them are, the file is refused.

Tab-separated text is read here, the other forms in document_forms. Whether a row is a document depends on that row
alone (UNFIT), so that a file read in parts has the same documents as one read at once.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import compress
from pkgutil import resolve_name
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.search_log import not_null
from clicktower.schemas.text_contract import MARKS_OF_NOTHING, ids, normalise_column
from clicktower.schemas.text_file import (
    COMPRESSED,
    GZIP,
    HEAD_BYTES,
    NOT_TEXT,
    PARQUET,
    RETURNS_FIX,
    ZSTD,
    ends_lines_by_returns,
    is_utf8,
    kind_of,
    other_encoding,
    require_promised,
    require_text,
)

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
        is_wrong = np.array([not is_utf8(value) for value in values], bool)
        right = [None if wrong else value for value, wrong in zip(values, is_wrong, strict=True)]
        return pa.array(right, pa.binary()).cast(pa.string()), is_wrong


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


DOCUMENT = not_null(id=pa.string(), title=pa.string())
FORMS = (".tsv", ".txt", ".csv", ".jsonl", ".ndjson", ".json", ".parquet")
_JSON = (".jsonl", ".ndjson", ".json")
_MARK = b"\xef\xbb\xbf"  # of the order of bytes, before UTF-8
_HEADER = re.compile(rb"id\ttitle\r*\n", re.IGNORECASE)
_FIXES = {**NOT_TEXT, PARQUET: "Give it a name that ends in .parquet."}
_BLOCK_BYTES = 32 << 20
_PIECE_BYTES = 8 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class UnfitRows:
    """The rows of a file that are no documents for one reason. `places`: the first of them, file:line or file:row."""

    reason: str
    count: int
    places: tuple[str, ...]

    @property
    def what(self) -> str:
        return f"{self.count:,} {'row' if self.count == 1 else 'rows'} {UNFIT[self.reason][0]}"

    @property
    def where(self) -> str:
        return ", ".join(self.places) + (", ..." if self.count > len(self.places) else "")

    @property
    def sentence(self) -> str:
        return f"The documents have {self.what}, skipped: {self.where}"

    @property
    def fix(self) -> str:
        return UNFIT[self.reason][1]


@dataclass(frozen=True, kw_only=True, slots=True)
class Documents:
    """Documents with a title, in file order, the number skipped because their title has no word, and the rows that are
    no documents.
    """

    table: pa.Table  # DOCUMENT, then the requested columns
    num_untitled: int
    unfit: tuple[UnfitRows, ...] = ()

    def __len__(self) -> int:
        return self.table.num_rows

    @property
    def ids(self) -> list[str]:
        return self.table["id"].to_pylist()

    @property
    def titles(self) -> list[str]:
        return self.table["title"].to_pylist()


def read_documents(uri: str, columns: Sequence[str] = ()) -> Documents:
    """All documents of a file. `columns`: those to read besides id and title: text, numbers, booleans, and dates as
    text.

    Raises UsageError (no file, unknown format) and StageError (no title at all, a repeated id, rows that are mostly no
    documents, bytes in another format, a missing column or one of another type).
    """
    form = require_documents(uri)
    blocks = list(document_blocks(uri, columns))
    rows = add_up_rows(block.rows for block in blocks)
    if error := mostly_unfit(uri, rows):
        raise error
    titled = [_with_title(block) for block in blocks]
    table = pa.concat_tables(block.table for block in titled)
    if not table.num_rows:
        raise no_title(uri, rows.documents)
    if error := repeated_ids(uri, table["id"]):
        raise error
    for name in columns:
        table = table.append_column(name, code_of_form("column_of")(uri, form, name, titled))
    more = [table.schema.field(name) for name in columns]
    return Documents(
        table=table.cast(pa.schema([*DOCUMENT, *more])),
        num_untitled=rows.documents - table.num_rows,
        unfit=unfit_rows(uri, rows),
    )


def _with_title(block: DocumentsBlock) -> DocumentsBlock:
    has_word = pc.not_equal(normalise_column(block.table["title"].fill_null("")), "")
    if pc.all(has_word).as_py():
        return block
    kept = has_word.to_numpy(zero_copy_only=False)
    more = kept_rows(block.more, kept)
    return replace(block, table=block.table.filter(has_word), places=block.places[kept], more=more)


def require_documents(uri: str) -> str:
    """The format of a documents file, by its extension: one of FORMS.

    Raises UsageError (no file, unknown format) and StageError (an empty file, or one that does not begin as text does).
    """
    form = _form_of(uri)
    size = storage.size_bytes(uri)
    if size is None:
        if storage.exists(uri):
            raise UsageError(f"{uri} is a folder or a pipe, and should be a file.", "Write the documents to one file.")
        raise UsageError(f"There is no such file: {uri}.", "Check the path of the documents.")
    if not size:
        raise _empty(uri)
    if form != ".parquet":
        with storage.open_read(uri) as file, suppress(OSError, pa.ArrowInvalid):  # whoever reads it all tells of damage
            _require_text(uri, _decompressed(uri, file).read(HEAD_BYTES))
    return form


def _form_of(uri: str) -> str:
    name = uri.lower()
    compression = next((ending for ending in COMPRESSED if name.endswith(ending)), "")
    form = next((form for form in FORMS if name.removesuffix(compression).endswith(form)), None)
    if form is None or (form == ".parquet" and compression):
        endings = f"Use one of {', '.join(FORMS)}; all but .parquet may be compressed ({', '.join(COMPRESSED)})."
        raise UsageError(f"The ending of {uri} is unknown.", endings)
    return form


def _empty(uri: str) -> StageError:
    return StageError(f"The file {uri} is empty.", "Give a file with at least one document.")


def code_of_form(name: str) -> Any:
    """A function of document_forms, which is loaded for forms other than tab-separated text, and for more columns."""
    return resolve_name(f"clicktower.schemas.document_forms:{name}")


def document_blocks(uri: str, columns: Sequence[str] = ()) -> Iterator[DocumentsBlock]:
    """The documents of a file in order, in blocks. Raises StageError as `read_documents` does."""
    form = _form_of(uri)
    if form == ".parquet":
        yield from code_of_form("parquet_blocks")(uri, columns)
        return
    with storage.open_read(uri) as file:
        try:
            content = _decompressed(uri, file).read()
        except (OSError, pa.ArrowInvalid) as error:
            if getattr(error, "errno", None) is not None:
                raise
            raise StageError(f"The file {uri} is not a whole compressed file.", "Copy it again.") from None
    start = 0
    while start < len(content):
        end = len(content) if form == ".csv" else content.find(b"\n", start + _BLOCK_BYTES) + 1 or len(content)
        yield parse_documents(uri, form, content[start:end], start, columns)
        start = end


def _decompressed(uri: str, file: IO[bytes]) -> Any:
    """The stream of a file's text; its first bytes say whether it is compressed."""
    kind = kind_of(file.read(HEAD_BYTES))
    file.seek(0)
    require_promised(uri, kind)
    return pa.CompressedInputStream(pa.PythonFile(file, mode="r"), kind) if kind in (GZIP, ZSTD) else file


def parse_documents(
    uri: str, form: str, content: bytes, offset: int = 0, columns: Sequence[str] = ()
) -> DocumentsBlock:
    """The documents in some bytes of a file of text: whole lines, all of them for CSV. `offset`: the bytes before them.

    Raises StageError for another encoding, a JSON array, or a missing column.
    """
    if not offset:
        _require_text(uri, content[:HEAD_BYTES])
        if ends_lines_by_returns(content):
            raise StageError(f"The file {uri} ends its lines in carriage returns alone.", RETURNS_FIX)
        if content.startswith(_MARK):
            content, offset = content[len(_MARK) :], len(_MARK)
        if form in _JSON and content[:100].lstrip().startswith(b"["):
            raise StageError(
                f"The file {uri} is one JSON array.", "Write one object a line, as `jq -c '.[]'` does of it."
            )
        if form in (".tsv", ".txt") and (header := _HEADER.match(content)):
            content, offset = content[header.end() :], offset + header.end()
    if form in _JSON:
        return code_of_form("parse_json")(content, offset, tuple(columns))
    if form == ".csv":
        return code_of_form("parse_csv")(uri, content, offset, columns)
    if columns:
        raise no_column(uri, columns[0])
    return parse_tabs(content, offset)


def _require_text(uri: str, start: bytes) -> None:
    """Raise StageError for a file that is no text by its first bytes, unpacked, or text in another encoding."""
    require_text(uri, start, _FIXES)
    if encoding := other_encoding(start):
        raise StageError(f"The file {uri} is {encoding.upper()}.", f"Convert it: iconv -f {encoding} -t utf-8.")


# What is wrong with a file.


def unfit_rows(uri: str, rows: RowCounts) -> tuple[UnfitRows, ...]:
    """The skipped rows of a file with their lines, which are counted up to the last place."""
    places = sorted({place for places in rows.places.values() for place in places})
    name_of = dict(zip(places, named_places(uri, places), strict=True))
    return tuple(
        UnfitRows(reason=reason, count=count, places=tuple(name_of[place] for place in rows.places[reason]))
        for reason, count in sorted(rows.unfit.items(), key=lambda item: (-item[1], list(UNFIT).index(item[0])))
    )


def skipped_rows(unfit: Sequence[UnfitRows]) -> dict[str, list[str]]:
    """The entry about skipped rows in the metrics of a stage; none without such rows."""
    return {"skipped_rows": [rows.sentence for rows in unfit]} if unfit else {}


def named_places(uri: str, places: Sequence[int]) -> list[str]:
    """file:line of ascending places, or file:row for Parquet. The file has no folder: results go to other people."""
    numbers = [place + 1 for place in places]
    if places and _form_of(uri) != ".parquet":
        with storage.open_read(uri) as file:
            stream, position, num_lines, numbers = _decompressed(uri, file), 0, 1, []
            for place in places:
                while position < place and (piece := stream.read(min(_PIECE_BYTES, place - position))):
                    position += len(piece)
                    num_lines += piece.count(b"\n")
                numbers.append(num_lines)
    name = uri.rpartition("/")[2]
    return [f"{name}:{number}" for number in numbers]


def mostly_unfit(uri: str, rows: RowCounts) -> StageError | None:
    """The error for a file without rows, or of which more than half are no documents."""
    if not rows.documents and not rows.skipped:
        return _empty(uri)
    if rows.skipped <= rows.documents:
        return None
    first, *further = unfit_rows(uri, rows)
    reasons = "".join(f", {each.what}" for each in further)
    return StageError(
        f"{rows.skipped:,} of the {rows.documents + rows.skipped:,} rows of {uri} are no documents: {first.what}"
        f" ({first.where}){reasons}.",
        first.fix,
    )


def repeated_ids(uri: str, ids: pa.ChunkedArray, *, is_all: bool = True) -> StageError | None:
    """The error for ids that occur more than once. `is_all`: these are the ids of the whole file."""
    counted = pc.value_counts(ids)
    repeated = counted.filter(pc.greater(pc.struct_field(counted, "counts"), 1))
    if not len(repeated):
        return None
    examples = ", ".join(row["values"] for row in repeated[:3].to_pylist())
    return StageError(
        f"{'' if is_all else 'At least '}{len(repeated):,} ids occur more than once in {uri} ({examples}).",
        "Give each document an id of its own.",
    )


def no_title(uri: str, num_documents: int) -> StageError:
    return StageError(f"None of the {num_documents:,} documents of {uri} has a title.", FORM)
