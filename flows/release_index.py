"""The LanceDB table of a release: rows in, rows out, and an index that is kept only if its recall is measured good.

Vectors have length 1, so the dot product that LanceDB ranks by is the cosine; its distance is 1 - dot product.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import lancedb
import numpy as np
import pyarrow as pa
from lancedb.index import HnswFlat, IvfFlat
from lancedb.query import LanceVectorQueryBuilder
from lancedb.table import Table

from schemas.errors import StageError
from schemas.release import TABLE
from schemas.shard import LogicalDigest
from training.ranking.retrieval import score_blocks, top_k

IndexKind = Literal["none", "ivf-flat", "hnsw"]

_BATCH_ROWS = 8_192
# What is searched harder, step by step, until the recall is good enough: partitions read, or candidates kept.
_NUM_PROBES = (10, 20, 40, 80, 160, 320)
_CANDIDATES = (50, 100, 200, 400, 800)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Rows:
    """What the table holds: ids and titles, and the vector of each as a row of `vectors_TD` (float32, length 1)."""

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
    """A new table in a folder, read back: every id, title and vector is there, bit for bit.

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
        raise StageError(asked=f"the documents of {folder} were to be opened", found=_reason(error),
                         follows="nothing can be searched",
                         do="run `clicktower verify` on it, and publish again") from None  # fmt: skip


def rows_digest(batches: Iterator[pa.RecordBatch] | pa.RecordBatchReader) -> str:
    """A digest of (id, title, vector bits) of all rows, in any order."""
    digest = LogicalDigest()
    for batch in batches:
        vectors = np.asarray(batch["vector"].flatten()).reshape(batch.num_rows, -1)
        columns = zip(batch["id"].to_pylist(), batch["title"].to_pylist(), vectors, strict=True)
        digest.add(b"\0".join((i.encode(), title.encode(), vector.tobytes())) for i, title, vector in columns)
    return digest.hexdigest()


def nearest(table: Table, index: Mapping[str, Any], vector: np.ndarray, k: int) -> list[tuple[str, str, float]]:
    """(id, title, cosine) of the k nearest documents, best first, ties by descending id as in evaluation.

    `index` is what a release records: {"kind": ..., and the setting of the search}.
    """
    query = table.search(vector.astype(np.float32), vector_column_name="vector")
    assert isinstance(query, LanceVectorQueryBuilder)
    query = query.distance_type("dot").select(["id", "title", "_distance"]).limit(k)
    if index["kind"] == "ivf-flat":
        query = query.nprobes(index["num_probes"])
    elif index["kind"] == "hnsw":
        query = query.ef(max(index["num_candidates"], k))
    else:
        query = query.bypass_vector_index()
    found = query.to_arrow()
    cosines = (1 - found["_distance"].to_numpy()).tolist()
    hits = list(zip(found["id"].to_pylist(), found["title"].to_pylist(), cosines, strict=True))
    return sorted(hits, key=lambda hit: (hit[2], hit[0]), reverse=True)


def build_index(
    table: Table, rows: Rows, kind: IndexKind, queries_QD: np.ndarray, *, recall_at: int, min_recall: float
) -> dict[str, Any]:
    """How to search the table: the least effort whose recall against exact search reaches `min_recall`.

    If no effort does, the index is left aside and the search is exact; `note` then says so. The result's `recall` is
    measured on the given queries (unit vectors), through the same call that serves. Raises StageError if even the
    exact search misses, which means that the table is not what was written.
    """
    limits_Q = _kth_cosine(rows, queries_QD, recall_at)
    tried: list[dict[str, Any]] = []
    for setting in [*_make(table, kind, len(rows)), {"kind": "none"}]:
        recall = _recall(table, setting, rows, queries_QD, limits_Q, recall_at)
        tried.append({**setting, "recall": recall})
        if recall >= min_recall:
            break
    else:
        raise StageError(asked=f"recall@{recall_at} of the search was to be at least {min_recall}",
                         found=f"even exact search found only {tried[-1]['recall']:.3f} of the nearest documents",
                         follows="what is live stays as it is", do="check the disk, and publish again")  # fmt: skip
    chosen = {**tried[-1], "recall_at": recall_at, "min_recall": min_recall, "num_queries": len(queries_QD)}
    if kind != "none" and chosen["kind"] == "none":
        best = max(t["recall"] for t in tried[:-1])
        chosen["note"] = f"the {kind} index found at most {best:.3f} of the nearest: searches are exact, and slower"
    return {**chosen, "tried": tried}


def _make(table: Table, kind: IndexKind, num_rows: int) -> list[dict[str, Any]]:
    """Create the index; the settings to search it with, least effort first."""
    if kind == "none":
        return []
    num_partitions = max(1, round(num_rows**0.5))
    try:
        if kind == "ivf-flat":
            table.create_index("vector", config=IvfFlat(distance_type="dot", num_partitions=num_partitions))
        else:
            table.create_index("vector", config=HnswFlat(distance_type="dot", num_partitions=1))
    except (RuntimeError, OSError) as error:
        raise StageError(asked=f"a {kind} index over {num_rows:,} documents was to be made", found=_reason(error),
                         follows="what is live stays as it is", do="publish again, with index=none if it recurs"
                         ) from None  # fmt: skip
    if kind == "hnsw":
        return [{"kind": kind, "num_candidates": n} for n in _CANDIDATES]
    probes = sorted({min(n, num_partitions) for n in _NUM_PROBES})
    return [{"kind": kind, "num_partitions": num_partitions, "num_probes": n} for n in probes]


def _kth_cosine(rows: Rows, queries_QD: np.ndarray, k: int) -> np.ndarray:
    """The exact cosine of each query's k-th nearest document, float32 [queries]."""
    limits = []

    def score(block: slice) -> np.ndarray:
        return (queries_QD[block] @ rows.vectors_TD.T)[:, rows.text_of_N]

    for _, scores in score_blocks(len(queries_QD), len(rows), score):
        limits.append(top_k(scores, k)[1][:, -1])
    return np.concatenate(limits)


def _recall(
    table: Table, setting: Mapping[str, Any], rows: Rows, queries_QD: np.ndarray, limits_Q: np.ndarray, k: int
) -> float:
    """The share of the k nearest that a search returns. Any document as near as the k-th counts: titles repeat."""
    row_of = {document_id: row for row, document_id in enumerate(rows.ids)}
    wanted = min(k, len(rows))
    found = 0
    for query, limit in zip(queries_QD, limits_Q, strict=True):
        hits = [row_of[document_id] for document_id, _, _ in nearest(table, setting, query, k)]
        cosines = rows.vectors_TD[rows.text_of_N[hits]] @ query
        found += int((cosines >= limit - 1e-5).sum())  # two ways to add up a dot product differ by rounding
    return found / (wanted * len(queries_QD))


def _reason(error: BaseException) -> str:
    """The first sentence of LanceDB's message, without the place in its source."""
    return str(error).splitlines()[0].split(", /")[0][:200] if str(error) else type(error).__name__
