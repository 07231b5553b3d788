import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from clicktower.schemas.errors import StageError
from clicktower.training.ranking.ndcg import judged_pairs, ndcg, ndcg_of_judged

CUTOFFS = (1, 3, 10)


def test_hand_worked_exponential():
    # Ranked: c (grade 0), a (3), b (1); gains 0, 7, 1. Best order: 7, 1, 0.
    # DCG@1 = 0; DCG@3 = 0/1 + 7/log2(3) + 1/log2(4) = 4.416508 + 0.5 = 4.916508
    # best DCG@3 = 7/1 + 1/log2(3) + 0 = 7.630930; NDCG@3 = 0.644287
    found = ndcg({"q": {"a": 3, "b": 1, "c": 0}}, {"q": {"a": 2.0, "b": 1.0, "c": 3.0}})
    assert found[1] == 0.0
    assert found[3] == pytest.approx(0.644287, abs=1e-6)
    assert found[10] == found[3]


def test_hand_worked_linear_with_an_unjudged_document_on_top():
    # Ranked: x (unjudged), b (1), a (2): 0 + 1/log2(3) + 2/log2(4) = 1.630930; best: 2 + 1/log2(3) = 2.630930
    found = ndcg({"q": {"a": 2, "b": 1}}, {"q": {"x": 9.0, "a": 1.0, "b": 2.0}}, gain="linear")
    assert found[1] == 0.0
    assert found[3] == pytest.approx(1.630930 / 2.630930, abs=1e-6)


def test_equal_scores_are_ordered_by_descending_id_and_compared_in_32_bits():
    qrels = {"q": {"a": 1, "b": 0}}
    assert ndcg(qrels, {"q": {"a": 1.0, "b": 1.0}})[1] == 0.0  # b comes before a
    assert ndcg(qrels, {"q": {"a": 1.0 + 1e-9, "b": 1.0}})[1] == 0.0  # equal as 32-bit floats
    assert ndcg(qrels, {"q": {"a": 1.0 + 1e-6, "b": 1.0}})[1] == 1.0
    assert ndcg({"q": {"9": 0, "10": 1}}, {"q": {"9": 1.0, "10": 1.0}})[1] == 0.0  # as strings


def test_queries_without_results_or_relevant_documents_count_zero_and_stay():
    qrels = {"none returned": {"a": 3}, "none relevant": {"a": 0}, "fine": {"a": 1}, "all unjudged": {"a": 1}}
    run = {name: {"a": 1.0} for name in ("fine", "none relevant", "not in the qrels")}
    run["all unjudged"] = {"x": 1.0}
    found = ndcg(qrels, run)
    assert found[10].tolist() == [0.0, 0.0, 1.0, 0.0]


def test_a_run_without_any_result_scores_zero():
    assert ndcg({"q": {"a": 3}, "r": {"b": 1}}, {})[10].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("grade", [51, 1024])
def test_a_grade_whose_gain_no_float_holds_beside_others_is_refused(grade):
    qrels = {"q": {"a": grade, "b": 1}}
    with pytest.raises(StageError, match=f"A grade of {grade:,}"):
        ndcg(qrels, {"q": {"a": 1.0}})
    assert ndcg(qrels, {"q": {"a": 1.0}}, gain="linear")[1] == 1.0
    assert ndcg({"q": {"a": 50, "b": 1}}, {"q": {"b": 2.0, "a": 1.0}})[1] == 1 / (2**50 - 1)


def test_a_score_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="not a number"):
        ndcg({"q": {"a": 1}}, {"q": {"a": float("nan")}})


def random_judgments(seed: int, num_queries: int) -> tuple[dict, dict]:
    """Qrels and a run full of ties: few levels, some a hair apart, unjudged and absent documents, odd ids."""
    rng = np.random.default_rng(seed)
    names = np.array([f"{p}{i}" for i in range(40) for p in ("d", "D-", "é", "中", "😀", "ﬀ", "", "1")])
    qrels, run = {}, {}
    for query in range(num_queries):
        documents = rng.permutation(names)[: rng.integers(1, 30)].tolist()
        num_judged = int(rng.integers(1, len(documents) + 1))
        grades = rng.integers(-1 if query % 7 == 0 else 0, 4 if query % 11 else 1, num_judged)
        qrels[f"q{query}"] = dict(zip(documents[:num_judged], grades.tolist(), strict=True))
        levels = int(rng.integers(1, 6))
        hairs = rng.choice([0, 1e-9, 1e-7, 1e-5], len(documents))
        scores = rng.integers(0, levels, len(documents)) / 3 + hairs
        returned = rng.random(len(documents)) < 0.9
        run[f"q{query}"] = {d: s for d, s, r in zip(documents, scores.tolist(), returned, strict=True) if r}
    return qrels, run


@pytest.mark.slow
@pytest.mark.parametrize("gain", ["linear", "exponential"])
def test_equals_trec_eval_on_10_000_tie_heavy_queries(gain):
    qrels, run = random_judgments(7, 10_000)
    as_gains = {
        q: {d: (2 ** max(g, 0) - 1 if gain == "exponential" else g) for d, g in grades.items()}
        for q, grades in qrels.items()
    }
    measured = pytrec_eval.RelevanceEvaluator(as_gains, {"ndcg_cut.1,3,10"}).evaluate(run)
    expected = np.array([[measured.get(q, {}).get(f"ndcg_cut_{k}", 0.0) for k in CUTOFFS] for q in qrels])
    found = ndcg(qrels, run, CUTOFFS, gain)
    np.testing.assert_allclose(np.stack(list(found.values()), axis=1), expected, rtol=0, atol=1e-12)
    assert 0.2 < expected.mean() < 0.9  # the comparison is about real rankings


def test_scoring_judged_pairs_equals_scoring_a_run_of_them():
    qrels, _ = random_judgments(3, 300)
    judged = judged_pairs(qrels)
    scores = np.random.default_rng(0).integers(0, 4, len(judged)).astype(np.float32)
    run: dict = {q: {} for q in qrels}
    for query, document, score in zip(judged.query_of, judged.document_ids, scores, strict=True):
        run[judged.query_ids[query]][document] = float(score)
    found, expected = ndcg_of_judged(judged, scores), ndcg(qrels, run)
    for cutoff in CUTOFFS:
        np.testing.assert_array_equal(found[cutoff], expected[cutoff])


short_ids = st.text(min_size=1, max_size=3)
grades_of_a_query = st.dictionaries(short_ids, st.integers(0, 3), min_size=1, max_size=12)


@given(grades_of_a_query, st.sampled_from(["linear", "exponential"]))
def test_the_ideal_order_scores_one(grades, gain):
    found = ndcg({"q": grades}, {"q": {d: float(g) for d, g in grades.items()}}, gain=gain)
    assert found == {k: pytest.approx([1.0 if max(grades.values()) else 0.0]) for k in CUTOFFS}


@given(grades_of_a_query, st.randoms(use_true_random=False))
@settings(max_examples=200)
def test_moving_a_better_document_up_never_lowers_ndcg(grades, random):
    order = list(grades)
    random.shuffle(order)
    at = random.randrange(len(order))
    if at == 0 or grades[order[at]] < grades[order[at - 1]]:
        return
    moved = order.copy()
    moved[at - 1], moved[at] = moved[at], moved[at - 1]

    def value(documents):
        return np.array([*ndcg({"q": grades}, {"q": {d: -float(i) for i, d in enumerate(documents)}}).values()])

    assert (value(moved) >= value(order) - 1e-12).all()
