"""Erasing a person: what goes, what stays, what is told, and that nothing brings the person back."""

import json
import shutil
import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clicktower.beam_jobs.build.build_stage import BuildConfig, build_shards
from clicktower.beam_jobs.ingest import erase as erasing
from clicktower.beam_jobs.ingest.days import Window, day_files, open_window, read_day_file
from clicktower.beam_jobs.ingest.erase import erase, remove_people
from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, ingest_log
from clicktower.beam_jobs.ingest.person_key import default_path, hash_people, key_paths, read_key
from clicktower.schemas import storage
from clicktower.schemas.day_version import newest_version
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.manifest import damaged_files
from clicktower.schemas.search_log import EXPOSURES, QUERIES
from tests.beam_jobs.build.day_folders import write_documents
from tests.beam_jobs.ingest.dated_logs import day_lines, write_lines
from tests.beam_jobs.sources.ubi_lines import event, search

WHO, OTHER = "client-3", "client-4"
DATES = ("2026-09-01", "2026-09-02")


@pytest.fixture(scope="module")
def ingested(tmp_path_factory):
    """A folder with the logs of two days and the store that they were ingested into; to be copied."""
    folder = tmp_path_factory.mktemp("ingested")
    for number, day in enumerate(DATES):
        log = write_lines(folder / f"{day}.ndjson", day_lines(day, number, num_searches=60))
        ingest_log([log], store=str(folder / "store"), config=IngestConfig(date=day))
    return folder


@pytest.fixture
def store(ingested, tmp_path):
    """The store of the test's own copy, below tmp_path beside the logs."""
    shutil.copytree(ingested, tmp_path, dirs_exist_ok=True)
    return str(tmp_path / "store")


def _hash(store, client):
    return hash_people(pa.array([client]), read_key(default_path(store)).key)[0].as_py()


def _queries(store):
    """{(day's digest position, query): people}, of all that a store stands for."""
    found = {}
    for result in open_window([store]).ingests:
        for uri in day_files([result], "queries"):
            for row in read_day_file(uri).to_pylist():
                found[result.manifest.request.config.get("date"), row["query"]] = (set(row["people"]), row["searches"])
    return found


def _exposures(store):
    found = []
    for result in open_window([store]).ingests:
        for uri in day_files([result], "exposures"):
            found += [
                (result.manifest.request.config.get("date"), *row.values()) for row in read_day_file(uri).to_pylist()
            ]
    return sorted(found)


def _bytes_with(store, value: int) -> list[str]:
    """Every file below a store that holds this number as the 8 bytes that Arrow keeps it in."""
    wanted = value.to_bytes(8, "little")
    return [name for name in storage.list_files(store) if wanted in storage.read_bytes(storage.join(store, name))]


@pytest.mark.slow
def test_the_hash_is_gone_from_every_file_and_the_ledger_still_adds_up(store):
    who = _hash(store, WHO)
    before, shown = _queries(store), _exposures(store)
    ledgers = {day.manifest.request.config["date"]: day.manifest.outcome.ledger for day in open_window([store]).ingests}
    assert len({name.split("/")[1] for name in _bytes_with(store, who)}) == 2  # both days
    done = erase([WHO], store=store)

    alone = {key for key, (people, _) in before.items() if people == {who}}
    shared = {key for key, (people, _) in before.items() if who in people and people != {who}}
    assert alone
    assert shared
    assert _bytes_with(store, who) == []
    expected = {key: (people - {who}, searches) for key, (people, searches) in before.items() if key not in alone}
    assert _queries(store) == expected
    assert _exposures(store) == [row for row in shown if row[:2] not in alone]
    assert (done.num_ids, done.num_found, done.num_ingests) == (1, 1, 2)
    assert (done.num_queries, done.num_sets) == (len(alone), len(shared))
    assert done.dates == dict.fromkeys(DATES, 2)
    for result in open_window([store]).ingests:
        day = result.manifest.request.config["date"]
        ledger = result.manifest.outcome.ledger.check()
        assert ledger.total == ledgers[day].total
        lines = sum(searches for key, (_, searches) in before.items() if key in alone and key[0] == day)
        lines += sum(row[4] + row[5] for row in shown if row[:2] in alone and row[0] == day)
        assert ledger.lines.get("erased", 0) == lines
        assert not damaged_files(result.folder, result.manifest.files, hashes=True)
        counts = result.manifest.outcome.counts
        assert counts["queries"] == len([key for key in expected if key[0] == day])
        assert counts["searches"] == ledger.lines["day_search"]


