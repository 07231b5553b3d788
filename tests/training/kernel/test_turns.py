"""Documents in turns: no pair's loss waits for a document that has not come, or misses what a later pair adds to it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clicktower.training.trainer.kernel_path import TURN_TEXTS, Turns, turns_of


def apart(num_pairs: int, n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).permutation(num_pairs * (1 + n)).astype(np.int32).reshape(num_pairs, 1 + n)


def pool(num_pairs: int, n: int, num_clicked: int, size: int, seed: int) -> np.ndarray:
    """Clicked titles, each of a pair at least, after a pool of which pairs have some, or none in places."""
    rng = np.random.default_rng(seed)
    clicked = np.concatenate([np.arange(num_clicked), rng.integers(0, num_clicked, num_pairs - num_clicked)])
    negatives = np.where(rng.random((num_pairs, n)) < 0.2, -1, rng.integers(0, size, (num_pairs, n)))
    return np.concatenate([size + rng.permutation(clicked)[:, None], negatives], axis=1).astype(np.int32)


def require_whole(turns: Turns, given_BC: np.ndarray, num_documents: int) -> None:
    """The same pairs, and each has only shared documents and those of its own turn."""
    order = np.arange(len(given_BC)) if turns.pair_order is None else turns.pair_order
    assert sorted(order.tolist()) == list(range(len(given_BC)))
    place = np.arange(num_documents) if turns.place is None else turns.place
    np.testing.assert_array_equal(turns.candidates, np.where(given_BC < 0, -1, place[given_BC])[order])
    num_turns = -(-(num_documents - turns.num_shared) // turns.group) if turns.group else 0
    assert len(turns.pair_ends) == num_turns
    first_pair = 0
    for turn, end in enumerate(turns.pair_ends):
        own = turns.candidates[first_pair:end]
        own = own[own >= turns.num_shared]
        assert (((own - turns.num_shared) // turns.group) == turn).all()
        first_pair = end
    assert (turns.candidates[first_pair:] < turns.num_shared).all()


@settings(max_examples=60, deadline=None)
@given(num_pairs=st.integers(1, 200), n=st.integers(1, 9), seed=st.integers(0, 1000))
def test_pairs_that_share_nothing_take_turns_with_all_they_have(num_pairs, n, seed):
    candidates = apart(num_pairs, n, seed)
    turns = turns_of(candidates, candidates.size)
    require_whole(turns, candidates, candidates.size)
    assert turns.num_shared == 0
    assert turns.group <= TURN_TEXTS


@settings(max_examples=60, deadline=None)
@given(
    num_pairs=st.integers(1, 300), n=st.integers(1, 9), size=st.integers(1, 300), part=st.floats(0, 1),
    seed=st.integers(0, 1000),
)  # fmt: skip
def test_clicked_titles_take_turns_beside_a_shared_pool(num_pairs, n, size, part, seed):
    num_clicked = max(1, round(part * num_pairs))
    candidates = pool(num_pairs, n, num_clicked, size, seed)
    turns = turns_of(candidates, size + num_clicked)
    require_whole(turns, candidates, size + num_clicked)
    assert 0 < turns.group <= TURN_TEXTS
    assert turns.num_shared == size or turns.pair_order is None  # by chance nothing is shared


@pytest.mark.parametrize(
    "candidates",
    [
        [[0, 1], [2, 0]],  # one's clicked document is the other's negative
        [[0, 2], [1, 2]],  # shared ones stand last
        [[1, 0], [3, 0]],  # a document that nobody clicked stands among the clicked ones
    ],
)
def test_other_pairs_have_none(candidates):
    given_BC = np.array(candidates, np.int32)
    turns = turns_of(given_BC, 4)
    require_whole(turns, given_BC, 4)
    assert (turns.num_shared, turns.group) == (4, 0)


def test_more_candidates_than_a_turn_holds_are_no_turns():
    candidates = apart(3, TURN_TEXTS, 0)
    assert turns_of(candidates, candidates.size).group == 0
