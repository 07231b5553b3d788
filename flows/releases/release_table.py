"""The LanceDB table of a release: writing, reading, comparing rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import lancedb
import numpy as np
import pyarrow as pa
from lancedb.table import Table

from schemas.errors import StageError
from schemas.release import TABLE
from schemas.shard import LogicalDigest

_BATCH_ROWS = 8_192


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Rows:
    """The rows of the table: ids and titles, and the vector of each as a row of `vectors_TD` (float32)."""

    ids: Sequence[str]
    titles: Sequence[str]
    vectors_TD: np.ndarray
    text_of_N: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def schema(self) -> pa.Schema:
        vector = pa.list_(pa.field("item", pa.float32()), self.vectors_TD.shape[1])
        return pa.schema([
            pa.field("id", pa.string(), nullable=False),
            pa.field("title", pa.string(), nullable=False),
            pa.field("vector", vector, nullable=False),
        ])  # fmt: skip

    def batches(self) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(self), _BATCH_ROWS):
            part = slice(start, start + _BATCH_ROWS)
            flat = pa.array(self.vectors_TD[self.text_of_N[part]].reshape(-1))
            vectors = pa.FixedSizeListArray.from_arrays(flat, type=self.schema.field("vector").type)
            yield pa.record_batch([pa.array(self.ids[part]), pa.array(self.titles[part]), vectors], schema=self.schema)


def write_rows(folder: str, rows: Rows) -> Table:
    """Write a new table in a folder and read it back: every id, title and vector is there, bit for bit.

    Raises StageError where it could not be written or came back different.
    """
    asked = f"{len(rows):,} documents were to be written to a table in {folder}"
    try:
        reader = pa.RecordBatchReader.from_batches(rows.schema, rows.batches())
        lancedb.connect(folder).create_table(TABLE, data=reader, schema=rows.schema)
        table = open_table(folder)
        read_back = table.search().select(["id", "title", "vector"]).to_batches(_BATCH_ROWS)
        written, found = rows_digest(rows.batches()), rows_digest(read_back)
    except (RuntimeError, OSError) as error:  # LanceDB raises RuntimeError for a full disk too
        raise StageError(asked=asked, found=_reason(error), follows="what is live stays as it is",
                         do="make room or give a folder that can be written, and publish again") from None  # fmt: skip
    if written != found:
        raise StageError(asked=asked, found="they came back different from what was written",
                         follows="searches would rank by wrong vectors, so what is live stays as it is",
                         do="check the disk, and publish again")  # fmt: skip
    return table


def open_table(folder: str) -> Table:
    """The table of a release. Raises StageError where there is none or it cannot be opened."""
    try:
        return lancedb.connect(folder).open_table(TABLE)
    except (RuntimeError, OSError, ValueError) as error:
        raise _unreadable(folder, error) from None


def read_columns(folder: str) -> tuple[pa.Array, pa.Array, np.ndarray]:
    """(ids, titles, vectors) of all documents in the order they were written: string arrays, float32 [N, dimensions].

    Raises as `open_table`.
    """
    table = open_table(folder)
    try:
        found = table.to_arrow()
    except (RuntimeError, OSError, ValueError) as error:
        raise _unreadable(folder, error) from None
    vectors = [np.asarray(chunk.flatten()).reshape(len(chunk), -1) for chunk in found["vector"].chunks]
    ids, titles = (found[name].cast(pa.large_string()).combine_chunks() for name in ("id", "title"))
    return ids, titles, np.concatenate(vectors)


def rows_digest(batches: Iterator[pa.RecordBatch] | pa.RecordBatchReader) -> str:
    """A digest of (id, title, vector bits) of all rows, in any order."""
    digest = LogicalDigest()
    for batch in batches:
        vectors = np.asarray(batch["vector"].flatten()).reshape(batch.num_rows, -1)
        columns = zip(batch["id"].to_pylist(), batch["title"].to_pylist(), vectors, strict=True)
        digest.add(b"\0".join((i.encode(), title.encode(), vector.tobytes())) for i, title, vector in columns)
    return digest.hexdigest()


def _unreadable(folder: str, error: BaseException) -> StageError:
    return StageError(asked=f"the documents of {folder} were to be opened", found=_reason(error),
                      follows="nothing can be searched",
                      do="run `clicktower verify` on it, and publish again")  # fmt: skip


def _reason(error: BaseException) -> str:
    """The first sentence of LanceDB's message, without the place in its source."""
    return str(error).splitlines()[0].split(", /")[0][:200] if str(error) else type(error).__name__
