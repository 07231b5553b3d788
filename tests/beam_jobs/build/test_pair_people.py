"""A minimum of people behind each pair: who clicked what in a day, and what two windows reveal with and without it."""

from collections import Counter
from datetime import date, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clicktower.beam_jobs.build.build_stage import BuildConfig, build_shards
from clicktower.beam_jobs.ingest.day_rows import PARTIAL
from clicktower.beam_jobs.ingest.days import day_files, read_day_file
from clicktower.beam_jobs.ingest.erase import erase, remove_people
from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, ingest_log
from clicktower.beam_jobs.ingest.pair_people import clickers_digest, clickers_of
from clicktower.beam_jobs.ingest.person_key import default_path, hash_people, read_key
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError
from clicktower.schemas.manifest import damaged_files
from clicktower.schemas.search_log import CLICKERS, EXPOSURES, PEOPLE_CAP, QUERIES
from clicktower.schemas.stage import open_result
from tests.beam_jobs.build.day_folders import read_pairs, write_documents
from tests.beam_jobs.sources.ubi_lines import event, search

TITLES = {"d1": "Angle Bracket", "d2": "angle  bracket", "d3": "Wood Screw", "d4": "Deck Paint", "d5": "Door Mat"}
NUM_DAYS = 5


def _lines(person: str, query: str, day: int, *documents: str) -> list[bytes]:
    at = f"{date(2026, 9, 1) + timedelta(days=day)}T10:0{day}:00Z"
    query_id = f"{person} {query} {day}"
    clicks = [event(query_id, "click", d, n, person, at) for n, d in enumerate(documents, 1)]
    return [search(query_id, query, person, at), *clicks]


def _ingest(folder, lines, **config):
    folder.mkdir(exist_ok=True)
    (folder / "log.ndjson").write_bytes(b"".join(line + b"\n" for line in lines))
    return ingest_log([str(folder / "log.ndjson")], store=str(folder.parent / "store"), config=IngestConfig(**config))


def _clickers(result) -> Counter:
    rows = [read_day_file(file).to_pylist() for file in day_files([result], "clickers")]
    return Counter((row["query"], row["document_id"]) for file_rows in rows for row in file_rows)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"), st.integers(0, 60)), max_size=300))
def test_the_smallest_hashes_of_each_pair_are_kept(clicks):
    rows = [dict.fromkeys(PARTIAL.names) | {"query": q, "document_id": d, "people": [p]} for q, d, p in clicks]
    people = {}
    for query, document, person in clicks:
        people.setdefault((query, document), set()).add(person)
    assert clickers_of(pa.Table.from_pylist(rows, schema=PARTIAL)).to_pylist() == [
        {"query": query, "document_id": document, "person": person}
        for (query, document), some in sorted(people.items())
        for person in sorted(some)[:PEOPLE_CAP]
    ]


@pytest.mark.slow
def test_a_day_holds_who_clicked_what_only_if_it_is_asked_to(tmp_path):
    lines = [
        *_lines("ann", "angle", 0, "d1", "d1", "d3"),  # twice on one, by one person
        *_lines("ben", "angle", 0, "d1"),
        *_lines("cid", "screw", 0),
        event("cid screw 0", "click", "d3", 1, None),  # of the client of its search
        search("nobody", "screw", None),
        event("nobody", "click", "d3", 2, None),  # of nobody
        event("ann angle 0", "impression", "d4", 4, "ann"),
    ]
    plain, full = (_ingest(tmp_path / name, lines, pair_people=name == "full") for name in ("plain", "full"))
    assert _clickers(full) == {("angle", "d1"): 2, ("angle", "d3"): 1, ("screw", "d3"): 1}
    assert day_files([plain], "clickers") == []
    assert "pair_people" not in plain.manifest.request.config
    assert full.manifest.outcome.ledger == plain.manifest.outcome.ledger
    for kind in ("queries", "exposures"):
        rows = [[read_day_file(file) for file in day_files([day], kind)] for day in (plain, full)]
        assert rows[0] == rows[1]
    assert full.manifest.outcome.logical_digest != plain.manifest.outcome.logical_digest


