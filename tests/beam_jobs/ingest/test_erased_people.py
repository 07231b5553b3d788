"""Nobody who was erased comes back, whatever is ingested later, and whatever happens at the same time."""

import gzip
import json
import random
import shutil
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from clicktower.beam_jobs.ingest import days, erased_people, ingest_job
from clicktower.beam_jobs.ingest.bots import BotRules
from clicktower.beam_jobs.ingest.days import open_window
from clicktower.beam_jobs.ingest.erase import erase
from clicktower.beam_jobs.ingest.erased_list import add_to_list, read_list
from clicktower.beam_jobs.ingest.erased_people import open_list
from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, ingest_log
from clicktower.beam_jobs.ingest.person_key import default_path, hash_people, key_paths, read_key
from clicktower.schemas import storage
from clicktower.schemas.day_version import newest_version
from clicktower.schemas.errors import StageError, TransientError
from clicktower.schemas.manifest import damaged_files
from clicktower.schemas.stage import WouldRun, planning
from tests.beam_jobs.ingest.dated_logs import day_lines, write_lines
from tests.beam_jobs.ingest.reference_ingest import reference_ingest
from tests.beam_jobs.ingest.test_ingest_day import exposures_of, queries_of
from tests.beam_jobs.sources.ubi_lines import event, random_log, search

WHO, OTHER = "client-3", "client-4"
DAY, NEXT = "2026-09-01", "2026-09-02"
LINES = day_lines(DAY, 0, num_searches=40)
MORE = day_lines(DAY, 5, num_searches=24)
OF_NEXT = day_lines(NEXT, 5, num_searches=24)
LENIENT = BotRules(searches_per_hour=59)


@pytest.fixture(scope="module")
def ingested(tmp_path_factory):
    """A store with one day, from which WHO was erased; and before that, as `before`."""
    folder = tmp_path_factory.mktemp("ingested")
    log = write_lines(folder / "log.ndjson", LINES)
    ingest_log([log], store=str(folder / "before"), config=IngestConfig(date=DAY))
    shutil.copytree(folder / "before", folder / "store")
    erase([WHO], store=str(folder / "store"))
    return folder


@pytest.fixture
def folder(ingested, tmp_path):
    shutil.copytree(ingested, tmp_path, dirs_exist_ok=True)
    return tmp_path


assert all(
    len([line for line in log if who in line]) for log in (LINES, MORE, OF_NEXT) for who in (b"client-3", b"client-4")
)


def _without(lines, client=WHO):
    return [line for line in lines if json.loads(line)["client_id"] != client]


def _hashes(store, client=WHO):
    return [hash_people(pa.array([client]), read_key(path).key)[0].as_py() for path in key_paths(store)]


def _files_with(store, client=WHO):
    """The files below a store that hold a hash of a client, as Arrow keeps it."""
    wanted = [value.to_bytes(8, "little") for value in _hashes(store, client)]
    contents = {name: storage.read_bytes(storage.join(store, name)) for name in storage.list_files(store)}
    return [name for name, content in contents.items() if any(value in content for value in wanted)]


def _ingest(store, logs, date=DAY, **more):
    return ingest_log([str(log) for log in logs], store=str(store), config=IngestConfig(date=date, **more))


def _grown(folder):
    return [write_lines(folder / "grown.ndjson", [*LINES, MORE[0]])], LINES + MORE[:1], {}


def _renamed_and_packed(folder):
    (folder / "other.ndjson.gz").write_bytes(gzip.compress(b"\n".join(LINES[::-1])))
    return [folder / "other.ndjson.gz"], LINES, {}


def _split(folder):
    parts = [write_lines(folder / f"{number}.ndjson", LINES[number::2]) for number in range(2)]
    return parts, LINES, {}


def _replaced(folder):
    return [write_lines(folder / "new.ndjson", LINES[20:] + MORE)], LINES[20:] + MORE, {"replace_day": True}


def _other_settings(folder):
    return [folder / "log.ndjson"], LINES, {"bots": LENIENT}


def _late(folder):
    return [write_lines(folder / "late.ndjson", MORE)], MORE, {}


def _next_day(folder):
    return [write_lines(folder / "next.ndjson", OF_NEXT)], OF_NEXT, {"date": NEXT}


def _undated(folder):
    return [folder / "log.ndjson"], LINES, {"date": None}


