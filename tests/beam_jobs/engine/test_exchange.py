"""The exchange: where a key goes is fixed for ever, and regrouping neither loses, repeats nor parts rows."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clicktower.beam_jobs.engine.arrow_files import from_ipc, to_ipc
from clicktower.beam_jobs.engine.exchange import bucket_of, num_buckets_for, split_by_bucket

KEYS = st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=12), max_size=60)


def test_buckets_are_the_same_for_ever():
    # zlib.crc32 of the UTF-8 bytes, mixed by splitmix64; a change here would part a query's rows of two releases
    assert bucket_of(pa.array(["", "angle bracket", "电钻", None]), 1 << 14).tolist() == [3503, 15123, 13238, 3503]
    assert bucket_of(pa.array([0, 1, 2**64 - 1], pa.uint64()), 1 << 14).tolist() == [3503, 7361, 11296]


def test_splitmix64_matches_its_published_first_outputs():
    # Steele, Lea and Flood's generator with seed 0 yields 0xe220a8397b1dcdaf first: the mix of 0
    assert bucket_of(pa.array([0], pa.uint64()), 1 << 14).tolist() == [0xE220A8397B1DCDAF & ((1 << 14) - 1)]


@given(KEYS, st.integers(0, 6))
def test_a_key_has_one_bucket_whatever_stands_beside_it_and_however_it_is_encoded(keys, log2):
    together = bucket_of(pa.array(keys, pa.string()), 1 << log2)
    assert together.tolist() == [int(bucket_of(pa.array([key], pa.string()), 1 << log2)[0]) for key in keys]
    encoded = pa.array(keys, pa.string()).dictionary_encode()
    assert together.tolist() == bucket_of(encoded, 1 << log2).tolist()
    assert all(0 <= bucket < 1 << log2 for bucket in together)


@given(KEYS)
def test_splitting_and_joining_again_gives_the_same_rows_with_each_key_in_one_bucket(keys):
    table = pa.table({"key": pa.array(keys, pa.string()), "row": np.arange(len(keys))})
    halves = [table.slice(0, len(keys) // 2), table.slice(len(keys) // 2)]
    records: dict[int, list[bytes]] = {}
    for half in halves:
        for bucket, rows in split_by_bucket(half, "key", 8):
            records.setdefault(bucket, []).append(to_ipc(rows))
    buckets = {bucket: from_ipc(parts) for bucket, parts in records.items()}
    rows = [row for part in buckets.values() for row in zip(*part.to_pydict().values(), strict=True)]
    assert sorted(rows, key=lambda row: row[1]) == list(zip(keys, range(len(keys)), strict=True))
    homes = [(key or "", bucket) for bucket, part in buckets.items() for key in set(part["key"].to_pylist())]
    assert len({key for key, _ in homes}) == len(set(homes))


def test_records_with_different_dictionaries_join_by_value():
    tables = [pa.table({"kind": pa.array(kinds).dictionary_encode()}) for kinds in (["a", "b"], ["b", "a", "c"])]
    assert from_ipc(map(to_ipc, tables))["kind"].to_pylist() == ["a", "b", "b", "a", "c"]


def test_many_keys_spread_evenly():
    sizes = np.bincount(bucket_of(pa.array([f"query {n}" for n in range(64_000)]), 64), minlength=64)
    assert 850 < sizes.min() <= sizes.max() < 1150  # 1,000 each, standard deviation 31


@pytest.mark.parametrize(
    ("num_bytes", "buckets"), [(0, 4), (1, 4), (128 << 20, 4), ((128 << 20) + 1, 8), (1 << 50, 1 << 14)]
)
def test_the_number_of_buckets_is_a_power_of_two_that_grows_with_the_input(num_bytes, buckets):
    assert num_buckets_for(num_bytes) == buckets


def test_another_number_of_buckets_is_refused():
    with pytest.raises(ValueError, match="power of two"):
        bucket_of(pa.array(["a"]), 3)
