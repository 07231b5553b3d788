import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from clicktower.training.ranking.labelled_measures import (
    accuracy,
    area_under_roc,
    choose_thresholds,
    mean_area_under_roc,
    spearman,
)

# Few different scores, so that there are many ties; each pair is drawn 0 to 3 times, as in a bootstrap.
PAIRS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(0, 3)), min_size=2, max_size=40)


def _columns(pairs):
    scores, labels, times = (np.array(column) for column in zip(*pairs, strict=True))
    return scores / 5, labels, times.astype(np.float64)


@given(PAIRS)
def test_area_under_roc_is_mann_and_whitney_s_u_of_the_pairs_as_often_as_they_were_drawn(pairs):
    scores, labels, times = _columns(pairs)
    found = area_under_roc(scores, labels == 1)(np.stack([times, np.ones(len(times))]))
    for value, weights in zip(found, (times, np.ones(len(times))), strict=True):
        drawn = np.repeat(np.arange(len(scores)), weights.astype(int))
        above, below = scores[drawn][labels[drawn] == 1], scores[drawn][labels[drawn] != 1]
        if len(above) and len(below):
            statistic = scipy.stats.mannwhitneyu(above, below, method="asymptotic").statistic
            assert value == pytest.approx(statistic / (len(above) * len(below)))
        else:
            assert value == 0.5


@given(PAIRS)
def test_spearman_is_scipy_s_on_the_pairs_as_often_as_they_were_drawn(pairs):
    scores, labels, times = _columns(pairs)
    (found,) = spearman(scores, labels.astype(np.float64))(times[None])
    drawn = np.repeat(np.arange(len(scores)), times.astype(int))
    if len(set(scores[drawn])) > 1 and len(set(labels[drawn])) > 1:
        assert found == pytest.approx(scipy.stats.spearmanr(scores[drawn], labels[drawn]).statistic)
    else:
        assert found == 0


def test_of_three_classes_the_area_is_the_mean_over_the_pairs_of_classes():
    # 0 below 1: 3 of 4 pairs right. 0 below 2: all 2. 1 below 2: 0.7 > 0.5 but not > 0.9: 1 of 2.
    scores, labels = np.array([0.1, 0.6, 0.5, 0.9, 0.7]), np.array([0, 0, 1, 1, 2])
    found = mean_area_under_roc(scores, labels, np.array([0, 1, 2]))(np.ones((1, 5)))
    assert found == pytest.approx([(3 / 4 + 1 + 1 / 2) / 3])


def test_accuracy_counts_each_pair_as_often_as_it_was_drawn():
    assert accuracy(np.array([True, False, True]))(np.array([[1.0, 1, 1], [2, 1, 0]])).tolist() == [2 / 3, 2 / 3]


def _most_right(scores, labels, order) -> int:
    """By trying every pair of cuts."""
    cuts = [-np.inf, *np.unique(scores), np.inf]
    return max(
        int((order[np.searchsorted([low, high], scores, side="right")] == labels).sum())
        for i, low in enumerate(cuts)
        for high in cuts[i:]
    )


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 2)), min_size=1, max_size=30))
def test_no_other_cuts_between_three_classes_have_more_right_answers(pairs):
    scores, labels = np.array([score for score, _ in pairs]) / 8, np.array([label for _, label in pairs])
    chosen = choose_thresholds(scores, labels, 3)
    assert (np.diff(chosen.cuts[np.isfinite(chosen.cuts)]) >= 0).all()
    right = int((chosen.classes_of(scores) == labels).sum())
    assert right == _most_right(scores, labels, chosen.order)
    assert right >= np.bincount(labels).max()


def test_the_cut_between_two_classes_is_half_way_between_their_scores():
    chosen = choose_thresholds(np.array([0.8, 0.2, 0.1, 0.6]), np.array([1, 0, 0, 1]), 2)
    assert (chosen.order.tolist(), chosen.cuts.tolist()) == ([0, 1], [0.4])
    assert chosen.classes_of(np.array([0.39, 0.41])).tolist() == [0, 1]
    less = choose_thresholds(np.array([0.8, 0.2]), np.array([0, 1]), 2)  # a distance, say: class 1 is the lower
    assert less.classes_of(np.array([0.9, 0.1])).tolist() == [0, 1]


def test_one_score_for_all_gives_the_majority():
    chosen = choose_thresholds(np.zeros(5), np.array([0, 1, 1, 2, 1]), 3)
    assert chosen.classes_of(np.zeros(3)).tolist() == [1, 1, 1]
