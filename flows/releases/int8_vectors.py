"""Document vectors in a quarter of the space: int8.arrow, with the recall that is left.

An Arrow IPC file with a row for each document, in the table's order: id, and vector as int8 [dimensions]. One scale for
all of them: vector ≈ scale * int8, where scale = the largest |component| / 127 and 0 is 0 (symmetric). Order needs no
scale: the integer dot product with a query rounded in the same way (by its own largest component) ranks as it is. Where
vectors are compared by distance, a query is rounded by the documents' scale, however large its components, and the sum
of squared differences ranks.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from flows.releases.release_table import Rows
from schemas import storage
from schemas.release import INT8_VECTORS
from schemas.similarity import Similarity
from training.ranking.embedding import half_squares, keys_at_once, scores_one_by_one
from training.ranking.measure import score_blocks, top_k

LEVELS = 127
_BATCH_ROWS = 65_536


def write_int8(
    folder: str, rows: Rows, queries_QD: np.ndarray, *, similarity: Similarity, recall_at: int
) -> dict[str, Any]:
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
    found = int8_recall(rows, quantised_TD, scale, queries_QD, recall_at, similarity)
    return {
        "file": INT8_VECTORS, "scale": scale, "recall": found, "recall_at": recall_at, "num_queries": len(queries_QD)
    }  # fmt: skip


def quantise(vectors_TD: np.ndarray) -> tuple[np.ndarray, float]:
    """(int8 [vectors, dimensions], scale)."""
    scale = float(np.abs(vectors_TD).max() / LEVELS) or 1.0
    return np.rint(vectors_TD / np.float32(scale)).clip(-LEVELS, LEVELS).astype(np.int8), scale


def int8_recall(
    rows: Rows, quantised_TD: np.ndarray, scale: float, queries_QD: np.ndarray, k: int, similarity: Similarity
) -> float:
    """The share of the exact k nearest that the integers find. Any as near as the k-th counts."""
    whole_TD = quantised_TD.astype(np.float32)  # sums of such products are whole numbers below 2^24: float32 is exact
    half_square_T = half_squares(whole_TD) if similarity == "euclidean" else np.float32(0)
    whole_QD, k, scores = _rounded(queries_QD, scale, similarity), min(k, len(rows)), []

    def keys(block: slice) -> np.ndarray:
        return (whole_QD[block] @ whole_TD.T - half_square_T)[:, rows.text_of_N]

    for start, key_BN in score_blocks(len(queries_QD), len(rows), keys):
        nearest_BK = np.argpartition(key_BN, len(rows) - k, axis=1)[:, len(rows) - k :]
        for query_D, nearest_K in zip(queries_QD[start : start + len(key_BN)], nearest_BK, strict=True):
            scores.append(scores_one_by_one(similarity, rows.vectors_TD[rows.text_of_N[nearest_K]], query_D))
    return recall(scores, kth_scores(rows, queries_QD, [k], similarity)[:, 0], k)


def _rounded(queries_QD: np.ndarray, scale: float, similarity: Similarity) -> np.ndarray:
    """Queries as whole numbers, float32 [queries, dimensions]."""
    if similarity == "euclidean":
        return np.rint(queries_QD / np.float32(scale))
    largest_Q1 = np.abs(queries_QD).max(axis=1, keepdims=True)
    return np.rint(queries_QD / np.maximum(largest_Q1, 1e-30) * LEVELS).astype(np.float32)


# What searches are held against: the exact score of each query's k-th nearest document, and the share found.


def kth_scores(rows: Rows, queries_QD: np.ndarray, depths: Sequence[int], similarity: Similarity) -> np.ndarray:
    """The exact score of each query's k-th nearest document, for each k of `depths`, float32 [queries, depths].

    All documents are compared at once, which rounds; the scores of the nearest are then computed as searches do it.
    """
    of_texts, limits = keys_at_once(similarity, rows.vectors_TD), []

    def keys(block: slice) -> np.ndarray:
        return of_texts(queries_QD[block])[:, rows.text_of_N]

    for start, key_BN in score_blocks(len(queries_QD), len(rows), keys):
        nearest_BK, _ = top_k(key_BN, max(depths))
        for query_D, nearest_K in zip(queries_QD[start : start + len(key_BN)], nearest_BK, strict=True):
            score_K = scores_one_by_one(similarity, rows.vectors_TD[rows.text_of_N[nearest_K]], query_D)
            limits.append(np.sort(score_K)[::-1][[depth - 1 for depth in depths]])
    return np.stack(limits)


def recall(scores: Sequence[np.ndarray], limits_Q: np.ndarray, k: int) -> float:
    """The share of the k nearest that searches found. Any document as near as the k-th counts: titles repeat."""
    found = [min(k, int((found >= limit).sum())) for found, limit in zip(scores, limits_Q, strict=True)]
    return sum(found) / (k * len(found))
