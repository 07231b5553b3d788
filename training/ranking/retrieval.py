"""Exact retrieval over a whole collection, and what it is worth: recall@k and reciprocal rank.

Suffixes: B queries of a block, Q all queries, N documents, K results of a query.
"""

from collections.abc import Callable, Iterator

import numpy as np

BLOCK_SCORES = 4_000_000  # scores held at once: 16 MB


def score_blocks(
    num_queries: int, num_documents: int, score: Callable[[slice], np.ndarray]
) -> Iterator[tuple[int, np.ndarray]]:
    """(first query, scores_BN) of consecutive blocks of queries against all documents, in constant memory."""
    block = max(1, BLOCK_SCORES // max(1, num_documents))
    for start in range(0, num_queries, block):
        yield start, score(slice(start, min(start + block, num_queries)))


def top_k(scores_BN: np.ndarray, k: int, tie_order: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(rows, scores) of the k best documents of each query, best first: int64 and float32 [B, min(k, N)].

    Equal scores are ordered by `tie_order` (a place of its own for each document, smaller first; the row if
    not given), also at the edge of the k best. Raises ValueError for a NaN.
    """
    scores_BN = np.ascontiguousarray(scores_BN, np.float32)
    num_documents = scores_BN.shape[1]
    place = np.arange(num_documents) if tie_order is None else np.asarray(tie_order)
    # One unsigned number that orders as (score, -place) does: the bits of a float sort like a sign and
    # magnitude.
    bits = (scores_BN + np.float32(0)).view(np.uint32)  # -0.0 becomes 0.0
    ascending = np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31)).astype(np.uint64)
    if np.isnan(scores_BN).any():
        raise ValueError("a score is not a number (NaN), so it has no place in a ranking")
    keys_BN = (ascending << np.uint64(32)) | (np.uint64(0xFFFFFFFF) - place.astype(np.uint64))
    k = min(k, num_documents)
    keys_BK = np.partition(keys_BN, num_documents - k, axis=1)[:, num_documents - k :]
    keys_BK = np.sort(keys_BK, axis=1)[:, ::-1]
    row_of_place = np.empty(num_documents, np.int64)
    row_of_place[place] = np.arange(num_documents)
    rows_BK = row_of_place[(np.uint64(0xFFFFFFFF) - (keys_BK & np.uint64(0xFFFFFFFF))).astype(np.int64)]
    return rows_BK, np.take_along_axis(scores_BN, rows_BK, axis=1)


def recall(relevant_QK: np.ndarray, num_relevant_Q: np.ndarray) -> np.ndarray:
    """The share of each query's relevant documents among its K results, float64 [Q]; 0 without any."""
    return relevant_QK.sum(axis=1) / np.maximum(num_relevant_Q, 1)


def reciprocal_rank(relevant_QK: np.ndarray) -> np.ndarray:
    """1 / rank of the first relevant result, float64 [Q]; 0 where none of the K results is relevant."""
    first = relevant_QK.argmax(axis=1)
    return np.where(relevant_QK.any(axis=1), 1.0 / (first + 1), 0.0)
