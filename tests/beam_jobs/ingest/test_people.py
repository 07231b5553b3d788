"""Capped sets of people: exact up to the cap, however they are merged."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clicktower.beam_jobs.engine.arrow_files import read_table
from clicktower.beam_jobs.ingest.day_rows import collect_people, merge_people
from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, ingest_log
from clicktower.beam_jobs.ingest.person_key import hash_people
from tests.beam_jobs.sources.ubi_lines import event, search

SIGHTINGS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 30)), max_size=120)
CAP = 6


def _collect(sightings):
    groups = np.array([group for group, _ in sightings], np.int64)
    return collect_people(groups, np.array([person for _, person in sightings], np.uint64), 5, CAP)


@given(SIGHTINGS)
def test_collecting_keeps_the_smallest_distinct_people_of_each_group(sightings):
    expected = [sorted({person for group, person in sightings if group == wanted})[:CAP] for wanted in range(5)]
    assert _collect(sightings).to_pylist() == expected


@given(SIGHTINGS, st.lists(st.integers(0, 120), max_size=4))
def test_merging_parts_gives_what_the_whole_gives(sightings, cuts):
    edges = sorted({0, len(sightings), *(min(cut, len(sightings)) for cut in cuts)})
    parts = [_collect(sightings[start:end]) for start, end in pairwise(edges)] or [_collect([])]
    groups = np.tile(np.arange(5), len(parts))
    assert merge_people(groups, pa.concat_arrays(parts), 5, CAP).to_pylist() == _collect(sightings).to_pylist()


def test_merging_reads_a_slice_and_missing_sets_rightly():
    sets = pa.array([[9], [3, 4], None, [1, 3], []], pa.list_(pa.uint64())).slice(1)
    assert merge_people(np.array([0, 1, 0, 1]), sets, 2).to_pylist() == [[1, 3, 4], []]


def test_hashes_depend_on_the_key_and_the_client_alone_and_nobody_stays_nobody():
    clients = pa.array(["ann", None, "ben", "ann"])
    first, second = hash_people(clients, b"k" * 32), hash_people(clients, b"K" * 32)
    assert first[0] == first[3] != first[2]
    assert first[1].as_py() is None
    assert first[0] != second[0]
    assert hash_people(pa.array(["ann"]), b"k" * 32)[0] == first[0]


NOISE = ["c7", " c7", "c7\t", "c7\u200b", "\ufeffc7", "c\u00ad7", "\u2003c7\u200e", "c7\ufe0f",
         "c\u034f7", "c\u31647", "\u2800c7", "c\x007", "c7\x1f", "\u115fc7\uffa0"]  # fmt: skip


def test_noise_around_and_within_a_client_id_makes_no_further_person():
    assert len(set(hash_people(pa.array(NOISE), b"k" * 32).to_pylist())) == 1
    composed, decomposed = hash_people(pa.array(["jos\u00e9", "jose\u0301"]), b"k" * 32).to_pylist()
    assert composed == decomposed
    assert len(set(hash_people(pa.array(["c 7", "c\u00a0\t7", " c  7 "]), b"k" * 32).to_pylist())) == 1
    assert len(set(hash_people(pa.array(["c7", "C7", "c8", "c 7"]), b"k" * 32).to_pylist())) == 4
    assert hash_people(pa.array(["", " ", "\u200b", "\u2800", "\x00", None]), b"k" * 32).to_pylist() == [None] * 6


def test_a_whole_number_that_came_through_floats_is_the_same_person():
    spellings = ["10", "10.0", "1e1", "1E+01", "10.", " 10.00 "]
    assert len(set(hash_people(pa.array(spellings), b"k" * 32).to_pylist())) == 1
    assert len(set(hash_people(pa.array(["10", "100", "10.5", "010", "-10", "1.0.0"]), b"k" * 32).to_pylist())) == 6


@pytest.mark.slow
def test_noise_in_client_ids_lifts_no_query_over_k(tmp_path):
    """Spellings of one id, and as many ids, each with a search and a click of its own."""
    lines = []
    for query, clients in (("noise", NOISE), ("people", [f"c{number}" for number in range(len(NOISE))])):
        for number, client in enumerate(clients):
            time = f"2026-09-01T{number:02}:10:00.000Z"
            lines += [
                search(f"{query}-{number}", query, client, time),
                event(f"{query}-{number}", "click", "D1", 1, client, time),
            ]
    (tmp_path / "log.ndjson").write_bytes(b"".join(line + b"\n" for line in lines))
    day = ingest_log([str(tmp_path / "log.ndjson")], store=str(tmp_path / "store"), config=IngestConfig())
    rows = [row for file in sorted(Path(day.data).glob("queries-*.arrow")) for row in read_table(str(file)).to_pylist()]
    assert {row["query"]: len(row["people"]) for row in rows} == {"noise": 1, "people": len(NOISE)}