def test_the_manifest_says_how_many_and_never_who(store):
    who, key = _hash(store, WHO), read_key(default_path(store)).key.hex()
    erase([WHO], store=store)
    (result, _) = open_window([store]).ingests
    inputs = result.manifest.request.inputs
    assert inputs["erased_people"] == 1
    assert storage.exists(storage.join(store, "ingest", inputs["erased_from"], "erased.json"))
    for name in storage.list_files(store):
        content = storage.read_bytes(storage.join(store, name))
        assert WHO.encode() not in content, name
        assert (str(who).encode() in content) == (name == "private/erased/erasure-00001.json"), name
        if not name.startswith("private/"):
            assert key.encode() not in content, name
    assert storage.list_files(storage.join(store, "ingest", inputs["erased_from"])) == ["erased.json"]


def test_the_digest_of_what_is_left_is_that_of_its_rows(store):
    """Computed here from all rows, there from the rows that changed alone."""
    from clicktower.beam_jobs.ingest.day_rows import logical_digest

    erase([WHO, OTHER], store=store)
    for result in open_window([store]).ingests:
        tables = [
            pa.concat_tables([read_day_file(uri) for uri in day_files([result], kind)])
            for kind in ("queries", "exposures")
        ]
        assert logical_digest(*tables).hexdigest() == result.manifest.outcome.logical_digest


def test_one_after_the_other_is_both_at_once(store, tmp_path):
    shutil.copytree(store, tmp_path / "copy")
    erase([WHO], store=store)
    erase([OTHER], store=store)
    erase([WHO, OTHER, WHO], store=str(tmp_path / "copy"))
    assert _queries(store) == _queries(str(tmp_path / "copy"))
    assert _exposures(store) == _exposures(str(tmp_path / "copy"))
    assert {day.manifest.request.inputs["erased_people"] for day in open_window([store]).ingests} == {2}


def test_a_second_time_changes_nothing_and_a_stranger_is_listed(store):
    erase([WHO], store=store)
    before = storage.list_files(store)
    for clients, num_ids in (([WHO], 1), ([f" {WHO}\u200b", WHO], 1), (["nobody-we-know", WHO, ""], 2)):
        done = erase(clients, store=store)
        assert (done.num_ids, done.num_found, done.num_ingests, done.dates) == (num_ids, 0, 0, {})
    listed = ["private/erased/erasure-00002.json"]
    assert [name for name in storage.list_files(store) if name not in before] == listed


def test_ingesting_the_same_log_again_does_not_bring_the_person_back(store, tmp_path):
    who = _hash(store, WHO)
    erase([WHO], store=store)
    for day in DATES:
        again = ingest_log([str(tmp_path / f"{day}.ndjson")], store=store, config=IngestConfig(date=day))
        assert again.reused
    assert _bytes_with(store, who) == []
    assert {newest_version(store, day).version for day in DATES} == {2}


@pytest.mark.slow
def test_an_erased_log_takes_the_place_of_its_day_again_without_the_person(store, tmp_path):
    day, logs = DATES[0], [str(tmp_path / f"{DATES[0]}.ndjson")]
    rest = write_lines(tmp_path / "rest.ndjson", day_lines(day, 9, num_searches=60, clients=3))
    in_place = IngestConfig(date=day, replace_day=True)
    erase([WHO], store=store)
    without = _queries(store)
    ingest_log([rest], store=store, config=in_place)
    assert _queries(store) != without
    assert ingest_log(logs, store=store, config=in_place).reused  # the day had another log since
    assert _queries(store) == without
    ingest_log([rest], store=store, config=IngestConfig(date=day))
    assert ingest_log(logs, store=store, config=in_place).reused  # the day had it as one of two parts
    assert _queries(store) == without
    ingest_log([rest], store=store, config=in_place)
    ingest_log(logs, store=store, config=IngestConfig(date=day))  # it comes late
    assert len(newest_version(store, day).parts) == 2
    assert _bytes_with(store, _hash(store, WHO)) == []


@pytest.mark.slow
def test_an_undated_ingest_and_an_older_version_are_erased_too(store, tmp_path):
    half = str(tmp_path / "2026-09-01.ndjson")
    rest = write_lines(tmp_path / "rest.ndjson", day_lines("2026-09-01", 9, num_searches=60))
    (old,) = open_window([store], Window(until="2026-09-01")).ingests
    ingest_log([half, rest], store=store, config=IngestConfig(date="2026-09-01"))
    plain = ingest_log([half], store=store, config=IngestConfig())
    who = _hash(store, OTHER)
    assert len({name.split("/")[1] for name in _bytes_with(store, who)}) == 4  # and the day after
    erase([OTHER], store=store)
    assert _bytes_with(store, who) == []
    # Whoever names the folder, or the older version, is led to what is left of it.
    assert open_window([plain.folder]).ingests[0].manifest.request.inputs["erased_from"] == plain.manifest.digest
    version = storage.join(store, "days", "2026-09-01", "version-00001.json")
    assert open_window([version]).ingests[0].manifest.request.inputs["erased_from"] == old.manifest.digest


