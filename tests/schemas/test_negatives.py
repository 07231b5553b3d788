import hashlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clicktower.schemas.errors import StageError
from clicktower.schemas.shard import ListedExclusions, draw, pair_keys

MASK = (1 << 64) - 1
MAX_RETRIES = 64  # shards that exist hold what they gave


def _reference_hash(state: int, number: int) -> int:
    """Splitmix64's finaliser in Python's own integers (Steele, Lea & Flood 2014, fig. 17, variant 13)."""
    mixed = ((state ^ number) + 0x9E3779B97F4A7C15) & MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK
    return mixed ^ (mixed >> 31)


def _reference_draw(key: int, excluded: list[int], pool_size: int, n: int, seed: int, epoch: int) -> list[int]:
    """One pair, one negative, one retry at a time."""
    drawn: list[int] = []
    for j in range(n):
        state = _reference_hash(_reference_hash(_reference_hash(key, seed), epoch), j)
        for retry in range(MAX_RETRIES):
            row = _reference_hash(state, retry) % pool_size
            if row not in excluded and row not in drawn:
                break
        else:
            left = [row for row in range(pool_size) if row not in excluded and row not in drawn]
            row = left[_reference_hash(state, MAX_RETRIES) % len(left)]
        drawn.append(row)
    return drawn


@st.composite
def _pairs(draw_):
    pool_size = draw_(st.integers(4, 40))
    n = draw_(st.integers(1, 4))
    pairs = draw_(
        st.lists(
            st.tuples(st.integers(0, MASK), st.sets(st.integers(0, pool_size - 1), max_size=pool_size - n)), max_size=12
        )
    )
    return pool_size, n, [(key, sorted(excluded)) for key, excluded in pairs]


def _draw(pairs, pool_size, **settings) -> list[list[int]]:
    keys = np.array([key for key, _ in pairs], np.uint64)
    distinct = sorted({tuple(rows) for _, rows in pairs})  # pairs of one query share their list
    exclusion = np.array([distinct.index(tuple(rows)) for _, rows in pairs], np.int32)
    return draw(keys, exclusion, _listed(map(list, distinct), pool_size), **settings).tolist()


def _listed(lists, pool_size: int) -> ListedExclusions:
    return ListedExclusions.of(pa.array(lists, pa.list_(pa.int32())), pool_size)


@settings(deadline=None)
@given(_pairs(), st.integers(0, 2**63 - 1), st.integers(0, 50))
def test_all_pairs_at_once_are_drawn_as_one_by_one(case, seed, epoch):
    pool_size, n, pairs = case
    drawn = _draw(pairs, pool_size=pool_size, n=n, seed=seed, epoch=epoch)
    assert drawn == [_reference_draw(key, excluded, pool_size, n, seed, epoch) for key, excluded in pairs]


@settings(deadline=None)
@given(_pairs())
def test_negatives_are_distinct_in_the_pool_and_never_excluded(case):
    pool_size, n, pairs = case
    for (_, excluded), rows in zip(pairs, _draw(pairs, pool_size=pool_size, n=n), strict=True):
        assert len(set(rows)) == n
        assert not set(rows) & set(excluded)
        assert all(0 <= row < pool_size for row in rows)


@settings(deadline=None)
@given(_pairs(), st.randoms())
def test_what_is_drawn_does_not_depend_on_the_other_pairs(case, random):
    pool_size, n, pairs = case
    together = _draw(pairs, pool_size=pool_size, n=n)
    order = list(range(len(pairs)))
    random.shuffle(order)
    cut = random.randint(0, len(order))
    apart = {}
    for part in (order[:cut], order[cut:]):
        apart.update(zip(part, _draw([pairs[i] for i in part], pool_size=pool_size, n=n), strict=True))
    assert [apart[i] for i in range(len(pairs))] == together


