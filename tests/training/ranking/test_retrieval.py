import numpy as np
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from training.ranking.measure import recall, reciprocal_rank, score_blocks, top_k

few_levels = st.sampled_from([-2.5, -1.0, -0.0, 0.0, 1e-30, 0.5, 3.0, np.inf, -np.inf])


@given(
    hnp.arrays(np.float32, st.tuples(st.integers(1, 4), st.integers(1, 12)), elements=few_levels),
    st.integers(1, 14),
    st.randoms(use_true_random=False),
)
def test_equals_sorting_by_score_and_then_by_tie_order(scores_BN, k, random):
    tie_order = list(range(scores_BN.shape[1]))
    random.shuffle(tie_order)
    rows_BK, found_BK = top_k(scores_BN, k, np.array(tie_order))
    for scores, rows, found in zip(scores_BN, rows_BK, found_BK, strict=True):
        expected = sorted(range(len(scores)), key=lambda row: (-scores[row], tie_order[row]))[:k]
        assert rows.tolist() == expected
        assert found.tolist() == scores[expected].tolist()


def test_a_score_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="not a number"):
        top_k(np.array([[1.0, np.nan]]), 1)


def test_blocks_cover_every_query_once_and_hold_a_bounded_number_of_scores():
    seen, sizes = [], []

    def score(block):
        sizes.append(block.stop - block.start)
        return np.arange(block.start, block.stop, dtype=float)[:, None]

    for start, scores in score_blocks(1000, 10_000, score):
        seen += [(start + i, value) for i, value in enumerate(scores[:, 0])]
    assert seen == [(i, float(i)) for i in range(1000)]
    assert max(sizes) * 10_000 <= 4_000_000


def test_recall_and_reciprocal_rank_equal_trec_eval():
    rng = np.random.default_rng(1)
    num_queries, num_documents, k = 200, 30, 10
    grades_QN = rng.choice([0, 1, 2, 3], (num_queries, num_documents), p=[0.91, 0.03, 0.03, 0.03])
    scores_QN = rng.integers(0, 5, (num_queries, num_documents)).astype(np.float32)
    ids = [f"d{i}" for i in range(num_documents)]
    descending = np.argsort(np.argsort(np.array(ids))[::-1])  # place of each id in descending order
    rows_QK, found_QK = top_k(scores_QN, k, descending)
    relevant_QK = np.take_along_axis(grades_QN, rows_QK, axis=1) > 0
    run = {
        f"q{q}": {ids[row]: float(score) for row, score in zip(rows, scores, strict=True)}
        for q, (rows, scores) in enumerate(zip(rows_QK, found_QK, strict=True))
    }
    qrels = {f"q{q}": dict(zip(ids, grades.tolist(), strict=True)) for q, grades in enumerate(grades_QN)}
    measured = pytrec_eval.RelevanceEvaluator(qrels, {"recall.10", "recip_rank"}).evaluate(run)
    expected = np.array([[m["recall_10"], m["recip_rank"]] for m in (measured[q] for q in qrels)])
    found = np.stack([recall(relevant_QK, (grades_QN > 0).sum(axis=1)), reciprocal_rank(relevant_QK)], axis=1)
    np.testing.assert_allclose(found, expected, atol=1e-12)