def _new_key(folder):
    path = folder / "store/private/person-key.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"expires": "2020-01-01"}))
    return [write_lines(folder / "next.ndjson", OF_NEXT)], OF_NEXT, {"date": NEXT, "renew_key": True}


def _key_from_elsewhere(folder):
    key = folder / "key.json"
    key.write_text(json.dumps({"version": 1, "key": "ab" * 32, "created": "2026-01-01", "expires": "2099-01-01"}))
    key.chmod(0o600)
    return [write_lines(folder / "next.ndjson", OF_NEXT)], OF_NEXT, {"date": NEXT, "person_key": str(key)}


WAYS = [_grown, _renamed_and_packed, _split, _replaced, _other_settings, _late, _next_day, _undated, _new_key,
        _key_from_elsewhere]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_what_is_ingested_later_is_the_log_without_her_lines(folder, way):
    """Compared with an ingest of the other lines into a store where nobody was erased. A plan knows it before and
    after, and leaves the store alone.
    """
    logs, lines, more = way(folder)
    files = storage.list_files(str(folder / "store"))
    with planning(), pytest.raises(WouldRun):
        _ingest(folder / "store", logs, **more)
    assert storage.list_files(str(folder / "store")) == files
    result = _ingest(folder / "store", logs, **more)
    key_path = more.get("person_key") or default_path(str(folder / "store"))
    rest = write_lines(folder / "rest.ndjson", _without(lines))
    expected = _ingest(folder / "plain", [rest], **more | {"person_key": key_path, "renew_key": False})
    assert queries_of(result) == queries_of(expected)
    assert exposures_of(result) == exposures_of(expected)
    assert result.manifest.outcome.logical_digest == expected.manifest.outcome.logical_digest
    ledger, counts = result.manifest.outcome.ledger, result.manifest.outcome.counts
    assert ledger.lines == {**expected.manifest.outcome.ledger.lines, "erased": len(lines) - len(_without(lines))}
    assert counts == {**expected.manifest.outcome.counts, "lines": len(lines)}
    assert _files_with(str(folder / "store")) == []
    versions = storage.list_files(str(folder / "store/days"))
    with planning():
        assert _ingest(folder / "store", logs, **more).manifest.digest == result.manifest.digest
    again = _ingest(folder / "store", logs, **more)
    assert (again.reused, again.manifest.digest) == (True, result.manifest.digest)
    assert storage.list_files(str(folder / "store/days")) == versions


def test_without_an_erasure_a_request_says_nothing_about_one(folder):
    result = _ingest(folder / "before", [folder / "log.ndjson"])
    assert result.reused
    assert set(result.manifest.request.inputs) == {"logs", "bot_user_agents", "person_key"}
    assert open_list(str(folder / "before"), default_path(str(folder / "before"))).digest == ""


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_events_without_a_client_and_of_others_follow_her_search(tmp_path, seed):
    """Fates, rows and people are those of a loop over one line at a time."""
    draw = random.Random(seed)
    lines = random_log(seed)
    for number in range(60):  # events of people, or of nobody, below the searches of others
        shown = event(f"q{draw.randrange(300)}", "click", f"D{number}", 1, draw.choice(["c1", "c2", "c50", None]))
        lines.append(shown)
    first = write_lines(tmp_path / "first.ndjson", [search("a", "drill", "c70")])
    ingest_log([first], store=str(tmp_path / "store"), config=IngestConfig())
    erased = {"c1", "c7", "fast", *(f"c{number}" for number in range(20, 30))}
    done = erase(sorted(erased), store=str(tmp_path / "store"))
    assert (done.num_ids, done.num_found) == (13, 0)
    log = write_lines(tmp_path / "log.ndjson", lines)
    config = IngestConfig(max_unreadable_share=0.5)
    result = ingest_log([log], store=str(tmp_path / "store"), config=config)
    fates, queries, exposures = reference_ingest(lines, BotRules(), erased=erased)
    assert fates["erased"] > 100
    assert Counter(result.manifest.outcome.ledger.lines) == fates
    assert queries_of(result) == queries
    assert exposures_of(result) == exposures


