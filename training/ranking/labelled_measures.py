"""The value of a similarity on labelled pairs, for many resamples at once.

Each measure is a function of the weight of each pair, float64 [S, Q] -> float64 [S]: ones for the data themselves, the
draws of a bootstrap for an interval (ndcg). Ties count half, or share their ranks.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any

import numpy as np

Measure = Callable[[np.ndarray], np.ndarray]


def accuracy(is_right: np.ndarray) -> Measure:
    """The share of right answers. is_right: bool [Q]."""
    right = is_right.astype(np.float64)
    return lambda times_SQ: times_SQ @ right / times_SQ.sum(axis=1)


def area_under_roc(scores: np.ndarray, is_positive: np.ndarray) -> Measure:
    """The probability that a positive pair scores above another one, ties half: Mann and Whitney's U over its maximum.

    0.5 if a resample lacks one of the two.
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
    """The mean area over all ordered pairs of classes, of the first one's probability, where it is the label, above
    that of the other (Hand and Till 2001, eq. 7). For two classes: the area under ROC.
    """
    parts = []
    for first, second in permutations(range(probability_QC.shape[1]), 2):
        of_two = np.flatnonzero((labels == first) | (labels == second))
        if len(np.unique(labels[of_two])) == 2:
            parts.append((of_two, area_under_roc(probability_QC[of_two, first], labels[of_two] == first)))
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


NUM_CALIBRATION_BINS = 10


def reliability(probability_QC: np.ndarray, labels: np.ndarray, num_bins: int = NUM_CALIBRATION_BINS) -> dict[str, Any]:
    """The probability of the predicted class against the share of correct rows, in bins of equal width.

    The most probable of C classes has at least 1/C, so the bins are those from 1/C to 1; each holds its lower edge, the
    last one both. `bins`: of each {"low", "high", "n", "said", "right"}, the mean probability and the share, None in an
    empty bin. `said`, `right`: of all rows. `calibration_error`: the mean over rows of their bin's |said - right| (the
    expected calibration error of Guo et al. 2017, eq. 3).
    """
    confidence, right = probability_QC.max(axis=1), probability_QC.argmax(axis=1) == labels
    edges = np.linspace(1 / probability_QC.shape[1], 1, num_bins + 1)
    place = np.clip(np.searchsorted(edges, confidence, side="right") - 1, 0, num_bins - 1)
    counts, sums, rights = (
        np.bincount(place, weights, num_bins) for weights in (None, confidence, right.astype(float))
    )
    bins = [
        {
            "low": float(low),
            "high": float(high),
            "n": int(n),
            "said": float(of_said / n) if n else None,
            "right": float(of_right / n) if n else None,
        }
        for low, high, n, of_said, of_right in zip(edges[:-1], edges[1:], counts, sums, rights, strict=True)
    ]
    return {
        "bins": bins,
        "said": float(confidence.mean()),
        "right": float(right.mean()),
        "calibration_error": float(np.abs(sums - rights).sum() / len(confidence)),
    }


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Thresholds:
    """A similarity as a classifier: a score of at least `cuts[k]` means class `order[k + 1]` or a later one."""

    order: np.ndarray  # int64 [classes], from the least similar pairs to the most
    cuts: np.ndarray  # float64 [classes - 1], ascending; infinite where a class is never said

    def classes_of(self, scores: np.ndarray) -> np.ndarray:
        """The class of each score, int64."""
        return self.order[np.searchsorted(self.cuts, scores, side="right")]


def choose_thresholds(scores: np.ndarray, labels: np.ndarray, num_classes: int) -> Thresholds:
    """The cuts between classes with the most right answers, among all cuts; of several the lowest.

    Classes stand in the order of their mean score. Exact, by dynamic programming over the sorted scores: best_k[i], the
    most right answers when the first i scores have the first k classes, is the maximum over j <= i of best_{k-1}[j]
    plus the scores of class k among j..i. A class may have no score at all, so the majority's rate is the least.
    """
    counts = np.bincount(labels, minlength=num_classes)
    means = np.bincount(labels, scores, num_classes) / np.maximum(counts, 1)
    order = np.lexsort((np.arange(num_classes), means))
    sort = np.argsort(scores, kind="stable")
    sorted_scores, sorted_labels = scores[sort].astype(np.float64), labels[sort]
    # Cuts fall between different scores, before the first or after the last.
    ends = np.flatnonzero(np.diff(sorted_scores, prepend=-np.inf, append=np.inf) > 0)
    right = np.stack([np.concatenate([[0], np.cumsum(sorted_labels == k)])[ends] for k in order])

    best, came_from = right[0], []
    for row in right[1:]:
        gain = best - row
        highest = np.maximum.accumulate(gain)
        is_new = np.concatenate([[True], gain[1:] > highest[:-1]])
        came_from.append(np.maximum.accumulate(np.where(is_new, np.arange(len(gain)), 0)))
        best = highest + row
    at, cuts = len(ends) - 1, []
    for previous in reversed(came_from):
        at = previous[at]
        cuts.append(_midpoint(sorted_scores, ends[at]))
    return Thresholds(order=order, cuts=np.array(cuts[::-1], np.float64))


def _midpoint(sorted_scores: np.ndarray, place: int) -> float:
    if place == 0:
        return -np.inf
    if place == len(sorted_scores):
        return np.inf
    low, high = sorted_scores[place - 1 : place + 1]
    middle = low + (high - low) / 2
    return float(middle if middle > low else high)


NUM_HISTOGRAM_BINS = 40
BEYOND = 0.01  # the share at each end that the end bins include: a few odd rows would compress all others


def histograms(
    scores: Mapping[str, np.ndarray],
    labels: np.ndarray,
    num_classes: int,
    cuts: Mapping[str, Sequence[float | None]],
    distances: Sequence[str],
) -> dict[str, dict[str, Any]]:
    """The distribution of each similarity in each class, in bins that all classes share, with its thresholds.

    These are Deudon's histograms of W₂; a score that is minus a distance is shown as the distance.

    scores: float64 [rows] each. labels: int [rows]. cuts: on the scores; None for a class that is never predicted.
    distances: the names of those that are minus a distance.
    """
    drawn = {}
    for name, of_rows in scores.items():
        sign = -1.0 if name in distances else 1.0
        chosen = sorted(sign * cut for cut in cuts[name] if cut is not None)
        drawn[name] = {**histogram(sign * of_rows, labels, num_classes), "cuts": chosen, "distance": sign < 0}
    return drawn


def histogram(
    values: np.ndarray, labels: np.ndarray, num_classes: int, num_bins: int = NUM_HISTOGRAM_BINS
) -> dict[str, Any]:
    """`edges`, num_bins + 1 of them, and `counts` for each class [classes][num_bins], which cover every value.

    The edges span the values without the share BEYOND at each end, which counts in the end bins. A bin includes its
    lower edge, the last one both. If all values are equal, the edges are half a unit around them.
    """
    aside = int(BEYOND * len(values))
    ordered = np.sort(values)
    low, high = ordered[aside], ordered[len(values) - 1 - aside]
    inside = np.clip(values, low, high)
    edges = np.histogram_bin_edges(inside, num_bins)
    counts = [np.histogram(inside[labels == k], edges)[0] for k in range(num_classes)]
    return {"edges": edges.tolist(), "counts": [of_class.tolist() for of_class in counts]}