@pytest.mark.slow
def test_what_was_made_before_is_named_and_what_was_made_after_is_not(store, tmp_path):
    documents = write_documents(tmp_path / "documents.tsv", {f"d{i}": f"Thing number {i}" for i in range(12)})
    config = BuildConfig(k=2, num_negatives=2, dev_share=0.2)
    before = build_shards([store], documents, store=store, config=config, window=Window(last=1))
    model = tmp_path / "store" / "train" / ("ab" * 12)  # as a training leaves it
    model.mkdir(parents=True)
    value = json.loads(storage.read_bytes(storage.join(before.folder, "manifest.json")))
    value["request"] |= {"stage": "train", "inputs": {"shards": before.manifest.digest}}
    (model / "manifest.json").write_text(json.dumps(value))
    assert [(made.stage, made.path) for made in erase([WHO], store=store).made_before] == [
        ("build", before.folder),
        ("train", str(model)),
    ]
    after = build_shards([store], documents, store=store, config=config, window=Window(last=1))
    assert after.manifest.digest != before.manifest.digest
    assert after.manifest.outcome.ledger.lines["erased"] > 0
    paths = [made.path for made in erase([WHO], store=store).made_before]
    assert (before.folder in paths, after.folder in paths) == (True, False)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["_rewrite", "_require_copied", "mark_erased", "replace_erased", "_finish"])
def test_a_kill_at_any_moment_leaves_old_or_new_days_and_a_rerun_completes(store, tmp_path, step):
    who = _hash(store, WHO)
    before = _queries(store)
    after = {key: (people - {who}, searches) for key, (people, searches) in before.items() if people != {who}}
    # Killed for good (no clean-up runs) when the step is reached the second time: after one day is done, or in the
    # last clean-up, which follows the one at the start.
    code = (
        "import os, sys\n"
        "from clicktower.beam_jobs.ingest import erase as erasing\n"
        "modules = (erasing, erasing.erased_people, erasing.dated_days)\n"
        "at = next(module for module in modules if hasattr(module, sys.argv[1]))\n"
        "real, calls = getattr(at, sys.argv[1]), []\n"
        "def killed(*args, **kwargs):\n"
        "    calls.append(1)\n"
        "    if len(calls) == int(sys.argv[4]):\n"
        "        os._exit(9)\n"
        "    return real(*args, **kwargs)\n"
        "setattr(at, sys.argv[1], killed)\n"
        "erasing.erase([sys.argv[2]], store=sys.argv[3])\n"
    )
    at = "3" if step == "replace_erased" else "2"  # two dates are looked at before anything is erased
    run = subprocess.run([sys.executable, "-c", code, step, WHO, store, at], capture_output=True, check=False)
    assert run.returncode == 9, run.stderr.decode()
    found = _queries(store)
    for day in DATES:
        of_day = {key: row for key, row in found.items() if key[0] == day}
        states = [{key: row for key, row in state.items() if key[0] == day} for state in (before, after)]
        assert of_day in states
    erase([WHO], store=store)
    assert _queries(store) == after
    assert _bytes_with(store, who) == []
    assert {newest_version(store, day).version for day in DATES} == {2}
    finished = [name for name in storage.list_files(f"{store}/ingest") if name.endswith("/manifest.json")]
    assert len(finished) == 2


def test_two_erasures_at_once_both_count(store, monkeypatch):
    """The other one comes in between reading a day and putting what is left in its place."""
    real, called = erasing.erased_people.mark_erased, []

    def beaten(folder, by):
        if not called:
            called.append(folder)
            erase([OTHER], store=store)
        return real(folder, by)

    monkeypatch.setattr(erasing.erased_people, "mark_erased", beaten)
    who, other = _hash(store, WHO), _hash(store, OTHER)
    erase([WHO], store=store)
    assert called
    assert _bytes_with(store, who) == _bytes_with(store, other) == []
    assert len(open_window([store]).ingests) == 2


def test_days_whose_key_is_gone_are_named_as_past_changing(store):
    (path,) = key_paths(store)
    storage.remove(path)
    done = erase([WHO], store=store)
    assert len(done.keyless) == 2
    assert done.num_ingests == 0


