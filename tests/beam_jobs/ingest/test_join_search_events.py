"""The join: which of several lines stays does not depend on their order."""

from collections import Counter
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clicktower.beam_jobs.engine.arrow_files import num_bytes, put
from clicktower.beam_jobs.ingest import day_rows
from clicktower.beam_jobs.ingest.day_rows import join_search_events
from clicktower.beam_jobs.ingest.person_key import hash_people
from clicktower.beam_jobs.sources import ubi
from clicktower.beam_jobs.sources.mapping import Events
from tests.beam_jobs.sources.ubi_lines import CRAWLER, event, random_log, search

KEY = b"k" * 32
EARLY, LATE = "2026-09-01T10:00:00Z", "2026-09-01T10:00:01Z"


def parse_block(block):
    return ubi.parse_block(block, ubi.kinds_of_actions(Events()))


def _join(lines):
    joined, dropped = join_search_events(pa.Table.from_batches([parse_block(b"\n".join(lines)).rows]), KEY)
    return joined.to_pylist(), dropped


def test_the_earliest_search_stays_and_one_without_a_time_comes_last():
    lines = [search("a", "late", time=LATE), search("a", "never", time=None), search("a", "early", time=EARLY)]
    for order in (lines, lines[::-1]):
        joined, dropped = _join(order)
        assert [row["query"] for row in joined] == ["early"]
        assert dropped == {"search_repeated": 2}


def test_among_equally_early_searches_the_smallest_line_hash_stays():
    lines = [search("a", f"text {number}", time=EARLY) for number in range(9)]
    hashes = parse_block(b"\n".join(lines)).rows["line_hash"].to_pylist()
    smallest = f"text {hashes.index(min(hashes))}"
    for order in (lines, lines[::-1], lines[4:] + lines[:4]):
        assert [row["query"] for row in _join(order)[0]] == [smallest]


def test_an_event_takes_query_and_agent_and_a_missing_client_from_its_search():
    joined, _ = _join([event("a", "click", "D1", 2, None), event("a", "click", "D1", 1, "eve"),
                       search("a", "drill", "ann", agent=CRAWLER)])  # fmt: skip
    ann, eve = hash_people(pa.array(["ann", "eve"]), KEY).to_pylist()
    assert {row["query"] for row in joined} == {"drill"}
    assert all(row["names_bot"] for row in joined)
    assert {(row["position"], row["person"], row["searcher"]) for row in joined} == {
        (2, ann, ann),
        (1, eve, ann),
        (-1, ann, ann),
    }


@pytest.mark.slow
@given(st.integers(0, 50), st.randoms())
def test_rows_and_drops_do_not_depend_on_the_order_of_lines(seed, rng):
    lines = random_log(seed, 20)
    shuffled = lines.copy()
    rng.shuffle(shuffled)
    (rows, drops), (rows_of_shuffled, drops_of_shuffled) = _join(lines), _join(shuffled)
    assert sorted(map(repr, rows)) == sorted(map(repr, rows_of_shuffled))
    assert drops == drops_of_shuffled


@pytest.mark.slow
@pytest.mark.parametrize("by_reference", [True, False])
@given(seed=st.integers(0, 200), num_records=st.integers(1, 5), part_bytes=st.integers(2_000, 60_000))
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_bucket_joined_in_parts_gives_the_same_rows_and_drops(tmp_path, by_reference, seed, num_records, part_bytes):
    lines = random_log(seed, 20)
    rows = pa.Table.from_batches([parse_block(b"\n".join(lines)).rows])
    cut = [rows.slice(n * len(rows) // num_records, len(rows) // num_records + 1) for n in range(num_records)]
    rows = pa.concat_tables(cut)  # their ends overlap: more exact repeats
    records = put(cut, str(tmp_path) if by_reference else None)
    joined, dropped = join_search_events(rows, KEY)
    with mock.patch.object(day_rows, "PART_BYTES", part_bytes):
        parts = list(day_rows.join_in_parts(records, KEY))
    assert sum((drops for _, drops in parts), Counter()) == dropped
    rows_of_parts = [row for part, _ in parts for row in part.to_pylist()]
    assert sorted(map(repr, rows_of_parts)) == sorted(map(repr, joined.to_pylist()))
    if by_reference:
        assert len(parts) == 1 or len(parts) == 1 + -(-sum(map(num_bytes, records)) // part_bytes)