def test_a_sliced_column_draws_what_its_own_rows_say():
    excluded = [[at, at + 1, at + 2, at + 5] for at in range(6)] * 5 + [[0], []]
    lists = pa.array(excluded, pa.list_(pa.int32()))
    keys = np.arange(len(lists), dtype=np.uint64)
    whole = draw(keys, np.arange(32), ListedExclusions.of(lists, 12), n=3)
    assert (draw(keys[4:], np.arange(28), ListedExclusions.of(lists.slice(4), 12), n=3) == whole[4:]).all()
    assert ListedExclusions.of(lists.slice(30, 2), 12).num_allowed(np.arange(2)).tolist() == [11, 12]


def test_the_last_free_rows_are_found_when_all_but_n_are_excluded():
    # 2,000 rows, two free: a draw hits one with probability 1e-3, so 64 retries mostly fail and the rest is enumerated.
    pool_size, free = 2_000, {7, 1_993}
    excluded = [row for row in range(pool_size) if row not in free]
    drawn = _draw([(key, excluded) for key in range(8)], pool_size=pool_size, n=2)
    assert all({*rows} == free for rows in drawn)
    assert drawn == [_reference_draw(key, excluded, pool_size, 2, 0, 0) for key in range(8)]


def test_draws_are_uniform_over_the_allowed_rows():
    num_pairs, pool_size = 20_000, 50
    keys = pair_keys(map(str, range(num_pairs)), ["title"] * num_pairs)
    excluded, of_pair = _listed([[3, 10]], pool_size), np.zeros(num_pairs, np.int32)
    counts = np.bincount(draw(keys, of_pair, excluded, n=4).ravel(), minlength=pool_size)
    assert counts[3] == counts[10] == 0
    # 80,000 draws over 48 rows: 1,667 each, standard deviation 40; six of them on either side.
    assert (np.abs(counts[np.delete(np.arange(50), [3, 10])] - 80_000 / 48) < 240).all()
    assert (excluded.num_allowed(of_pair) == 48).all()


def test_seed_epoch_query_and_title_each_change_the_draw():
    none = (np.zeros(1, int), _listed([[]], 10**6))
    changed = [("q", "t", 0, 0), ("q", "t", 0, 1), ("q", "t", 1, 0), ("p", "t", 0, 0), ("q", "s", 0, 0)]
    rows = {
        tuple(draw(pair_keys([query], [title]), *none, n=4, seed=seed, epoch=epoch)[0])
        for query, title, seed, epoch in changed
    }
    assert len(rows) == len(changed)


def test_a_negative_seed_is_its_two_s_complement():
    pair = ([(1, [])],)
    assert _draw(*pair, pool_size=10**6, n=4, seed=-1) == _draw(*pair, pool_size=10**6, n=4, seed=MASK)


def test_the_draw_that_shards_already_hold_stays_the_same():
    """Values of the first release. A change of them makes every shard on disk contradict its recipe."""
    lists = [[], list(range(1, 1000))]
    keys, exclusion = pair_keys(["angle braket"], ["4 in. Angle Bracket"]), np.zeros(1, int)
    assert draw(keys, exclusion, _listed(lists, 1000), n=4).tolist() == [[423, 776, 988, 522]]
    assert draw(keys, exclusion + 1, _listed(lists, 1002), n=3, seed=7, epoch=3).tolist() == [[1000, 0, 1001]]


def test_pair_keys_are_blake2b_of_both_texts_and_do_not_run_together():
    digest = hashlib.blake2b("née\0tür".encode(), digest_size=8, person=b"pair").digest()
    assert pair_keys(["née"], ["tür"]).tolist() == [int.from_bytes(digest, "little")]
    assert pair_keys(["a b"], ["c"]) != pair_keys(["a"], ["b c"])


def test_too_few_rows_to_draw_from_is_an_error():
    with pytest.raises(StageError, match="1 of 2 pairs have fewer"):
        _draw([(1, [0, 1, 2]), (2, [])], pool_size=6, n=4)


def test_no_pairs_draw_nothing():
    assert draw(np.array([], np.uint64), np.array([], int), _listed([], 5), n=4).shape == (0, 4)
