"""NDCG@k per query, equal to trec_eval's ndcg_cut (docs/model.md section 7); below it intervals and tests of means.

With the gains g_1, g_2, ... of the documents as ranked:

    DCG@k = sum over r = 1..k of g_r / log2(r + 1)
    NDCG@k = DCG@k of the ranking / DCG@k of all judged documents in their best order

The paper states neither gain nor discount; ours are the gain 2^grade - 1 (Burges), or the grade itself
(`gain="linear"`, Järvelin and Kekäläinen), and the discount above. The rules, all trec_eval's but the last:

- Equal scores are ordered by descending document id. Scores are compared as 32-bit floats, because trec_eval
  stores them so: two scores that differ only beyond that are equal.
- An unjudged document keeps its rank and gains nothing; so does one of a negative grade.
- A query without a relevant document has the value 0.
- A query without results has the value 0 and is never dropped (trec_eval does so with -c).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

import numpy as np

from clicktower.schemas.errors import StageError

Gain = Literal["exponential", "linear"]
CUTOFFS = (1, 3, 10)

# From 2^53 on 64-bit floats cannot represent all integers, and 2^1024 overflows.
MAX_EXPONENTIAL_GRADE = 50


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class JudgedPairs:
    """Qrels as flat arrays, one entry per judged pair, prepared once for many evaluations.

    query_of: int64, row of `query_ids`; ascending. tie_order: int64, smaller comes first among equal scores.
    """

    query_ids: Sequence[str]
    query_of: np.ndarray
    document_ids: Sequence[str]
    grades: np.ndarray  # int64
    tie_order: np.ndarray

    def __len__(self) -> int:
        return len(self.document_ids)


def judged_pairs(qrels: Mapping[str, Mapping[str, int]]) -> JudgedPairs:
    """The judged pairs of qrels, in their order."""
    document_ids = list(chain.from_iterable(qrels.values()))
    num_judged = [len(grades) for grades in qrels.values()]
    return JudgedPairs(
        query_ids=tuple(qrels),
        query_of=np.repeat(np.arange(len(qrels)), np.array(num_judged, np.int64)),
        document_ids=document_ids,
        grades=np.array([grade for grades in qrels.values() for grade in grades.values()], np.int64),
        tie_order=descending_order(document_ids),
    )


def ndcg_of_judged(
    judged: JudgedPairs, scores: np.ndarray, cutoffs: Sequence[int] = CUTOFFS, gain: Gain = "exponential"
) -> dict[int, np.ndarray]:
    """NDCG of the judged documents re-ranked by `scores`, one per pair: by cutoff, float64 [queries].

    Raises ValueError for a score that is not a number.
    """
    return _over_ideal(judged, judged, scores, cutoffs, gain)


def ndcg(
    qrels: Mapping[str, Mapping[str, int]],
    run: Mapping[str, Mapping[str, float]],
    cutoffs: Sequence[int] = CUTOFFS,
    gain: Gain = "exponential",
) -> dict[int, np.ndarray]:
    """NDCG of a run for the queries of the qrels alone: by cutoff, float64 [queries].

    Raises ValueError for a score that is not a number.
    """
    returned = judged_pairs({q: {d: grades.get(d, 0) for d in run.get(q, {})} for q, grades in qrels.items()})
    scores = np.array([score for query_id in qrels for score in run.get(query_id, {}).values()], np.float64)
    return _over_ideal(judged_pairs(qrels), returned, scores, cutoffs, gain)


def gains_of(grades: np.ndarray, gain: Gain) -> np.ndarray:
    """The gain of each grade, float64: 2^grade - 1 or the grade; none for a grade below 1.

    Raises StageError for a grade above MAX_EXPONENTIAL_GRADE where the gain is exponential.
    """
    positive = np.maximum(grades, 0).astype(np.float64)
    if gain == "exponential" and (highest := int(positive.max(initial=0))) > MAX_EXPONENTIAL_GRADE:
        raise StageError(
            f"A grade of {highest:,} has a gain of 2^grade - 1 that would make every other document's negligible;"
            f" grades go up to {MAX_EXPONENTIAL_GRADE}.",
            "Use a scale of fewer steps, or gain=linear.",
        )
    return np.exp2(positive) - 1 if gain == "exponential" else positive


def descending_order(document_ids: Sequence[str]) -> np.ndarray:
    """The rank of each id among the distinct ids in descending order, int64, which orders ties.

    Ids are compared by code points, which orders them as trec_eval's comparison of UTF-8 bytes does.
    """
    place = {document_id: at for at, document_id in enumerate(sorted(set(document_ids), reverse=True))}
    return np.fromiter((place[d] for d in document_ids), np.int64, len(document_ids))


def _over_ideal(
    judged: JudgedPairs, returned: JudgedPairs, scores: np.ndarray, cutoffs: Sequence[int], gain: Gain
) -> dict[int, np.ndarray]:
    """The DCG of the returned documents in the order of their scores, over the DCG of the ideal order."""
    if np.isnan(scores).any():
        raise ValueError("a score is not a number (NaN), so it has no place in a ranking")
    with np.errstate(over="ignore"):  # beyond the range of 32 bits is infinite in trec_eval too
        keys = (-scores.astype(np.float32), returned.tie_order)
    dcg_QK = _dcg_QK(returned, gains_of(returned.grades, gain), keys, cutoffs)
    ideal_gains = gains_of(judged.grades, gain)
    ideal_QK = _dcg_QK(judged, ideal_gains, (-ideal_gains,), cutoffs)
    values_QK = np.divide(dcg_QK, ideal_QK, out=np.zeros_like(dcg_QK), where=ideal_QK > 0)
    return dict(zip(cutoffs, values_QK.T, strict=True))


def _dcg_QK(pairs: JudgedPairs, gains: np.ndarray, keys: tuple[np.ndarray, ...], cutoffs: Sequence[int]) -> np.ndarray:
    """DCG@k of each query, its documents ordered by the first key ascending, then the next; float64."""
    num_queries = len(pairs.query_ids)
    by_query = np.lexsort((*reversed(keys), pairs.query_of))
    query_of, gains = pairs.query_of[by_query], gains[by_query]
    start = np.concatenate([[0], np.cumsum(np.bincount(query_of, minlength=num_queries))])
    rank = np.arange(1, len(query_of) + 1) - start[query_of]
    discounted = gains / np.log2(rank + 1)
    columns = [np.bincount(query_of, np.where(rank <= k, discounted, 0.0), num_queries) for k in cutoffs]
    return np.stack(columns, axis=1).astype(np.float64)  # sums over nothing are whole numbers


def measure_name(key: str) -> str:
    """ndcg@10 -> NDCG@10; collection_ndcg@10 -> NDCG@10, all documents."""
    name = key.removeprefix("collection_").replace("ndcg", "NDCG").replace("mrr", "MRR").replace("_", " ")
    name = name[0].upper() + name[1:] if name else key
    return f"{name}, all documents" if key.startswith("collection_") else name


# Confidence intervals of means over queries, and significance of differences between two systems.
#
# All of them resample queries, are exact functions of their seed, and process several measures at once (the columns)
# with one resampling. Memory is constant: resamples are made in blocks.

_BLOCK_CELLS = 2_000_000


def bootstrap_interval(
    values_QM: np.ndarray, *, confidence: float = 0.95, num_resamples: int = 10_000, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """(low, high) of the mean over queries of each measure, float64 [M]: percentile bootstrap.

    For an interval of a difference pass the per-query differences: that pairs the systems. Raises ValueError without
    queries.
    """
    values_QM = _columns(values_QM)
    num_queries = len(values_QM)
    means_RM = resample(
        lambda times_SQ: times_SQ @ values_QM / num_queries, num_queries, num_resamples=num_resamples, seed=seed
    )
    return percentiles(means_RM, confidence)


def resample(
    statistic: Callable[[np.ndarray], np.ndarray], num_queries: int, *, num_resamples: int, seed: int = 0
) -> np.ndarray:
    """A statistic in each bootstrap resample of the queries (or pairs), float64 [resamples, M].

    statistic: from how often each resample drew each query, float64 [S, Q], to M values of each, float64 [S, M].
    """
    draws = _draw(num_queries, num_resamples, num_queries, seed)
    return np.concatenate([statistic(_times_drawn(rows_SQ, num_queries)) for rows_SQ in draws])


def percentiles(values_RM: np.ndarray, confidence: float) -> tuple[np.ndarray, np.ndarray]:
    """(low, high) of each measure over the resamples, float64 [M]."""
    tail = (1 - confidence) / 2
    low, high = np.quantile(values_RM, [tail, 1 - tail], axis=0)
    return low, high


def randomisation_p(differences_QM: np.ndarray, *, num_resamples: int = 10_000, seed: int = 0) -> np.ndarray:
    """The two-sided p of each measure's mean difference, float64 [M]: paired randomisation test.

    If the two systems were alike, each query's difference might as well have the other sign. p is the share of random
    sign assignments whose mean is at least as far from zero, including the observed one, so it is never 0 (Smucker,
    Allan, Carterette, CIKM 2007). Raises ValueError without queries.
    """
    differences_QM = _columns(differences_QM)
    # Two sums of the same numbers in another order or sign count as equal although they round differently.
    reaches = np.abs(differences_QM.sum(axis=0)) - 1e-12 * np.abs(differences_QM).sum(axis=0)
    at_least = np.zeros(differences_QM.shape[1])
    for flipped_SQ in _draw(2, num_resamples, len(differences_QM), seed):
        sums = (1.0 - 2 * flipped_SQ) @ differences_QM
        at_least += (np.abs(sums) >= reaches).sum(axis=0)
    return (at_least + 1) / (num_resamples + 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """p values corrected for multiple testing (Holm 1979), which bounds the probability of any false rejection."""
    order = np.argsort(p_values, kind="stable")
    scaled = np.array(p_values, np.float64)[order] * np.arange(len(order), 0, -1)
    corrected = np.empty(len(order))
    corrected[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return corrected.tolist()


def _columns(values: np.ndarray) -> np.ndarray:
    values = np.asarray(values, np.float64)
    if not len(values):
        raise ValueError("no query, so nothing to resample")
    return values.reshape(len(values), -1)


def _draw(below: int, num_resamples: int, num_queries: int, seed: int) -> Iterator[np.ndarray]:
    """For each resample one whole number below `below` per query, int64 [S, Q], in blocks of S resamples."""
    rng = np.random.default_rng(seed)
    block = max(1, _BLOCK_CELLS // num_queries)
    for start in range(0, num_resamples, block):
        yield rng.integers(below, size=(min(block, num_resamples - start), num_queries))


def _times_drawn(rows_SQ: np.ndarray, num_queries: int) -> np.ndarray:
    """The count of each query in each resample, float64 [S, Q]: a product then sums all measures at once."""
    in_its_own_range = rows_SQ + np.arange(len(rows_SQ))[:, None] * num_queries
    drawn = np.bincount(in_its_own_range.ravel(), minlength=len(rows_SQ) * num_queries)
    return drawn.reshape(len(rows_SQ), num_queries).astype(np.float64)
