import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clicktower.schemas.errors import StageError
from clicktower.training.ranking.hybrid import WEIGHTS, CrossFitted, Hybrid, cross_fit, query_half, scores_of_pairs
from clicktower.training.ranking.ndcg import judged_pairs, ndcg_of_judged


class Fixed:
    """A system with one row of scores for every query."""

    def __init__(self, *scores: float) -> None:
        self._scores = np.array(scores, np.float32)

    def scores(self, queries):
        return np.tile(self._scores, (len(queries), 1))


def test_scores_are_added_with_the_weight():
    # 0.5 + 0.1 * 4 = 0.9; 0.7 + 0.1 * 1 = 0.8; -0.2 + 0.1 * 0 = -0.2
    fitted = CrossFitted(of_half=(0.1, 0.1), seed=0)
    found = Hybrid(Fixed(0.5, 0.7, -0.2), Fixed(4, 1, 0), fitted).scores(["a", "b"])
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, [[0.9, 0.8, -0.2]] * 2, rtol=1e-6)


def test_each_query_uses_its_halfs_weight():
    fitted = CrossFitted(of_half=(1.0, 10.0), seed=3)
    queries = [f"query {i}" for i in range(20)]
    expected = [[1.0 if query_half(query, 3) == 0 else 10.0] for query in queries]
    assert {1.0, 10.0} == {row[0] for row in expected}
    assert Hybrid(Fixed(0), Fixed(1), fitted).scores(queries).tolist() == expected


# Each query has a good and a worse document. The first system is wrong by 0.1; the second is right by 1, so the order
# turns where weight * 1 > 0.1 (at 0.1 they tie, and the worse one has the later id, which comes first).
QRELS = {f"q{i}": {"good": 3, "worse": 0} for i in range(8)}
QUERIES = {query_id: f"text of {query_id}" for query_id in QRELS}


def pair_scores(good: float, worse: float) -> np.ndarray:
    return np.array([good, worse] * len(QRELS))


def test_hand_worked_weight():
    # NDCG@10 with the worse one first is 1/log2(3) = 0.63, otherwise 1; 0.15 is the smallest weight above 0.1.
    second, judged = pair_scores(2, 1), judged_pairs(QRELS)
    assert cross_fit(pair_scores(0.5, 0.6), second, judged, QUERIES).of_half == (0.15, 0.15)
    assert cross_fit(pair_scores(0.6, 0.5), second, judged, QUERIES).of_half == (0, 0)


def test_the_chosen_weight_is_the_best_of_all_on_the_other_half():
    rng = np.random.default_rng(0)
    judged = judged_pairs({f"q{i}": {f"d{j}": int(rng.integers(4)) for j in range(15)} for i in range(30)})
    queries = {query_id: f"text of {query_id}" for query_id in judged.query_ids}
    first, second = rng.uniform(-1, 1, len(judged)), rng.exponential(5, len(judged))
    chosen = cross_fit(first, second, judged, queries).of_half
    half_Q = np.array([query_half(queries[query_id], 0) for query_id in judged.query_ids])
    for half in (0, 1):
        values = {
            weight: ndcg_of_judged(judged, first + weight * second)[10][half_Q != half].mean() for weight in WEIGHTS
        }
        assert values[chosen[half]] == pytest.approx(max(values.values()), abs=1e-11)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_a_querys_weight_never_depends_on_the_judgments_of_its_half(seed):
    """Whatever the judgments of one half become, its weight stays: no query's figure was tuned on itself."""
    rng = np.random.default_rng(seed)
    qrels = {f"q{i}": {f"d{j}": int(rng.integers(4)) for j in range(6)} for i in range(12)}
    queries = {query_id: f"text {query_id}" for query_id in qrels}
    first, second = rng.uniform(-1, 1, 72), rng.exponential(5, 72)
    before = cross_fit(first, second, judged_pairs(qrels), queries)
    for half in (0, 1):
        changed = {
            query_id: {d: int(rng.integers(4)) for d in grades} if query_half(queries[query_id], 0) == half else grades
            for query_id, grades in qrels.items()
        }
        after = cross_fit(first, second, judged_pairs(changed), queries)
        assert after.of_half[half] == before.of_half[half]


def test_each_half_uses_the_weight_of_the_other():
    judged = judged_pairs(QRELS)
    halves = np.array([query_half(QUERIES[query_id], 0) for query_id in judged.query_ids])[judged.query_of]
    assert 0 < halves.mean() < 1
    # In half 0 the first system is right, so weight 0 is best there; in half 1 it is wrong.
    first = np.where(halves == 0, pair_scores(0.6, 0.5), pair_scores(0.5, 0.6))
    assert cross_fit(first, pair_scores(2, 1), judged, QUERIES).of_half == (0.15, 0.0)


def test_a_text_under_two_ids_or_in_another_case_is_in_one_half():
    for seed in range(20):
        assert query_half("Garden  HOSE", seed) == query_half("garden hose", seed)
    assert {query_half("garden hose", seed) for seed in range(20)} == {0, 1}


def test_one_query_alone_cannot_be_cross_fitted():
    judged = judged_pairs({"q0": {"good": 3, "worse": 0}})
    with pytest.raises(StageError, match="fall into one half"):
        cross_fit(np.array([1.0, 0]), np.array([0, 1.0]), judged, QUERIES)


def test_documents_that_a_run_lacks_come_last_whatever_the_weight():
    judged = judged_pairs({"q0": {"a": 0, "gone": 3, "b": 1}, "q1": {"a": 1}})
    found = scores_of_pairs({"q0": {"a": 0.5, "b": -1.0}}, judged)
    assert found.tolist() == [0.5, -np.inf, -1.0, -np.inf]
    second = scores_of_pairs({"q0": {"a": 0.0, "b": 20.0}}, judged)
    other = next(text for text in map(str, range(99)) if query_half(text, 0) != query_half("a text", 0))
    queries = {"q0": "a text", "q1": other}
    fitted = cross_fit(found, second, judged, queries)
    assert fitted.of(other) == 0.075  # chosen on q0: -1 + 20 w = 0.5, a tie, and the later id b comes first