def test_an_event_on_her_search_has_no_query_any_more_and_her_click_on_anothers_search_is_hers(tmp_path):
    store = str(tmp_path / "store")
    lines = [
        search("a", "hose", "ann"), event("a", "click", "d1", 1, "ann"), event("a", "click", "d2", 2, None),
        event("a", "click", "d3", 3, "ben"),
        search("b", "hose", "ben"), event("b", "click", "d4", 1, "ann"), event("b", "click", "d5", 2, None),
        search("c", "tap", None), event("c", "click", "d6", 1, "ann"), event("c", "click", "d7", 1, "1e1"),
        search("d", "tap", "10.0"), search("d", "tap", "ann"),
    ]  # fmt: skip
    ingest_log([write_lines(tmp_path / "first.ndjson", lines[4:5])], store=store, config=IngestConfig())
    erase(["a\u200bnn ", "10"], store=store)
    result = ingest_log([write_lines(tmp_path / "log.ndjson", lines)], store=store, config=IngestConfig())
    assert result.manifest.outcome.ledger.lines == {"erased": 9, "day_search": 2, "day_click": 1}
    assert queries_of(result) == {"hose": (1, 1), "tap": (0, 1)}
    assert exposures_of(result) == {("hose", "d5", 2): (0, 1)}


@pytest.mark.slow
def test_a_store_that_is_no_local_folder_lets_nobody_in_again_either(folder):
    remote = "memory://erased-people/store"
    for name in storage.list_files(str(folder / "store")):
        storage.write_atomic(storage.join(remote, name), storage.read_bytes(str(folder / "store" / name)))
    logs, lines, more = _grown(folder)
    here, there = (_ingest(store, logs, **more) for store in (folder / "store", remote))
    assert there.manifest.digest == here.manifest.digest
    assert there.manifest.outcome.ledger.lines["erased"] == len(lines) - len(_without(lines))
    assert there.manifest.outcome.logical_digest == here.manifest.outcome.logical_digest
    assert _files_with(remote) == []
    assert _ingest(remote, logs, **more).reused


@pytest.mark.parametrize("is_earlier", [False, True])
def test_once_an_old_key_is_gone_people_are_known_by_the_key_of_the_list(folder, is_earlier):
    """In a list of earlier versions, which had none, nobody is."""
    store = str(folder / "store")
    storage.remove(default_path(store))
    if is_earlier:
        storage.remove(f"{store}/private/erased/list-key.json")
    done = erase([OTHER], store=store)  # the store gets a key
    assert (len(done.keyless), done.num_found) == (1, 0)
    result = _ingest(store, [write_lines(folder / "next.ndjson", OF_NEXT)], NEXT)
    assert _files_with(store, OTHER) == []
    rest = _without(OF_NEXT, OTHER)
    num_left = len(rest if is_earlier else _without(rest))
    assert result.manifest.outcome.ledger.lines["erased"] == len(OF_NEXT) - num_left


def test_a_person_whose_file_is_removed_is_let_in_again(folder):
    storage.remove(str(folder / "store/private/erased/erasure-00001.json"))
    _ingest(folder / "store", _late(folder)[0])
    assert _files_with(str(folder / "store")) != []


def test_a_damaged_list_stops_an_ingest(folder):
    (folder / "store/private/erased/erasure-00001.json").write_text("{}")
    with pytest.raises(StageError, match="could come back"):
        _ingest(folder / "store", _late(folder)[0])


def test_two_lists_at_once_both_count_and_nobody_is_listed_twice(tmp_path, monkeypatch):
    store, real, called = str(tmp_path), storage.write_new, []

    def beaten(uri, content):
        if not called:
            called.append(uri)
            add_to_list(store, {"key": pa.array([7], pa.uint64())})
        return real(uri, content)

    monkeypatch.setattr("clicktower.beam_jobs.ingest.erased_people.storage.write_new", beaten)
    add_to_list(store, {"key": pa.array([2**63 + 1], pa.uint64()), "other": pa.array([3], pa.uint64())})
    add_to_list(store, {"key": pa.array([7, 2**63 + 1], pa.uint64())})
    assert {key: people.to_pylist() for key, people in read_list(store).items()} == {
        "key": [7, 2**63 + 1],
        "other": [3],
    }
    assert len(storage.list_files(store)) == 2
    for path, mode in ((tmp_path / "private/erased", 0o700), (tmp_path / "private/erased/erasure-00001.json", 0o600)):
        assert path.stat().st_mode & 0o777 == mode


