"""How a similarity lies in each class: counts in bins that all classes share (Deudon's histograms of W₂).

A score that is minus a distance is shown as the distance.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

NUM_BINS = 40
BEYOND = 0.01  # the share at each end that the end bins take in: a few odd rows would press all others together


def histograms(
    scores: Mapping[str, np.ndarray],
    labels: np.ndarray,
    num_classes: int,
    cuts: Mapping[str, Sequence[float | None]],
    distances: Sequence[str],
) -> dict[str, dict[str, Any]]:
    """The histogram of each similarity by its name, with the thresholds chosen for it.

    scores: float64 [rows] each. labels: int [rows]. cuts: on the scores; None for a class that is never said.
    distances: the names of those that are minus a distance.
    """
    found = {}
    for name, of_rows in scores.items():
        sign = -1.0 if name in distances else 1.0
        chosen = sorted(sign * cut for cut in cuts[name] if cut is not None)
        found[name] = {**histogram(sign * of_rows, labels, num_classes), "cuts": chosen, "distance": sign < 0}
    return found


def histogram(values: np.ndarray, labels: np.ndarray, num_classes: int, num_bins: int = NUM_BINS) -> dict[str, Any]:
    """`edges`, num_bins + 1 of them, and `counts` of each class [classes][num_bins], which hold every value.

    The edges go from the least value to the most when BEYOND of all values at each end are set aside; those are counted
    in the end bins. A bin holds its lower edge, the last one both. Where all values are the same the edges are half a
    unit around it.
    """
    aside = int(BEYOND * len(values))
    ordered = np.sort(values)
    low, high = ordered[aside], ordered[len(values) - 1 - aside]
    inside = np.clip(values, low, high)
    edges = np.histogram_bin_edges(inside, num_bins)
    counts = [np.histogram(inside[labels == k], edges)[0] for k in range(num_classes)]
    return {"edges": edges.tolist(), "counts": [of_class.tolist() for of_class in counts]}
