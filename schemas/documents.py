"""The documents that are searched, each with an id and a title.

The file is tab-separated text (`id TAB title`, no header), JSON lines (`{"id": ..., "title": ...}`) or Parquet with the
columns id and title; text may be compressed (.gz). BEIR's corpus.jsonl (`_id`, `title`, `text`) is one too, and its
text stands in for an empty title. JSON lines and Parquet may have more columns, such as a price, which a release keeps
on request.
"""

import gzip
import io
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.search_log import not_null
from clicktower.schemas.text_contract import words

DOCUMENT = not_null(id=pa.string(), title=pa.string())
_FORM = "Give UTF-8 `id<TAB>title` lines, or JSON lines or Parquet with id and title."
FORMS = (".tsv", ".txt", ".jsonl", ".ndjson", ".json", ".parquet")


@dataclass(frozen=True, kw_only=True, slots=True)
class Documents:
    """Documents with a title, in file order, and the number skipped because their title has no word."""

    table: pa.Table  # DOCUMENT, then the requested columns
    num_untitled: int

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

    Raises UsageError (no file, unknown format) and StageError (no title at all, a repeated id, bytes in another
    format, a missing column or one of another type).
    """
    form = require_documents(uri)
    content = storage.read_bytes(uri)
    if uri.endswith(".gz"):
        try:
            content = gzip.decompress(content)
        except (EOFError, gzip.BadGzipFile, zlib.error):
            raise StageError(f"The file {uri} is not a whole gzip file.", "Copy it again.") from None
    if not content.strip():
        raise _empty(uri)
    table = parse_documents(uri, form, content, columns)
    if error := repeated_ids(uri, table["id"]):
        raise error
    titled = pa.array([bool(words(title)) for title in table["title"].fill_null("").to_pylist()], pa.bool_())
    kept = table.filter(titled)
    if not kept.num_rows:
        raise no_title(uri, table.num_rows)
    more = [pa.field(name, _type_of_column(uri, name, kept.schema.field(name).type)) for name in columns]
    return Documents(table=kept.cast(pa.schema([*DOCUMENT, *more])), num_untitled=table.num_rows - kept.num_rows)


def _type_of_column(uri: str, name: str, kind: pa.DataType) -> pa.DataType:
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_large_string(kind):
        return pa.string()
    if kind == pa.string() or pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return kind
    raise StageError(
        f"The column {name!r} of {uri} has the type {kind}.", "Keep columns of text, numbers, dates or true and false."
    )


def require_documents(uri: str) -> str:
    """The format of a documents file, by its extension: one of FORMS.

    Raises UsageError (no file, unknown format) and StageError (an empty file).
    """
    name = uri.removesuffix(".gz").lower()
    form = next((form for form in FORMS if name.endswith(form)), None)
    if form is None:
        raise UsageError(f"The ending of {uri} is unknown.", f"Use one of {', '.join(FORMS)}.")
    size = storage.size_bytes(uri)
    if size is None:
        raise UsageError(f"There is no such file: {uri}.", "Check the path of the documents.")
    if not size:
        raise _empty(uri)
    return form


def _empty(uri: str) -> StageError:
    return StageError(f"The file {uri} is empty.", "Give a file with at least one document.")


def parse_documents(uri: str, form: str, content: bytes, columns: Sequence[str] = ()) -> pa.Table:
    """The ids and titles in some bytes of a file: whole lines, or a whole Parquet file. A title may be null.

    Raises StageError if the bytes have another format, or lack one of the other `columns`.
    """
    try:
        table = _parse(form, content, columns)
        if absent := [name for name in columns if name not in table.column_names]:
            raise StageError(
                f"The file {uri} has no column {absent[0]!r}.",
                "Name columns of JSON lines or Parquet; tab-separated lines have id and title alone.",
            )
        documents = as_documents(table)
        for name in columns:
            documents = documents.append_column(name, table[name])
        return documents
    except (pa.ArrowInvalid, pa.ArrowKeyError, KeyError, UnicodeDecodeError) as error:
        raise not_of_form(uri, error) from None


def as_documents(table: pa.Table) -> pa.Table:
    """The columns id and title as text. Raises KeyError or ArrowInvalid if they are missing."""
    return table.select(["id", "title"]).cast(pa.schema([("id", pa.string()), ("title", pa.string())]))


def not_of_form(uri: str, error: Exception) -> StageError:
    reason = str(error).splitlines()[0][:160]
    return StageError(f"The file {uri} does not have the format that its name says ({reason}).", _FORM)


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
    return StageError(f"None of the {num_documents:,} documents of {uri} has a title.", _FORM)


def _beir_documents(corpus: pa.Table) -> pa.Table:
    titles = corpus["title"].cast(pa.string()).fill_null("")
    is_untitled = pc.equal(pc.utf8_trim_whitespace(titles), "")
    of_title = corpus.column_names.index("title")
    corpus = corpus.set_column(of_title, "title", pc.if_else(is_untitled, corpus["text"], titles))
    return corpus.append_column("id", corpus["_id"])


def _parse(form: str, content: bytes, columns: Sequence[str]) -> pa.Table:
    if form == ".parquet":
        return pyarrow.parquet.read_table(io.BytesIO(content), columns=["id", "title", *columns])
    if form in (".jsonl", ".ndjson", ".json"):
        table = pyarrow.json.read_json(io.BytesIO(content))
        return _beir_documents(table) if "_id" in table.column_names else table
    return pyarrow.csv.read_csv(
        io.BytesIO(content),
        read_options=pyarrow.csv.ReadOptions(column_names=["id", "title"]),
        parse_options=pyarrow.csv.ParseOptions(delimiter="\t", quote_char=False),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types={"id": pa.string(), "title": pa.string()}, strings_can_be_null=False
        ),
    )