def test_a_damaged_day_is_made_again_without_her(folder):
    result = _ingest(folder / "store", _late(folder)[0])
    file = Path(result.folder) / next(file.path for file in result.manifest.files if "queries" in file.path)
    file.write_bytes(b"")
    again = _ingest(folder / "store", _late(folder)[0])
    assert again.repaired
    assert not damaged_files(again.folder, again.manifest.files, hashes=True)
    assert again.manifest.outcome.logical_digest == result.manifest.outcome.logical_digest
    assert _files_with(str(folder / "store")) == []
    assert {one.manifest.digest for one in open_window([str(folder / "store")]).ingests} >= {again.manifest.digest}


def test_a_day_whose_folder_was_removed_is_made_again_without_her(folder):
    store = str(folder / "store")
    (first,) = open_window([store]).ingests  # what the erasure left
    storage.remove(first.folder)
    result = _ingest(store, [folder / "log.ndjson"])
    assert result.manifest.outcome.ledger.lines["erased"] == len(LINES) - len(_without(LINES))
    assert _files_with(store) == []
    assert [one.manifest.digest for one in open_window([store]).ingests] == [result.manifest.digest]


def test_a_damaged_day_of_before_the_list_is_not_made_from_the_log(folder):
    """An earlier version erased OTHER, and listed nobody."""
    store = str(folder / "before")
    erase([OTHER], store=store)
    storage.remove(f"{store}/private/erased")
    (link,) = Path(store).glob("ingest/*/erased.json")
    value = json.loads(link.read_text())
    link.write_text(json.dumps({"schema_version": "1.0", "by": value["by"]}))
    erase([WHO], store=store)
    (left,) = open_window([store]).ingests
    file = Path(left.folder) / next(file.path for file in left.manifest.files if "queries" in file.path)
    file.write_bytes(b"")
    assert _ingest(store, [folder / "log.ndjson"]).manifest.digest == left.manifest.digest
    storage.remove(left.folder)
    with pytest.raises(StageError):
        _ingest(store, [folder / "log.ndjson"])


# Where another process erases in between: the module that calls, what it calls, and the number of the call.
MOMENTS = {
    "while it is read": (ingest_job, "require_unchanged", 1),
    "before it commits": (erased_people, "begin_commit", 1),
    "before the list is looked at": (erased_people, "take_place", 1),
    "after the list was looked at": (erased_people, "end_commit", 1),
    "before it is registered": (days, "of_date", 3),
    "before its caller registers it": (days, "of_date", 4),
}


@pytest.mark.slow
@pytest.mark.parametrize(("is_first", "date"), [(True, None), (False, NEXT)])
@pytest.mark.parametrize("moment", MOMENTS)
def test_an_erasure_during_an_ingest_counts_in_it(folder, monkeypatch, moment, is_first, date):
    store, called = str(folder / ("before" if is_first else "store")), []
    place, name, number = MOMENTS[moment]
    real = getattr(place, name)

    def overtaken(*args, **kwargs):
        called.append(name)
        if len(called) == number:
            erase([OTHER], store=store)
        return real(*args, **kwargs)

    monkeypatch.setattr(place, name, overtaken)
    log = write_lines(folder / "next.ndjson", OF_NEXT)
    _ingest(store, [log], date)
    assert len(called) >= number
    assert _files_with(store, OTHER) == []
    again = _ingest(store, [log], date)
    assert again.reused
    assert again.folder in {result.folder for result in open_window([store]).ingests}
    assert erase([OTHER], store=store).num_ingests == 0
    assert not any(erased_people.is_committing(folder) for folder in Path(store).glob("ingest/*"))


@pytest.mark.slow
def test_an_erasure_during_an_ingest_under_a_key_from_elsewhere_stops_it(folder, monkeypatch):
    store, real, called = str(folder / "store"), erased_people.begin_commit, []

    def overtaken(of):
        if not called:
            called.append(of)
            erase([OTHER], store=store)
        real(of)

    monkeypatch.setattr(erased_people, "begin_commit", overtaken)
    logs, _, more = _key_from_elsewhere(folder)
    with pytest.raises(TransientError, match="erased from the store while"):
        _ingest(store, logs, **more)
    assert NEXT not in {result.manifest.request.config["date"] for result in open_window([store]).ingests}
    _ingest(store, logs, **more)
    hashed = hash_people(pa.array([OTHER]), read_key(more["person_key"]).key)[0].as_py().to_bytes(8, "little")
    assert not any(hashed in path.read_bytes() for path in Path(store).glob("ingest/**/*.arrow"))


