"""What searches are held against: the exact score of each query's k-th nearest document, and the share found."""

from collections.abc import Sequence

import numpy as np

from flows.releases.release_table import Rows
from schemas.similarity import Similarity
from training.ranking.measure import score_blocks, top_k
from training.ranking.similarity import keys_at_once, scores_one_by_one


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