@pytest.mark.slow
def test_what_two_windows_reveal_of_one_person_is_kept_back(tmp_path):
    """Five people ask for one thing, one a day; two days of them click one title. Who has the shards of days 1 to 5 and
    of 2 to 5 learns what the person of the first day asked and clicked.
    """
    days = [
        _ingest(tmp_path / f"day{day}", [
            *_lines(f"person{day}", "rare lamp", day, "d1" if day < 2 else "d5", *(["d3"] if not day else [])),
            *[line for n in range(5) for line in _lines(f"other{n}", "screw", day, "d3", "d4")],
        ], pair_people=True, date=f"2026-09-0{day + 1}")
        for day in range(NUM_DAYS)
    ]  # fmt: skip
    documents = write_documents(tmp_path / "documents.tsv", TITLES)

    def built(days, **config):
        config = BuildConfig(k=5, num_negatives=1, dev_share=0, **config)
        result = build_shards([day.folder for day in days], documents, store=str(tmp_path / "store"), config=config)
        return result, {(row["query"], row["clicked"]): row for row in read_pairs(result)}

    _, five = built(days)
    _, four = built(days[1:])
    assert {pair for pair in five if pair not in four} == {
        ("rare lamp", "angle bracket"), ("rare lamp", "wood screw"), ("rare lamp", "door mat")
    }  # fmt: skip
    assert five["rare lamp", "wood screw"]["clicks"] == 1  # of the person of the first day
    result, gated = built(days, pair_k=2)
    assert set(gated) == {
        ("rare lamp", "angle bracket"), ("rare lamp", "door mat"), ("screw", "wood screw"), ("screw", "deck paint")
    }  # fmt: skip
    # Nor do the exclusions of the query tell of it.
    assert set(gated["rare lamp", "door mat"]["excluded"]) == {"angle bracket", "door mat"}
    ledger = result.manifest.outcome.ledger.check()
    assert ledger.lines["pair_below_k"] == 1
    assert result.manifest.outcome.metrics["left_at_pair_k"] == [
        {"pair_k": 1, "clicks": 56, "pairs": 5}, {"pair_k": 2, "clicks": 55, "pairs": 4},
        {"pair_k": 3, "clicks": 53, "pairs": 3}, {"pair_k": 5, "clicks": 50, "pairs": 2},
    ]  # fmt: skip
    assert result.manifest.outcome.metrics["privacy_gate"].startswith("k = 5 and pair_k = 2 keeps 55 of 56 clicks")
    with pytest.raises(StageError, match="none was clicked by pair_k = 6 people"):
        built(days, pair_k=6)


@pytest.mark.slow
def test_days_that_do_not_hold_it_are_refused_and_nothing_changes_without_it(tmp_path):
    lines = [line for n in range(3) for line in _lines(f"p{n}", "angle", 0, "d1", "d3")]
    day = _ingest(tmp_path / "day", lines)
    documents, store = write_documents(tmp_path / "documents.tsv", TITLES), str(tmp_path / "store")
    with pytest.raises(StageError, match=r"1 of 1 days do not hold it: .*--set pair_people=true"):
        build_shards([day.folder], documents, store=store, config=BuildConfig(k=2, pair_k=2))
    plain = build_shards([day.folder], documents, store=store, config=BuildConfig(k=2, num_negatives=1, dev_share=0))
    assert "pair_k" not in plain.manifest.request.config
    assert "left_at_pair_k" not in plain.manifest.outcome.metrics


@pytest.mark.slow
def test_an_erased_person_is_gone_from_those_who_clicked(tmp_path):
    lines = [line for n in range(3) for line in _lines(f"p{n}", "angle", 0, "d1")]
    lines += [*_lines("p0", "alone", 0, "d3"), event("p1 angle 0", "click", "d4", 7, "p9")]  # p9 clicks, and never asks
    result, store = _ingest(tmp_path / "day", lines, pair_people=True), str(tmp_path / "store")
    assert _clickers(result) == {("angle", "d1"): 3, ("alone", "d3"): 1, ("angle", "d4"): 1}
    key = read_key(default_path(store)).key
    hashes = [who.to_bytes(8, "little") for who in hash_people(pa.array(["p0", "p9"]), key).to_pylist()]
    done = erase(["p0", "p9"], store=store)
    assert (done.num_ingests, done.num_queries) == (1, 1)
    contents = [storage.read_bytes(storage.join(store, name)) for name in storage.list_files(store)]
    assert not any(part in content for content in contents for part in hashes)
    (left,) = set(storage.list_folders(storage.join(store, "ingest"))) - {result.manifest.digest}
    remainder = open_result(storage.join(store, "ingest", left))
    assert _clickers(remainder) == {("angle", "d1"): 2}
    assert not damaged_files(remainder.folder, remainder.manifest.files, hashes=True)


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.integers(1, 5)), max_size=12, unique=True),
    st.sets(st.integers(1, 5), min_size=1, max_size=2),
)
def test_a_bucket_of_those_who_clicked_is_erased_as_a_row_at_a_time_would_be(rows, people):
    queries = [{"query": "a", "people": [1], "searches": 1}, {"query": "b", "people": [2, 3], "searches": 2}]
    clickers = [{"query": query, "document_id": document, "person": person} for query, document, person in rows]
    table = pa.Table.from_pylist(clickers, schema=CLICKERS)
    exposures = EXPOSURES.empty_table()
    before, hashes = pa.Table.from_pylist(queries, schema=QUERIES), pa.array(sorted(people), pa.uint64())
    change = remove_people(before, exposures, hashes, table)
    gone = {"a"} if 1 in people else set()
    gone |= {"b"} if {2, 3} <= people else set()
    left = [row for row in clickers if row["person"] not in people and row["query"] not in gone]
    assert (change is None) == (not people & {1, 2, 3} and len(left) == len(clickers))
    if change is not None:
        assert change.clickers.to_pylist() == left
        assert change.clickers.schema.equals(CLICKERS, check_metadata=True)
        alone = remove_people(before, exposures, hashes)
        of_queries = int(alone.digest, 16) if alone else 0
        of_clickers = int(clickers_digest(change.clickers), 16) - int(clickers_digest(table), 16)
        assert int(change.digest, 16) == (of_queries + of_clickers) % (1 << 256)