def test_of_two_ingests_of_one_log_under_two_lists_the_first_counts(folder, monkeypatch):
    store, log = str(folder / "store"), write_lines(folder / "next.ndjson", OF_NEXT)
    first = ingest_log([write_lines(folder / "first.ndjson", OF_NEXT)], store=store, config=IngestConfig(bots=LENIENT))
    real = erased_people.take_place

    def beaten(result):
        source = storage.join(store, "ingest", result.manifest.request.inputs["erased_from"])
        erased_people.mark_erased(source, first.manifest.digest)
        return real(result)

    monkeypatch.setattr(erased_people, "take_place", beaten)
    result = _ingest(store, [log], None)
    assert result.folder == first.folder
    folders = {storage.join(store, "ingest", name) for name in storage.list_folders(f"{store}/ingest")}
    finished = {folder for folder in folders if storage.exists(f"{folder}/manifest.json")}
    assert finished == {one.folder for one in open_window([store]).ingests}


def test_an_erasure_that_has_yet_to_see_a_new_key_counts_in_the_ingest_that_made_it(folder, monkeypatch):
    """Its list has no hash under that key; the ingest is repeated, as a schedule does."""
    store, called, real = str(folder / "before"), [], erased_people.begin_commit

    def overtaken(*args):
        if not called:
            called.append(args)
            with monkeypatch.context() as patched:
                patched.setattr("clicktower.beam_jobs.ingest.erase.key_paths", lambda store: key_paths(store)[:1])
                erase([OTHER], store=store)
        return real(*args)

    monkeypatch.setattr(erased_people, "begin_commit", overtaken)
    log = write_lines(folder / "next.ndjson", OF_NEXT)
    again = partial(
        ingest_log,
        [log],
        store=store,
        config=IngestConfig(date=NEXT, key_overlap=30),
        today=datetime.now(UTC).date() + timedelta(days=60),
    )
    with pytest.raises(TransientError, match="People were erased"):
        again()
    assert len(key_paths(store)) == 2
    assert not again().reused
    assert _files_with(store, OTHER) == []
    assert len(newest_version(store, NEXT).parts) == 2
    assert again().reused


KILLED_AT = ("begin_commit", "take_place", "end_commit")


@pytest.mark.slow
@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("step", KILLED_AT)
def test_an_ingest_that_was_cut_off_as_it_committed_counts_when_repeated(folder, step, is_first):
    """People are erased in between; no build reads it before."""
    store, log = str(folder / ("before" if is_first else "store")), write_lines(folder / "next.ndjson", OF_NEXT)
    code = (
        "import os, sys\n"
        "from clicktower.beam_jobs.ingest import erased_people\n"
        "from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, ingest_log\n"
        "setattr(erased_people, sys.argv[1], lambda *args: os._exit(9))\n"
        "ingest_log([sys.argv[2]], store=sys.argv[3], config=IngestConfig())\n"
    )
    run = subprocess.run([sys.executable, "-c", code, step, log, store], capture_output=True, check=False)
    assert run.returncode == 9, run.stderr.decode()
    assert len(open_window([store]).ingests) == 1
    erase([OTHER], store=store)
    result = _ingest(store, [log], None)
    assert _files_with(store, OTHER) == []
    assert result.folder in {one.folder for one in open_window([store]).ingests}
    assert len(open_window([store]).ingests) == 2
    assert _ingest(store, [log], None).reused


@pytest.mark.slow
def test_an_erasure_that_was_killed_once_people_are_listed_counts_in_later_ingests_and_the_next_finishes_it(folder):
    store = str(folder / "before")
    code = (
        "import os, sys\n"
        "from clicktower.beam_jobs.ingest import erase\n"
        "erase._finish = lambda *args: os._exit(9)\n"
        "erase.erase([sys.argv[1]], store=sys.argv[2])\n"
    )
    run = subprocess.run([sys.executable, "-c", code, WHO, store], capture_output=True, check=False)
    assert run.returncode == 9, run.stderr.decode()
    assert _files_with(store) != []
    result = _ingest(store, _late(folder)[0])
    assert result.manifest.outcome.ledger.lines["erased"] == len(MORE) - len(_without(MORE))
    assert all(result.manifest.digest not in name for name in _files_with(store))
    done = erase([OTHER], store=store)
    assert (done.num_ids, done.num_found) == (1, 1)
    assert _files_with(store) == _files_with(store, OTHER) == []
