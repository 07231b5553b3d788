import math

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from clicktower.schemas.errors import StageError
from clicktower.training.evaluation.measured_row import measure_run
from clicktower.training.ranking.measure import RandomOrder, Rules, judged_collection, measure
from tests.training.ranking.test_measure import documents

TITLES = {f"d{i}": f"title {i}" for i in range(12)}
QUERIES = {"q1": "angle", "q2": "hose"}
QRELS = {"q1": {"d1": 3, "d2": 1, "d3": 0}, "q2": {"d2": 2}}


def collection(qrels=QRELS):
    return judged_collection(documents(TITLES), QUERIES, qrels)


def test_hand_worked():
    # q1 returns d9 (unjudged), d2, d1: over the collection DCG@10 = 1/log2(3) + 7/log2(4), of the judged ones
    # 1 + 7/log2(3); the best order has 7 + 1/log2(3) + 0. q2 returns nothing.
    found, notes = measure_run({"q1": {"d2": 2.0, "d9": 3.0, "d1": 1.0}, "other": {"d1": 1.0}}, collection())
    ideal = 7 + 1 / math.log2(3)
    assert found.per_query["ndcg@10"].tolist() == pytest.approx([(1 + 7 / math.log2(3)) / ideal, 0])
    assert found.per_query["collection_ndcg@10"].tolist() == pytest.approx([(1 / math.log2(3) + 3.5) / ideal, 0])
    assert found.per_query["collection_mrr@100"].tolist() == [0.5, 0]
    assert found.per_query["collection_recall@10"].tolist() == [1, 0]
    assert list(found.retrieved["q1"]) == ["d9", "d2", "d1"]
    assert found.judged == {"q1": {"d2": 2.0, "d1": 1.0}, "q2": {}}
    assert notes == [
        "1 judged queries have no results in the run: they count 0",
        "2 judged documents are not in the run: they have no rank and gain nothing",
        "1 queries of the run are not among the judged ones: they were not looked at",
    ]


def test_a_run_written_by_a_system_of_ours_is_worth_what_the_system_is():
    whole = collection()
    expected = measure(RandomOrder(list(TITLES)), whole, Rules(top_k=12))
    found, notes = measure_run(expected.retrieved, whole, Rules(top_k=12))
    assert not notes
    for name, values in expected.per_query.items():
        np.testing.assert_array_equal(found.per_query[name], values)


def test_documents_outside_the_collection_keep_their_places_and_are_counted():
    found, notes = measure_run({"q1": {"gone": 2.0, "d1": 1.0}, "q2": {"d2": 1.0}}, collection())
    assert found.per_query["collection_mrr@100"].tolist() == [0.5, 1]
    assert "1 results are outside the collection: they keep their places and their grades, as in trec_eval" in notes


def test_only_the_best_k_count_over_the_collection_and_all_among_the_judged():
    found, _ = measure_run({"q1": {"d9": 3.0, "d8": 2.0, "d1": 1.0}, "q2": {"d2": 1.0}}, collection(), Rules(top_k=2))
    assert list(found.retrieved["q1"]) == ["d9", "d8"]
    assert found.per_query["collection_recall@2"].tolist() == [0, 1]
    assert found.per_query["ndcg@1"].tolist() == [1, 1]


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(list(QUERIES)),
        st.dictionaries(st.sampled_from(list(TITLES)), st.sampled_from([-1.0, 0.0, 1.0, 1.0 + 1e-12, 2.0]), min_size=1),
        min_size=1,
    )
)
def test_the_collection_measures_equal_trec_eval(run):
    found, _ = measure_run(run, collection())
    # The exponential gain: trec_eval is handed the gains as grades.
    gains = {q: {d: 2**g - 1 for d, g in grades.items()} for q, grades in QRELS.items()}
    expected = pytrec_eval.RelevanceEvaluator(gains, {"ndcg_cut.10", "recall.10", "recip_rank"}).evaluate(run)
    for row, query_id in enumerate(QRELS):
        of_query = expected.get(query_id, {"ndcg_cut_10": 0, "recall_10": 0, "recip_rank": 0})
        assert found.per_query["collection_ndcg@10"][row] == pytest.approx(of_query["ndcg_cut_10"])
        assert found.per_query["collection_recall@10"][row] == pytest.approx(of_query["recall_10"])
        assert found.per_query["collection_mrr@100"][row] == pytest.approx(of_query["recip_rank"])


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_not_finite_is_refused(score):
    with pytest.raises(StageError, match="Give that result a finite score, or leave it"):
        measure_run({"q1": {"d1": score}}, collection())


@pytest.mark.parametrize("run", [{}, {"other": {"d1": 1.0}}, {"q1": {}}])
def test_a_run_of_other_queries_is_refused(run):
    with pytest.raises(StageError, match="Check that the run and the judgments have the"):
        measure_run(run, collection())
