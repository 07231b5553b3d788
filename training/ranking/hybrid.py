"""Two systems added up, by a weight that judged queries choose: a model and BM25, or two models.

    score(q, d) = first(q, d) + weight * second(q, d)

Nothing is scaled by the other documents or the other queries: a score depends on its own query and title alone. Of BM25
relative to a title equal to the query (bm25), a weight is the share l of title_ranking as l / (1 - l).

A weight is chosen by NDCG@10 of judged queries, and never on the queries on which it is evaluated: the queries are
split into two halves by a keyed hash of their text, and each half uses the weight that was best on the other
(`cross_fit`). The split is by text, so that a query with two ids in the judgments is in one half.

A second scorer's confidence may also order the nearest documents of a query. Free of torch.

A search compares one quick number per pair; a head above the tower (training.model.head) knows better what it was
trained for, such as whether two questions are duplicates, and says how sure it is.

Suffixes: K candidates, D dimensions.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from clicktower.schemas.errors import StageError
from clicktower.schemas.judgments import Run
from clicktower.schemas.release import Similarity
from clicktower.schemas.text_contract import keyed_digest, normalise
from clicktower.training.model.embedding import scores_one_by_one
from clicktower.training.ranking.measure import System
from clicktower.training.ranking.ndcg import Gain, JudgedPairs, ndcg_of_judged

WEIGHTS = (0.0, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)
_CUTOFF = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class CrossFitted:
    """Two weights: the queries of half 0 use `of_half[0]`, which was chosen on half 1."""

    of_half: tuple[float, float]
    seed: int

    def of(self, query: str) -> float:
        return self.of_half[query_half(query, self.seed)]


class Hybrid:
    """Scores of two systems over the same documents, added up."""

    def __init__(self, first: System, second: System, weights: CrossFitted) -> None:
        self._first, self._second, self._weights = first, second, weights

    def scores(self, queries: Sequence[str]) -> np.ndarray:
        """first + weight * second, float32 [queries, documents]."""
        weights_B = np.array([self._weights.of(query) for query in queries], np.float32)
        second_BN = self._second.scores(queries) * weights_B[:, None]
        return self._first.scores(queries) + second_BN


def cross_fit(
    first: np.ndarray,
    second: np.ndarray,
    judged: JudgedPairs,
    queries: Mapping[str, str],
    *,
    gain: Gain = "exponential",
    seed: int = 0,
    choices: Sequence[float] = WEIGHTS,
) -> CrossFitted:
    """For each half of the queries, the weight that is best on the other half. `queries`: the text of each id.

    Raises StageError if one half is empty.
    """
    half_Q = np.array([query_half(queries[query_id], seed) for query_id in judged.query_ids])
    if len(set(half_Q.tolist())) < 2:
        raise StageError(
            f"All {len(half_Q):,} judged queries fall into one half, so a weight cannot be chosen on the other.",
            "Judge more queries, or give judgments of other queries to choose it on.",
        )
    values_QW = ndcg_of_weights(first, second, judged, choices, gain)
    first_weight, second_weight = (choices[best_weight(values_QW[half_Q != half])] for half in (0, 1))
    return CrossFitted(of_half=(first_weight, second_weight), seed=seed)


def ndcg_of_weights(
    first: np.ndarray, second: np.ndarray, judged: JudgedPairs, weights: Sequence[float], gain: Gain = "exponential"
) -> np.ndarray:
    """NDCG@10 of first + weight * second, float64 [queries, weights]; a pair without a finite score comes last."""
    is_finite = np.isfinite(first) & np.isfinite(second)
    columns = []
    for weight in weights:
        scores = np.add(
            first, weight * np.where(is_finite, second, 0), out=np.full(len(judged), -np.inf), where=is_finite
        )
        columns.append(ndcg_of_judged(judged, scores, (_CUTOFF,), gain)[_CUTOFF])
    return np.stack(columns, axis=1)


def best_weight(values_QW: np.ndarray) -> int:
    """The weight with the highest mean; of equal ones the first. Means are rounded, so that the order of summation
    decides nothing.
    """
    return int(values_QW.mean(axis=0).round(12).argmax())


def query_half(query: str, seed: int) -> int:
    """The half of a query, 0 or 1: a function of its normalised text and the seed."""
    return keyed_digest(normalise(query), seed, b"hybrid half", 1)[0] & 1


def scores_of_pairs(run: Run, judged: JudgedPairs) -> np.ndarray:
    """A run's score of each judged pair, float64; -inf for a document that it lacks, which therefore comes last."""
    query_ids = (judged.query_ids[row] for row in judged.query_of)
    pairs = zip(query_ids, judged.document_ids, strict=True)
    return np.array([run.get(query_id, {}).get(document_id, -np.inf) for query_id, document_id in pairs])


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
