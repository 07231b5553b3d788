"""Confidence intervals of means over queries, and significance of differences between two systems.

All of them resample queries, are exact functions of their seed, and process several measures at once (the columns) with
one resampling. Memory is constant: resamples are made in blocks.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

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
