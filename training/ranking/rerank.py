"""The nearest documents of a query, ordered by a second scorer's confidence. Free of torch.

A search compares one quick number per pair; a head above the tower (training.model.head) knows better what it was
trained for, such as whether two questions are duplicates, and says how sure it is.

Suffixes: K candidates, D dimensions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from clicktower.schemas.errors import StageError
from clicktower.schemas.release import Similarity
from clicktower.training.model.embedding import scores_one_by_one

# (query vectors [K, D], document vectors [K, D]) -> a number from 0 to 1 for each pair, float64 [K]
Confidence = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True, kw_only=True, slots=True)
class Reranked:
    at: int  # among the candidates
    id: str
    score: float  # its score in the search: the cosine, or minus the distance
    confidence: float


def rerank(
    query_D: np.ndarray,
    candidates_KD: np.ndarray,
    ids: Sequence[str],
    confidence: Confidence,
    *,
    similarity: Similarity = "euclidean",
) -> list[Reranked]:
    """The candidates, surest first; equally sure ones nearest first, and then by descending id as in a search.

    Raises StageError if a confidence is not a number from 0 to 1, ValueError if their number is wrong.
    """
    sure_K = np.asarray(confidence(np.broadcast_to(query_D, candidates_KD.shape), candidates_KD), np.float64)
    if sure_K.shape != (len(ids),):
        raise ValueError(f"{len(ids)} candidates were given {sure_K.shape} confidences")
    if not ((sure_K >= 0) & (sure_K <= 1)).all():
        raise StageError(
            "The confidence in a document is not a number from 0 to 1.",
            "Train again with a smaller step, and look at the curve of its loss.",
        )
    score_K = scores_one_by_one(similarity, candidates_KD, query_D)
    ranked = [
        Reranked(at=at, id=id_, score=score, confidence=sure)
        for at, (id_, score, sure) in enumerate(zip(ids, score_K.tolist(), sure_K.tolist(), strict=True))
    ]
    return sorted(ranked, key=lambda candidate: (candidate.confidence, candidate.score, candidate.id), reverse=True)
