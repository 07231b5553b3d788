"""The documents that are searched: an id and a title each.

Read from tab-separated text (`id TAB title`, no header), JSON lines (`{"id": ..., "title": ...}`) or Parquet with the
columns id and title; .gz is understood.
"""

import gzip
import io
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from schemas import storage
from schemas.errors import StageError, UsageError
from schemas.words import words

DOCUMENT = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("title", pa.string(), nullable=False)])
FORMS = (".tsv", ".txt", ".jsonl", ".ndjson", ".json", ".parquet")


@dataclass(frozen=True, kw_only=True, slots=True)
class Documents:
    """Documents with a title, in file order, and how many were left out because theirs has no word."""

    table: pa.Table  # DOCUMENT
    num_untitled: int

    def __len__(self) -> int:
        return self.table.num_rows

    @property
    def ids(self) -> list[str]:
        return self.table["id"].to_pylist()

    @property
    def titles(self) -> list[str]:
        return self.table["title"].to_pylist()


def read_documents(uri: str) -> Documents:
    """All documents of a file.

    Raises UsageError (no file, unknown form) and StageError (no title at all, an id twice, bytes of another form).
    """
    asked = f"documents were to be read from {uri}"
    table = _read_table(uri, asked)
    counted = pc.value_counts(table["id"])
    repeated = counted.filter(pc.greater(pc.struct_field(counted, "counts"), 1))
    if len(repeated):
        examples = ", ".join(row["values"] for row in repeated[:3].to_pylist())
        raise StageError(
            asked=asked,
            found=f"{len(repeated):,} ids occur more than once ({examples})",
            follows="a click could not be joined to one title",
            do="give each document an id of its own",
        )
    titled = pa.array([bool(words(title)) for title in table["title"].fill_null("").to_pylist()], pa.bool_())
    kept = table.filter(titled)
    if not kept.num_rows:
        raise StageError(
            asked=asked,
            found=f"none of its {table.num_rows:,} documents has a title",
            follows="a document without a word has no embedding",
            do="give a file of `id<TAB>title` lines, or JSON lines or Parquet with id and title",
        )
    return Documents(table=kept.cast(DOCUMENT), num_untitled=table.num_rows - kept.num_rows)


def _read_table(uri: str, asked: str) -> pa.Table:
    name = uri.removesuffix(".gz").lower()
    if not name.endswith(FORMS):
        raise UsageError(asked=asked, found="the ending of its name is unknown", do=f"use one of {', '.join(FORMS)}")
    try:
        content = storage.read_bytes(uri)
        if uri.endswith(".gz"):
            content = gzip.decompress(content)
    except FileNotFoundError:
        raise UsageError(asked=asked, found="there is no such file", do="check the path") from None
    except (EOFError, gzip.BadGzipFile):
        raise StageError(asked=asked, found="it is not a whole gzip file", do="copy it again") from None
    if not content.strip():
        raise StageError(asked=asked, found="the file is empty", do="give a file with at least one document")
    try:
        table = _parse(name, content)
        return table.select(["id", "title"]).cast(pa.schema([("id", pa.string()), ("title", pa.string())]))
    except (pa.ArrowInvalid, pa.ArrowKeyError, KeyError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0][:160]
        raise StageError(
            asked=asked,
            found=f"it is not of the form its name says ({reason})",
            do="give UTF-8 `id<TAB>title` lines, or JSON lines or Parquet with id and title",
        ) from None


def _parse(name: str, content: bytes) -> pa.Table:
    if name.endswith(".parquet"):
        return pyarrow.parquet.read_table(io.BytesIO(content), columns=["id", "title"])
    if name.endswith((".jsonl", ".ndjson", ".json")):
        return pyarrow.json.read_json(io.BytesIO(content))
    return pyarrow.csv.read_csv(
        io.BytesIO(content),
        read_options=pyarrow.csv.ReadOptions(column_names=["id", "title"]),
        parse_options=pyarrow.csv.ParseOptions(delimiter="\t", quote_char=False),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types={"id": pa.string(), "title": pa.string()}, strings_can_be_null=False
        ),
    )
