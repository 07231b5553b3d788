import numpy as np
import pytest

from clicktower.training.evaluation.evaluate_labelled_stage import confusion
from clicktower.training.ranking.labelled_measures import reliability

FIRST = np.array([0.92, 0.39, 0.83, 0.37, 1.0])  # p of class 0: it says 0, 1, 0, 1, 0
PROBABILITY = np.stack([FIRST, 1 - FIRST], axis=1)
LABELS = np.array([0, 1, 1, 0, 0])  # right, right, wrong, wrong, right


def test_confusion_counts_what_each_class_was_said_to_be():
    # Of class 0: rows 0 and 4 said to be 0, row 3 to be 1. Of class 1: row 1 said to be 1, row 2 to be 0.
    assert confusion(PROBABILITY, LABELS) == [[2, 1], [1, 1]]
    of_three = np.array([[0.2, 0.3, 0.5], [0.1, 0.8, 0.1]])
    assert confusion(of_three, np.array([1, 1])) == [[0, 0, 0], [0, 1, 1], [0, 0, 0]]


def test_reliability_holds_what_was_said_against_what_was_right():
    # Of two classes the bins are [0.5, 0.55), [0.55, 0.6), ... [0.95, 1]. Said: 0.92, 0.61, 0.83, 0.63, 1.
    # Bin 2 [0.6, 0.65): 0.61 right, 0.63 wrong: said 0.62, right 1/2. Bin 6: 0.83 wrong. Bin 8: 0.92 right. Bin 9: 1.
    found = reliability(PROBABILITY, LABELS)
    assert [one["n"] for one in found["bins"]] == [0, 0, 2, 0, 0, 0, 1, 0, 1, 1]
    assert (found["bins"][2]["low"], found["bins"][2]["high"]) == pytest.approx((0.6, 0.65))
    assert (found["bins"][2]["said"], found["bins"][2]["right"]) == pytest.approx((0.62, 0.5))
    assert (found["bins"][6]["said"], found["bins"][6]["right"]) == pytest.approx((0.83, 0))
    assert (found["bins"][0]["said"], found["bins"][0]["right"]) == (None, None)
    # (2 x |0.62 - 0.5| + |0.83 - 0| + |0.92 - 1| + |1 - 1|) / 5 = (0.24 + 0.83 + 0.08) / 5 = 0.23
    assert found["calibration_error"] == pytest.approx(0.23)
    # (0.92 + 0.61 + 0.83 + 0.63 + 1) / 5 = 0.798; three of five are right.
    assert (found["said"], found["right"]) == pytest.approx((0.798, 0.6))


def test_a_probability_on_an_edge_counts_in_the_bin_that_begins_there():
    # Of four classes the bins begin at 0.25: 0.25 itself is in the first, 0.325 in the second, 1 in the last.
    sure = np.array([0.25, 0.325, 1.0])
    others = (1 - sure) / 3
    found = reliability(np.stack([sure, others, others, others], axis=1), np.zeros(3, int))
    assert [one["n"] for one in found["bins"]] == [1, 1, 0, 0, 0, 0, 0, 0, 0, 1]
