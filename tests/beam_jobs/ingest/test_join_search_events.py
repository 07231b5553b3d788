"""The join: which of several lines stays, and which search an event joins, does not depend on their order."""

import random
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clicktower.beam_jobs.engine.arrow_files import num_bytes, put
from clicktower.beam_jobs.engine.beam_stage import add_up
from clicktower.beam_jobs.ingest import day_rows
from clicktower.beam_jobs.ingest.day_rows import join_search_events
from clicktower.beam_jobs.ingest.person_key import hash_people
from clicktower.beam_jobs.sources import ubi
from clicktower.beam_jobs.sources.mapping import Events
from tests.beam_jobs.ingest.reference_ingest import reference_joins
from tests.beam_jobs.sources.ubi_lines import CRAWLER, event, random_log, search

KEY = b"k" * 32
EARLY, LATE = "2026-09-01T10:00:00Z", "2026-09-01T10:00:01Z"


def parse_block(block):
    return ubi.parse_block(block, ubi.kinds_of_actions(Events()))


def _join(lines):
    joined, tally = join_search_events(pa.Table.from_batches([parse_block(b"\n".join(lines)).rows]), KEY)
    return joined.to_pylist(), tally.fates


def _clicked(lines):
    """(document -> the query that its click joins; the drops, whatever the order of the lines)."""
    found = []
    for order in (lines, lines[::-1], random.Random(1).sample(lines, len(lines))):
        joined, dropped = _join(order)
        found.append(({row["document_id"]: row["query"] for row in joined if row["document_id"]}, dropped))
    assert found[0] == found[1] == found[2]
    return found[0]


def test_a_search_logged_again_stays_once_the_earliest_and_one_without_a_time_comes_last():
    lines = [
        search("a", "Drill", time=LATE),
        search("a", "drill", time=None),
        search("a", "drill ", time=EARLY, agent=CRAWLER),
    ]
    for order in (lines, lines[::-1]):
        joined, dropped = _join(order)
        assert [row["names_bot"] for row in joined] == [True]
        assert dropped == {"search_repeated": 2}


def test_among_equally_early_searches_the_smallest_line_hash_stays():
    lines = [search("a", "drill", time=EARLY, agent=agent) for agent in [CRAWLER, *map(str, range(8))]]
    hashes = parse_block(b"\n".join(lines)).rows["line_hash"].to_pylist()
    is_crawler = hashes.index(min(hashes)) == 0
    for order in (lines, lines[::-1], lines[4:] + lines[:4]):
        assert [row["names_bot"] for row in _join(order)[0]] == [is_crawler]


def _at(minute):
    return f"2026-09-01T10:{minute:02d}:00Z"


def test_counters_of_sessions_join_by_client_to_the_latest_search_before_the_event():
    lines = [
        search("1", "drill", "ann", _at(0)), event("1", "click", "drill of ann", 1, "ann", _at(1)),
        search("1", "saw", "ann", _at(20)), event("1", "click", "saw of ann", 1, "ann", _at(20)),
        search("1", "drill", "ann", _at(40)), event("1", "click", "again", 1, "ann", _at(59)),
        search("1", "lamp", "ben", _at(0)), event("1", "click", "lamp of ben", 1, "ben", _at(30)),
        search("1", "rug", "cat", _at(5)), event("1", "click", "clock behind", 1, "cat", _at(4)),
    ]  # fmt: skip
    assert _clicked(lines) == ({
        "drill of ann": "drill", "saw of ann": "saw", "again": "drill", "lamp of ben": "lamp", "clock behind": "rug",
    }, {})  # fmt: skip


