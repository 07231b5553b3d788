import numpy as np

from clicktower.training.ranking.labelled_measures import histogram, histograms

VALUES = np.array([0.0, 0.5, 1.0, 1.0, 2.0])
LABELS = np.array([0, 0, 1, 0, 1])


def test_all_classes_share_the_bins_and_the_last_bin_holds_both_its_edges():
    # Class 0 has 0, 0.5 and 1, class 1 has 1 and 2; the bins are [0, 0.5), [0.5, 1), [1, 1.5), [1.5, 2].
    found = histogram(VALUES, LABELS, 3, num_bins=4)
    assert found["edges"] == [0, 0.5, 1, 1.5, 2]
    assert found["counts"] == [[1, 1, 1, 0], [0, 0, 1, 1], [0, 0, 0, 0]]


def test_what_is_minus_a_distance_is_shown_as_the_distance_with_its_thresholds():
    # A cut of -1.2 on the score is one of 1.2 on the distance; a class that is never said has no cut.
    scores = {"w2": -VALUES, "model": VALUES}
    found = histograms(scores, LABELS, 2, {"w2": [-1.5, -1.2], "model": [None, 0.7]}, ("w2",))
    assert (found["w2"]["cuts"], found["w2"]["distance"]) == ([1.2, 1.5], True)
    assert (found["model"]["cuts"], found["model"]["distance"]) == ([0.7], False)
    assert found["w2"]["edges"] == found["model"]["edges"]
    assert found["w2"]["counts"] == found["model"]["counts"]


def test_one_value_alone_has_bins_around_it():
    found = histogram(np.full(3, 2.0), np.zeros(3, int), 1, num_bins=2)
    assert found == {"edges": [1.5, 2.0, 2.5], "counts": [[0, 3]]}


def test_the_end_bins_take_in_the_hundredth_that_lies_beyond_each_end():
    # Of 200 values, 0 to 197 and two far ones, two at each end are set aside: the edges go from 2 to 197 by 39.
    # 0 to 40 are 41 values, then 39 and 39 and 39, and 158 to 197 are 40, with the two far ones 42.
    values = np.array([*range(198), 1000, 2000], float)
    found = histogram(values, np.zeros(200, int), 1, num_bins=5)
    assert found["edges"] == [2, 41, 80, 119, 158, 197]
    assert found["counts"] == [[41, 39, 39, 39, 42]]
