"""What a similarity is worth on labelled pairs, of resamples many at once.

Each measure is a function of how often each pair counts, float64 [S, Q] -> float64 [S]: ones for the data themselves,
the draws of a bootstrap for an interval (training.ranking.significance). Ties count half, or share their ranks.
"""

from collections.abc import Callable
from itertools import combinations, permutations

import numpy as np

Measure = Callable[[np.ndarray], np.ndarray]


def accuracy(is_right: np.ndarray) -> Measure:
    """The share of right answers. is_right: bool [Q]."""
    right = is_right.astype(np.float64)
    return lambda times_SQ: times_SQ @ right / times_SQ.sum(axis=1)


def area_under_roc(scores: np.ndarray, is_positive: np.ndarray) -> Measure:
    """The probability that a positive pair scores above another one, ties half: Mann and Whitney's U over its maximum.

    0.5 where a resample lacks one of the two.
    """
    order, starts, _ = _tie_groups(scores)
    positive = is_positive[order].astype(np.float64)

    def measure(times_SQ: np.ndarray) -> np.ndarray:
        times = times_SQ[:, order]
        above = np.add.reduceat(times * positive, starts, axis=1)
        below = np.add.reduceat(times * (1 - positive), starts, axis=1)
        wins = (above * (np.cumsum(below, axis=1) - below / 2)).sum(axis=1)
        pairs = above.sum(axis=1) * below.sum(axis=1)
        return np.divide(wins, pairs, out=np.full(len(pairs), 0.5), where=pairs > 0)

    return measure


def mean_area_under_roc(scores: np.ndarray, labels: np.ndarray, order: np.ndarray) -> Measure:
    """The mean area over all pairs of classes, of the one later in `order` above the other (as Hand and Till 2001)."""
    parts = []
    for low, high in combinations(order.tolist(), 2):
        of_two = np.flatnonzero((labels == low) | (labels == high))
        if len(of_two):
            parts.append((of_two, area_under_roc(scores[of_two], labels[of_two] == high)))
    return lambda times_SQ: np.mean([measure(times_SQ[:, of_two]) for of_two, measure in parts], axis=0)


def area_of_probabilities(probability_QC: np.ndarray, labels: np.ndarray) -> Measure:
    """The mean area over all ordered pairs of classes, of the one's probability where it is the label above the other
    (Hand and Till 2001, eq. 7). Of two classes: the area under ROC."""
    parts = []
    for one, other in permutations(range(probability_QC.shape[1]), 2):
        of_two = np.flatnonzero((labels == one) | (labels == other))
        if len(np.unique(labels[of_two])) == 2:
            parts.append((of_two, area_under_roc(probability_QC[of_two, one], labels[of_two] == one)))
    if not parts:
        return lambda times_SQ: np.full(len(times_SQ), 0.5)
    return lambda times_SQ: np.mean([measure(times_SQ[:, of_two]) for of_two, measure in parts], axis=0)


def spearman(scores: np.ndarray, values: np.ndarray) -> Measure:
    """Spearman's rank correlation of scores and values; 0 where either is constant."""
    of_scores, of_values = _tie_groups(scores), _tie_groups(values)

    def measure(times_SQ: np.ndarray) -> np.ndarray:
        total = times_SQ.sum(axis=1, keepdims=True)
        x, y = (_ranks(times_SQ, groups) - (total + 1) / 2 for groups in (of_scores, of_values))
        weighed = times_SQ * x
        covariance = (weighed * y).sum(axis=1)
        spread = np.sqrt((weighed * x).sum(axis=1) * (times_SQ * y * y).sum(axis=1))
        return np.divide(covariance, spread, out=np.zeros(len(spread)), where=spread > 0)

    return measure


def _tie_groups(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(the order of the values, where each run of equal ones starts in it, the run of each value), int64."""
    order = np.argsort(values, kind="stable")
    starts = np.flatnonzero(np.diff(values[order].astype(np.float64), prepend=-np.inf))
    run = np.empty(len(values), np.int64)
    run[order] = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(values)))
    return order, starts, run


def _ranks(times_SQ: np.ndarray, groups: tuple[np.ndarray, np.ndarray, np.ndarray]) -> np.ndarray:
    """The mean rank of each value among all drawn, from 1, float64 [S, Q]."""
    order, starts, run = groups
    sizes = np.add.reduceat(times_SQ[:, order], starts, axis=1)
    return (np.cumsum(sizes, axis=1) - sizes + (sizes + 1) / 2)[:, run]