@pytest.mark.slow
def test_a_person_is_found_under_the_key_of_an_old_window_too(store, tmp_path):
    path = tmp_path / "store" / "private" / "person-key.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"expires": "2020-01-01"}))
    log = write_lines(tmp_path / "new.ndjson", day_lines("2026-09-03", 2, num_searches=60))
    ingest_log([log], store=store, config=IngestConfig(date="2026-09-03", renew_key=True))
    hashes = [hash_people(pa.array([WHO]), read_key(path).key)[0].as_py() for path in key_paths(store)]
    assert len(set(hashes)) == 2
    assert all(_bytes_with(store, who) for who in hashes)
    assert erase([WHO], store=store).num_ingests == 3
    assert not any(_bytes_with(store, who) for who in hashes)


def test_a_copy_that_went_wrong_changes_nothing(store, monkeypatch):
    def garble(source, target):
        storage.write_atomic(target, b"garbled")

    before = _queries(store)
    monkeypatch.setattr("clicktower.beam_jobs.ingest.erase.storage.copy", garble)
    with pytest.raises(StageError, match="not as it was written"):
        erase([WHO], store=store)
    assert _queries(store) == before


def test_a_store_that_is_no_local_folder_is_erased_alike(store):
    remote = "memory://erase-test/store"
    for name in storage.list_files(store):
        storage.write_atomic(storage.join(remote, name), storage.read_bytes(storage.join(store, name)))
    who = _hash(remote, WHO)
    here, there = erase([WHO], store=store), erase([WHO], store=remote)
    assert (here.num_ingests, here.num_queries, here.num_sets, here.dates) == (
        there.num_ingests,
        there.num_queries,
        there.num_sets,
        there.dates,
    )
    assert _bytes_with(remote, who) == []
    assert _exposures(remote) == _exposures(store)


def test_a_store_without_days_is_wrong_usage(tmp_path):
    with pytest.raises(UsageError, match="no finished ingest"):
        erase([WHO], store=str(tmp_path))
    for nobody in ([], [" ", "\u200b"]):
        with pytest.raises(UsageError, match="no client id"):
            erase(nobody, store=str(tmp_path))


@pytest.mark.slow
def test_a_query_typed_by_one_person_and_by_nobody_goes_whole_and_a_shared_one_keeps_its_sums(tmp_path):
    store = str(tmp_path / "store")
    lines = [
        search("a", "my own diary", "ann"), event("a", "click", "d1", 1, "ann"),
        search("b", "my own diary", None, time="2026-09-01T11:00:00.000Z"),
        search("c", "hose", "ann"), event("c", "click", "d2", 1, "ann"), search("d", "hose", "ben"),
    ]  # fmt: skip
    ingest_log([write_lines(tmp_path / "log.ndjson", lines)], store=store, config=IngestConfig())
    ben = _hash(store, "ben")
    erase(["ann"], store=store)
    assert _queries(store) == {(None, "hose"): ({ben}, 2)}
    assert [row[1:6] for row in _exposures(store)] == [("hose", "d2", 1, 0, 1)]


_SETS = st.lists(st.sets(st.integers(1, 6), max_size=6), min_size=1, max_size=6)


@settings(deadline=None)
@given(_SETS, st.sets(st.integers(1, 6), min_size=1, max_size=3), st.lists(st.integers(0, 5), max_size=8))
def test_a_bucket_is_erased_as_a_row_at_a_time_would_be(sets, people, shown):
    queries = [{"query": f"q{i}", "people": sorted(some), "searches": i + 1} for i, some in enumerate(sets)]
    exposures = [
        {
            "query": f"q{i % len(sets)}",
            "document_id": f"d{n}",
            "position": 1,
            "impressions": n,
            "clicks": 1,
            "conversions": n % 2,
            "weight": 1000 + n % 2 * 5000,
        }
        for n, i in enumerate(shown)
    ]
    tables = pa.Table.from_pylist(queries, schema=QUERIES), pa.Table.from_pylist(exposures, schema=EXPOSURES)
    change = remove_people(*tables, pa.array(sorted(people), pa.uint64()))
    gone = {row["query"] for row in queries if row["people"] and set(row["people"]) <= people}
    touched = [row for row in queries if people & set(row["people"])]
    assert (change is None) == (not touched)
    if change is None:
        return
    kept = [row | {"people": sorted(set(row["people"]) - people)} for row in queries if row["query"] not in gone]
    assert change.queries.to_pylist() == kept
    assert change.exposures.to_pylist() == [row for row in exposures if row["query"] not in gone]
    assert change.queries.schema.equals(QUERIES, check_metadata=True)
    assert change.exposures.schema.equals(EXPOSURES, check_metadata=True)
    lost = [row for row in exposures if row["query"] in gone]
    for name in ("impressions", "clicks", "conversions"):
        assert change.taken[name] == sum(row[name] for row in lost)
    assert change.taken["searches"] == sum(row["searches"] for row in queries if row["query"] in gone)
