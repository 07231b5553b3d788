"""What benchmarks/claims.py measures, on queries worked by hand."""

from collections.abc import Collection

import numpy as np
import pytest

from benchmarks.claims import Claim, Judged, Read, interval, mean_of, mean_over, measure, topics_of, verdict
from tests.training.analysis.small_models import small_model


def text(cells: Collection[int] = (), words: str = "red oak door", keyword=(False, True, False)) -> Read:
    number = np.arange(len(words.split()), dtype=float)
    return Read(
        words=tuple(words.split()),
        has_count=number > 0,
        keyword=np.array(keyword),
        gate=number,
        moved=number,
        cells=frozenset(("left to right", cell) for cell in cells),
    )


def test_words_are_compared_within_a_query_and_the_first_is_left_out():
    one = text()
    assert one.contrast(np.array([9.0, 0.7, 0.4]), one.keyword) == pytest.approx(0.3)
    assert np.isnan(one.contrast(one.gate, np.array([True, False, False])))  # the only one has no count
    assert text(words="lamp for the hall", keyword=[False] * 4).function.tolist() == [False, True, True, False]


def test_topics_worked_by_hand():
    # Queries 0 and 1 share cell 1, 2 has cell 2, 3 none at all. 0 and 2 share a word and are no pair. Alike by 0.9
    # (0 and 1) against 0.3 (1 and 2).
    likeness = np.array([[1, 0.9, 0.8, 0.7], [0.9, 1, 0.3, 0.7], [0.8, 0.3, 1, 0.7], [0.7, 0.7, 0.7, 1]], np.float32)
    strangers = np.ones((4, 4), bool) ^ np.eye(4, dtype=bool)
    strangers[0, 2] = strangers[2, 0] = False
    statistic = topics_of(likeness, strangers, [[text({1}), text({1, 3}), text({2}), text()]])
    assert statistic(np.ones((1, 4))) == pytest.approx(0.6)
    assert statistic(np.array([[2.0, 1, 1, 5]])) == pytest.approx(0.6)  # a query drawn twice is no pair with itself
    # In a second seed cell 1 takes words of 0 and 2 alone, which are no pair, and 3 shares cell 4 with 1: 0.7 against
    # 0.9 (0, 1), 0.3 (1, 2), 0.7 (0, 3) and 0.7 (2, 3).
    both = topics_of(likeness, strangers, [
        [text({1}), text({1, 3}), text({2}), text()], [text({1}), text({4}), text({1}), text({4})],
    ])  # fmt: skip
    assert both(np.ones((1, 4))) == pytest.approx((0.6 + (0.7 - 2.6 / 4)) / 2)


def test_means_are_of_the_queries_that_have_a_value():
    claim = Claim("keywords", "something", "lstm")
    seeds = [{claim: np.array([0.2, np.nan, np.nan])}, {claim: np.array([0.4, 0.1, np.nan])}]
    values = mean_over(seeds)[claim]
    np.testing.assert_allclose(values, [0.3, 0.1, np.nan])
    assert mean_of(values)(np.array([[1.0, 1, 1], [3, 1, 0]])) == pytest.approx([0.2, 0.25])
    found = interval(mean_of(values), 3)
    assert (found["low"], found["mean"], found["high"]) == pytest.approx((0.0, 0.2, 0.3), abs=0.11)


def test_titles_are_alike_by_the_words_that_no_query_has():
    titles = {"a": "oak door brass knob", "b": "pine door brass knob", "c": "garden hose"}
    judged = Judged(["oak door", "pine door", "hose"], [{"a": 3, "c": 0}, {"b": 2, "a": 1}, {"c": 3}], titles)
    assert judged.bad == [["garden hose"], [], []]
    profiles = judged.profiles()
    np.testing.assert_allclose(profiles @ profiles.T, [[1, 1, 0], [1, 1, 0], [0, 0, 1]], atol=1e-6)
    assert judged.strangers().tolist() == [[False, False, True], [False, False, True], [True, True, False]]


@pytest.mark.parametrize(
    ("trained", "difference", "said"),
    [
        ((0.1, 0.2), (0.1, 0.2), "reproduced"),
        ((0.1, 0.2), (-0.1, 0.2), "cannot be told from before training"),
        ((-0.1, 0.2), (0.1, 0.2), "cannot be said"),
        ((-0.2, -0.1), (0.1, 0.2), "the opposite"),
    ],
)
def test_verdicts(trained, difference, said):
    trained, difference = (dict(zip(("low", "high"), of, strict=True)) for of in (trained, difference))
    assert verdict(trained, difference) == said


def test_a_model_that_was_not_trained_shows_nothing_that_training_taught():
    titles = {f"d{n}": title for n, title in enumerate(["oak door in brown", "red lamp for the hall", "garden hose"])}
    queries = ["brown oak door in oak", "lamp for a hall", "long garden hose"]
    grades = [{"d0": 3, "d2": 0}, {"d1": 2, "d0": 0}, {"d2": 3, "d1": 0}]
    models = {name: small_model(name, cells=12) for name in ("lstm", "rnn", "bilstm")}
    rows = measure(Judged(queries, grades, titles), [models])
    assert [row["claim"] for row in rows].count("attenuation") == 2 * 4  # the RNN has no gate
    known = [row for row in rows if row["n"] and not np.isnan(row["trained"]["mean"])]
    assert len(known) > 10
    for row in known:
        assert row["difference"]["mean"] == pytest.approx(0, abs=1e-6)
