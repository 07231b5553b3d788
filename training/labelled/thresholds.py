"""A similarity as a classifier: thresholds between classes, chosen on training pairs."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Thresholds:
    """A score of at least `cuts[k]` is of class `order[k + 1]` or a later one."""

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
        cuts.append(_between(sorted_scores, ends[at]))
    return Thresholds(order=order, cuts=np.array(cuts[::-1], np.float64))


def _between(sorted_scores: np.ndarray, place: int) -> float:
    if place == 0:
        return -np.inf
    if place == len(sorted_scores):
        return np.inf
    low, high = sorted_scores[place - 1 : place + 1]
    middle = low + (high - low) / 2
    return float(middle if middle > low else high)
