import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from clicktower.schemas.shard import ListedExclusions, draw
from clicktower.training.towers.text_table import Ragged, list_offsets
from clicktower.training.trainer.shard_data import ExcludedBy, all_pool_indices, n_of_pool, shared_pool
from tests.schemas.test_negatives import _reference_hash as reference_hash


def ragged(lists) -> Ragged:
    return Ragged(
        list_offsets(np.array([len(rows) for rows in lists])), np.array([r for rows in lists for r in rows], np.int32)
    )


def reference_pool(num_rows: int, size: int, seed: int, epoch: int, place: int) -> list[int]:
    """One row after the other, in Python's own integers."""
    state, rows, k = int.from_bytes(b"shared", "little"), [], 0
    for number in (seed, epoch, place):
        state = reference_hash(state, number)
    while len(rows) < min(size, num_rows):
        row = reference_hash(state, k) % num_rows
        rows += [row] * (row not in rows)
        k += 1
    return rows


@settings(deadline=None)
@given(
    num_rows=st.integers(1, 70),
    size=st.integers(1, 80),
    seed=st.integers(0, 2**63 - 1),
    epoch=st.integers(0, 50),
    place=st.integers(0, 10**7),
)
def test_a_pool_is_the_first_distinct_rows_of_its_keyed_hash(num_rows, size, seed, epoch, place):
    pool = shared_pool(num_rows, size, seed=seed, epoch=epoch, place=place)
    assert pool.tolist() == reference_pool(num_rows, size, seed, epoch, place)
    assert len(set(pool.tolist())) == len(pool) == min(size, num_rows)


def test_seed_epoch_and_place_each_change_the_pool():
    keys = [(1, 0, 0), (1, 0, 1), (1, 1, 0), (2, 0, 0), (0, 1, 0), (0, 0, 1)]
    pools = {tuple(shared_pool(10**6, 5, seed=s, epoch=e, place=p).tolist()) for s, e, p in keys}
    assert len(pools) == len(keys)


def test_pools_are_uniform_over_the_rows():
    # 2,000 pools of 20 of 100 rows: each row is in 400 of them, with variance 2,000 · 0.2 · 0.8 = 320. Σ (o - e)²/320,
    # times 99/100 because the counts of a pool add up to 20, is χ² of 99 degrees of freedom: within 58 and 155 in all
    # but one of a thousand cases, on either side.
    drawn = [shared_pool(100, 20, seed=7, epoch=0, place=place) for place in range(2_000)]
    counts = np.bincount(np.concatenate(drawn), minlength=100)
    assert 58 < ((counts - 400) ** 2).sum() / 320 * 0.99 < 155


def test_draws_from_a_pool_are_uniform_over_what_is_unclicked():
    # 4,000 pairs of a query draw 2 of the 30 - 6 = 24 rows: 1/12 of the pairs have a row, 333.3, with variance
    # 4,000 · 1/12 · 11/12 = 305.6. As above, χ² of 23 degrees of freedom: within 6.7 and 53 but for one in a thousand.
    clicked = [3, 4, 11, 17, 28, 29]
    exclusions = ExcludedBy.of(ragged([clicked])).among(np.arange(30), np.array([0]))
    keys = np.random.default_rng(5).integers(0, 2**63, 4_000).astype(np.uint64)
    places = n_of_pool(keys, np.zeros(4_000, int), exclusions, n=2, seed=1, epoch=0)
    counts = np.bincount(places.ravel(), minlength=30)
    assert not counts[clicked].any()
    assert 6.7 < ((np.delete(counts, clicked) - 4_000 / 12) ** 2).sum() / 305.6 * 23 / 24 < 53


@st.composite
def cases(draw_):
    """(rows of the build's pool, lists of clicked ones, rows of the shared pool, the list of each pair, n)"""
    num_rows = draw_(st.integers(1, 40))
    row = st.integers(0, num_rows - 1)
    lists = draw_(st.lists(st.sets(row).map(sorted), min_size=1, max_size=8))
    pool = draw_(st.lists(row, unique=True, min_size=1))
    of_pair = draw_(st.lists(st.integers(0, len(lists) - 1), min_size=1, max_size=8))
    return num_rows, lists, np.array(pool), np.array(of_pair), draw_(st.integers(1, 5))


@settings(deadline=None)
@given(cases(), st.integers(0, 5))
def test_nothing_clicked_is_a_negative_and_no_more_is_left_out_than_that(case, epoch):
    _, lists, pool, of_pair, n = case
    needed, at = np.unique(of_pair, return_inverse=True)
    exclusions = ExcludedBy.of(ragged(lists)).among(pool, needed)
    keys = np.arange(len(of_pair), dtype=np.uint64)
    drawn = n_of_pool(keys, at, exclusions, n=n, seed=1, epoch=epoch)
    everything = all_pool_indices(at, exclusions)
    for pair, places, all_places in zip(of_pair, drawn.tolist(), everything.tolist(), strict=True):
        unclicked = [place for place, row in enumerate(pool) if row not in lists[pair]]
        assert [place for place in all_places if place >= 0] == unclicked
        found = [place for place in places if place >= 0]
        assert set(found) <= set(unclicked)
        assert len(set(found)) == len(found) == min(n, len(unclicked))


@settings(deadline=None)
@given(cases())
def test_a_shared_pool_of_all_rows_gives_the_draw_of_independent_negatives(case):
    num_rows, lists, _, of_pair, n = case
    assume(num_rows >= n)
    lists = [rows[: num_rows - n] for rows in lists]
    keys = np.arange(len(of_pair), dtype=np.uint64)
    needed, at = np.unique(of_pair, return_inverse=True)
    exclusions = ExcludedBy.of(ragged(lists)).among(np.arange(num_rows), needed)
    listed = ListedExclusions.of(pa.array(lists, pa.list_(pa.int32())), num_rows)
    apart = draw(keys, of_pair, listed, n=n, seed=3, epoch=2)
    assert n_of_pool(keys, at, exclusions, n=n, seed=3, epoch=2).tolist() == apart.tolist()


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]])
def test_a_pairs_draw_does_not_depend_on_the_other_pairs(order):
    exclusions = ExcludedBy.of(ragged([[1, 2], [], [5]])).among(np.array([5, 1, 0, 7, 9]), np.arange(3))
    keys = np.array([10, 20, 30], np.uint64)
    together = n_of_pool(keys, np.arange(3), exclusions, n=2, seed=1, epoch=0)
    assert (n_of_pool(keys[order], np.array(order), exclusions, n=2, seed=1, epoch=0) == together[order]).all()
