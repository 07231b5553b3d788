"""What a classifier says against what is true: which classes it takes for which, and whether its probabilities hold."""

from typing import Any

import numpy as np

NUM_BINS = 10


def confusion(probability_QC: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """How many rows of each class (first) were said to be of each class (second), int64 [C, C]."""
    num_classes = probability_QC.shape[1]
    pairs = labels.astype(np.int64) * num_classes + probability_QC.argmax(axis=1)
    return np.bincount(pairs, minlength=num_classes**2).reshape(num_classes, num_classes)


def reliability(probability_QC: np.ndarray, labels: np.ndarray, num_bins: int = NUM_BINS) -> dict[str, Any]:
    """The probability of the class that was said against the share of rows where it was right, in bins of equal width.

    The most probable of C classes has at least 1/C, so the bins are those from 1/C to 1; each holds its lower edge, the
    last one both. `bins`: of each {"low", "high", "n", "said", "right"}, the mean probability and the share, None in an
    empty bin. `said`, `right`: of all rows. `calibration_error`: the mean over rows of their bin's |said - right| (the
    expected calibration error of Guo et al. 2017, eq. 3).
    """
    said, right = probability_QC.max(axis=1), probability_QC.argmax(axis=1) == labels
    edges = np.linspace(1 / probability_QC.shape[1], 1, num_bins + 1)
    place = np.clip(np.searchsorted(edges, said, side="right") - 1, 0, num_bins - 1)
    counts, sums, rights = (np.bincount(place, weights, num_bins) for weights in (None, said, right.astype(float)))
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
        "said": float(said.mean()),
        "right": float(right.mean()),
        "calibration_error": float(np.abs(sums - rights).sum() / len(said)),
    }