def test_an_event_that_may_belong_to_several_searches_is_told_and_not_guessed():
    lines = [
        search("1", "drill", "ann", _at(0)), search("1", "saw", "ben", _at(1)),
        event("1", "click", "of nobody", 1, None, _at(2)), event("1", "click", "of another", 1, "cat", _at(2)),
        event("1", "click", "its own query", 1, "cat", _at(2), user_query="lamp"),
        search("2", "drill", "ann", _at(0)), search("2", "saw", "ann", _at(0)),
        event("2", "click", "two at once", 1, "ann", _at(2)),
        search("3", "drill", "ann", _at(0)), search("3", "saw", "ann", _at(1)),
        event("3", "click", "no time", 1, "ann", None),
        search("4", "drill", "ann", None), search("4", "saw", "ann", _at(1)),
        event("4", "click", "a search without one", 1, "ann", _at(9)),
    ]  # fmt: skip
    assert _clicked(lines) == ({"its own query": "lamp"}, {"search_ambiguous": 5})


def test_one_query_under_one_id_is_clear_whoever_clicked():
    lines = [
        search("1", "drill", "ann", _at(0)), search("1", "Drill", "ben", _at(1)),
        event("1", "click", "of nobody", 1, None, _at(2)), event("1", "click", "of another", 1, "cat", None),
        search("2", "drill", "ann", _at(0)), search("2", "drill", None, _at(0)),  # logged by the server as well
        event("2", "click", "of the only client", 1, None, _at(2)),
        search("3", "drill", None, _at(0)), search("3", "saw", None, _at(5)),
        event("3", "click", "by the clock", 1, "ann", _at(7)),
    ]  # fmt: skip
    assert _clicked(lines) == ({
        "of nobody": "drill", "of another": "drill", "of the only client": "drill", "by the clock": "saw",
    }, {"search_repeated": 1})  # fmt: skip


def test_query_ids_with_several_searches_are_counted():
    lines = [
        search("1", "drill"),
        search("1", "saw"),
        search("2", "drill"),
        search("2", "drill", time=LATE),
        search("3", "x"),
    ]
    rows = pa.Table.from_batches([parse_block(b"\n".join(lines)).rows])
    assert join_search_events(rows, KEY)[1].counts == {day_rows.SHARED_QUERY_IDS: 1}


SEARCHES = st.builds(
    lambda query_id, query, client, time: search(query_id, query, client, time and _at(time)),
    st.sampled_from("12"), st.sampled_from(["drill", "Drill", "saw"]), st.sampled_from(["ann", "ben", None]),
    st.none() | st.integers(1, 4),
)  # fmt: skip
EVENTS = st.builds(
    lambda query_id, document, client, time, more: event(
        query_id, "click", document, 1, client, time and _at(time), **more
    ),
    st.sampled_from("123"), st.sampled_from(["D1", "D2", "D3"]), st.sampled_from(["ann", "ben", "cat", None]),
    st.none() | st.integers(1, 5), st.just({}) | st.just({"user_query": "lamp"}),
)  # fmt: skip


@settings(deadline=None, max_examples=300)
@given(lines=st.lists(SEARCHES | EVENTS, max_size=14), num_parts=st.integers(1, 3))
def test_the_join_is_that_of_a_loop_over_the_lines_also_in_parts(lines, num_parts):
    lines = lines or [search("1", "drill")]
    expected, fates = reference_joins(lines)
    rows = pa.Table.from_batches([parse_block(b"\n".join(lines)).rows])
    records = put([rows], None)
    part_bytes = -(-sum(map(num_bytes, records)) // num_parts)
    with mock.patch.object(day_rows, "PART_BYTES", part_bytes):
        parts = list(day_rows.join_bucket(records, KEY))
    assert {fate: count for fate, count in add_up(tally for _, tally in parts).fates.items() if count} == fates
    found = [row for part, _ in parts for row in part.to_pylist()]
    assert sorted((row["document_id"] or "", row["query"]) for row in found) == expected


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
    joined, tally = join_search_events(rows, KEY)
    with mock.patch.object(day_rows, "PART_BYTES", part_bytes):
        parts = list(day_rows.join_bucket(records, KEY))
    assert add_up(part for _, part in parts) == add_up([tally])
    rows_of_parts = [row for part, _ in parts for row in part.to_pylist()]
    assert sorted(map(repr, rows_of_parts)) == sorted(map(repr, joined.to_pylist()))
    if by_reference:
        assert len(parts) == 1 or len(parts) == 1 + -(-sum(map(num_bytes, records)) // part_bytes)
