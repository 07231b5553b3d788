"""The documents that are searched, each with an id and a title.

The file is tab-separated text (`id TAB title`; a first line of these names is a header), CSV with a header, JSON lines
(`{"id": ..., "title": ...}`) or Parquet with the columns id and title; text may be compressed (.gz, .zst). BEIR's
corpus.jsonl (`_id`, `title`, `text`) is one too, and its text stands in for an empty title. All but tab-separated text
may have more columns, such as a price, which a release keeps on request.

Ids and titles are texts, read as they stand in the file, whatever the other rows hold; ids have the form that logs and
judgments have them in (identifiers.ids). A row that is no document is skipped, counted and named (UNFIT); if more than
half of them are, the file is refused.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pkgutil import resolve_name
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc

from clicktower.schemas import storage
from clicktower.schemas.document_rows import (
    FORM,
    UNFIT,
    DocumentsBlock,
    RowCounts,
    add_up_rows,
    kept_rows,
    no_column,
    parse_tabs,
)
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.search_log import not_null
from clicktower.schemas.text_contract import normalise_column

DOCUMENT = not_null(id=pa.string(), title=pa.string())
FORMS = (".tsv", ".txt", ".csv", ".jsonl", ".ndjson", ".json", ".parquet")
_JSON = (".jsonl", ".ndjson", ".json")
COMPRESSED = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd"}
_MAGICS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\x50\x2a\x4d\x18": "zstd"}
_MARK = b"\xef\xbb\xbf"  # of the order of bytes, before UTF-8
_HEADER = re.compile(rb"id\ttitle\r*\n", re.IGNORECASE)
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

    Raises UsageError (no file, unknown format) and StageError (an empty file).
    """
    form = _form_of(uri)
    size = storage.size_bytes(uri)
    if size is None:
        raise UsageError(f"There is no such file: {uri}.", "Check the path of the documents.")
    if not size:
        raise _empty(uri)
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
    first = file.read(4)
    file.seek(0)
    kind = next((kind for magic, kind in _MAGICS.items() if first.startswith(magic)), "")
    promised = next((named for ending, named in COMPRESSED.items() if uri.lower().endswith(ending)), kind)
    if promised != kind:
        raise StageError(
            f"{uri} is named like a {promised} file, and its first bytes are not those of one.",
            "Pack it as its name says, or change the name.",
        )
    return pa.CompressedInputStream(pa.PythonFile(file, mode="r"), kind) if kind else file


def parse_documents(
    uri: str, form: str, content: bytes, offset: int = 0, columns: Sequence[str] = ()
) -> DocumentsBlock:
    """The documents in some bytes of a file of text: whole lines, all of them for CSV. `offset`: the bytes before them.

    Raises StageError for another encoding, a JSON array, or a missing column.
    """
    if not offset:
        if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise StageError(f"The file {uri} is UTF-16.", "Convert it to UTF-8.")
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
