"""Document vectors in a quarter of the space: int8.arrow, with the recall that is left.

An Arrow IPC file with a row for each document, in the table's order: id, and vector as int8 [dimensions]. One scale for
all of them: vector ≈ scale * int8, where scale = the largest |component| / 127 and 0 is 0 (symmetric). Order needs no
scale: the integer dot product with a query rounded in the same way (by its own largest component) ranks as it is.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from flows.releases.release_table import Rows
from schemas import storage
from schemas.release import INT8_VECTORS
from training.ranking.retrieval import score_blocks

LEVELS = 127
_BATCH_ROWS = 65_536


def write_int8(folder: str, rows: Rows, queries_QD: np.ndarray, *, recall_at: int) -> dict[str, Any]:
    """What a release records of them: file, scale, and recall@`recall_at` of the integer search, measured here."""
    quantised_TD, scale = quantise(rows.vectors_TD)
    vector = pa.list_(pa.field("item", pa.int8(), nullable=False), quantised_TD.shape[1])
    schema = pa.schema(
        [pa.field("id", pa.string(), nullable=False), pa.field("vector", vector, nullable=False)],
        metadata={"scale": repr(scale)},
    )

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, len(rows), _BATCH_ROWS):
            part = slice(start, start + _BATCH_ROWS)
            flat = pa.array(quantised_TD[rows.text_of_N[part]].reshape(-1))
            vectors = pa.FixedSizeListArray.from_arrays(flat, type=vector)
            yield pa.record_batch([pa.array(rows.ids[part]), vectors], schema=schema)

    with storage.open_new(storage.join(folder, INT8_VECTORS)) as file, pa.ipc.new_file(file, schema) as writer:
        for batch in batches():
            writer.write_batch(batch)
    recall = int8_recall(rows, quantised_TD, queries_QD, recall_at)
    return {
        "file": INT8_VECTORS, "scale": scale, "recall": recall, "recall_at": recall_at, "num_queries": len(queries_QD)
    }  # fmt: skip


def quantise(vectors_TD: np.ndarray) -> tuple[np.ndarray, float]:
    """(int8 [vectors, dimensions], scale)."""
    scale = float(np.abs(vectors_TD).max() / LEVELS) or 1.0
    return np.rint(vectors_TD / np.float32(scale)).clip(-LEVELS, LEVELS).astype(np.int8), scale


def int8_recall(rows: Rows, quantised_TD: np.ndarray, queries_QD: np.ndarray, k: int) -> float:
    """The share of the exact k nearest that the integer dot product finds. Any as near as the k-th counts."""
    whole_TD = quantised_TD.astype(np.float32)  # sums of such products are whole numbers below 2^24: float32 is exact
    largest_Q1 = np.abs(queries_QD).max(axis=1, keepdims=True)
    whole_QD = np.rint(queries_QD / np.maximum(largest_Q1, 1e-30) * LEVELS).astype(np.float32)
    found = 0

    def exact(block: slice) -> np.ndarray:
        return (queries_QD[block] @ rows.vectors_TD.T)[:, rows.text_of_N]

    at = len(rows) - min(k, len(rows))
    for start, exact_BN in score_blocks(len(queries_QD), len(rows), exact):
        block = slice(start, start + len(exact_BN))
        limit_B1 = np.partition(exact_BN, at, axis=1)[:, at, None]
        whole_BN = (whole_QD[block] @ whole_TD.T)[:, rows.text_of_N]
        nearest_BK = np.argpartition(whole_BN, at, axis=1)[:, at:]
        found += int((np.take_along_axis(exact_BN, nearest_BK, axis=1) >= limit_B1 - 1e-5).sum())
    return found / (min(k, len(rows)) * len(queries_QD))
