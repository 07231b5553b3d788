import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from clicktower.training.ranking.measure import score_blocks, top_k

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
