"""Dated days: versions of a date, late files, windows, and what a store stands for."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from clicktower.beam_jobs.build.build_stage import BuildConfig, build_request, build_shards
from clicktower.beam_jobs.ingest import dated_days
from clicktower.beam_jobs.ingest.bots import BotRules
from clicktower.beam_jobs.ingest.days import Window, open_window
from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, ingest_log
from clicktower.beam_jobs.ingest.remainders import finished_ingests
from clicktower.schemas import storage
from clicktower.schemas.day_version import ANEW, FIRST, LATE, SECOND_KEY, newest_version
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.manifest import Request, damaged_files
from clicktower.schemas.stage import Outcome, run_stage
from tests.beam_jobs.build.day_folders import write_documents
from tests.beam_jobs.ingest.dated_logs import day_lines, write_lines

DOCUMENTS = {f"d{i}": f"Thing number {i}" for i in range(40)}  # more than are ever clicked
CONFIG = BuildConfig(k=2, num_negatives=2, dev_share=0.2)
DATES = ("2026-09-29", "2026-09-30", "2026-10-01")  # the last one comes when the logs of the others are gone
LINES = {day: day_lines(day, 7, num_searches=60) for day in DATES}


def _dated_request(date_: str, logs: list[str], *, person_key="key-1", rules=0) -> Request:
    return Request(
        stage="ingest",
        stage_version=1,
        config={"date": date_, "rules": rules},
        inputs={"logs": sorted(logs), "person_key": person_key},
    )


def _put(store, date_: str, logs: list[str], *, keys=(), **more) -> str:
    """A finished ingest without rows for a date, registered as its job would; its digest."""
    request = _dated_request(date_, logs, **more)
    result = run_stage(str(store), request, lambda folder: Outcome())
    dated_days.register(str(store), request, keys=keys)
    return result.manifest.digest


def _parts(store, date_: str) -> tuple[int, set[str], str]:
    version = newest_version(str(store), date_)
    return version.version, {part.ingest for part in version.parts}, version.because


def test_a_late_file_makes_a_new_version_and_the_old_one_stays_readable(tmp_path):
    first = _put(tmp_path, "2026-09-01", ["a", "b"])
    late = _put(tmp_path, "2026-09-01", ["c"])
    assert _parts(tmp_path, "2026-09-01") == (2, {first, late}, LATE)
    assert {day.manifest.digest for day in open_window([str(tmp_path)]).ingests} == {first, late}
    old = tmp_path / "days" / "2026-09-01" / "version-00001.json"
    assert {day.manifest.digest for day in open_window([str(old)]).ingests} == {first}
    written = json.loads((tmp_path / "days" / "2026-09-01" / "version-00002.json").read_text())
    assert (written["version"], written["supersedes"]) == (2, 1)
    assert sorted(log for part in written["parts"] for log in part["logs"]) == ["a", "b", "c"]


def test_what_is_in_a_day_already_is_not_added_again(tmp_path):
    whole = _put(tmp_path, "2026-09-01", ["a", "b"])
    assert _put(tmp_path, "2026-09-01", ["a", "b"]) == whole
    _put(tmp_path, "2026-09-01", ["a"])
    assert _parts(tmp_path, "2026-09-01") == (1, {whole}, FIRST)


def test_all_files_of_a_date_together_make_it_anew(tmp_path):
    _put(tmp_path, "2026-09-01", ["a"])
    _put(tmp_path, "2026-09-01", ["b"])
    whole = _put(tmp_path, "2026-09-01", ["a", "b", "c"])
    assert _parts(tmp_path, "2026-09-01") == (3, {whole}, ANEW)
    other_rules = _put(tmp_path, "2026-09-01", ["a", "b", "c"], rules=1)
    assert _parts(tmp_path, "2026-09-01") == (4, {other_rules}, ANEW)
    assert [day.manifest.digest for day in open_window([str(tmp_path)]).ingests] == [other_rules]


@pytest.mark.parametrize(
    ("logs", "more", "words"),
    [
        (["b", "c"], {}, "(?i)Lines of the 2 log files are in version"),
        (["a"], {"rules": 1}, "read with other settings"),
        (["c"], {"person_key": "key-2"}, "hashed under another key"),
    ],
)
def test_what_would_count_lines_twice_or_mix_keys_is_refused_before_the_job(tmp_path, logs, more, words):
    first = _put(tmp_path, "2026-09-01", ["a", "b"])
    with pytest.raises(StageError, match=words):
        dated_days.find_held(str(tmp_path), _dated_request("2026-09-01", logs, **more))
    with pytest.raises(StageError, match=words):
        _put(tmp_path, "2026-09-01", logs, **more)
    assert _parts(tmp_path, "2026-09-01")[:2] == (1, {first})


def test_late_files_at_the_same_moment_all_end_up_in_the_day(tmp_path):
    requests = [_dated_request("2026-09-01", [f"log-{number}"]) for number in range(12)]
    for request in requests:
        run_stage(str(tmp_path), request, lambda folder: Outcome())
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda request: dated_days.register(str(tmp_path), request), requests))
    version, parts, _ = _parts(tmp_path, "2026-09-01")
    assert (version, parts) == (12, {request.digest for request in requests})
    names = [f"version-{number:05d}.json" for number in range(1, 13)]
    assert storage.list_files(str(tmp_path / "days" / "2026-09-01")) == names


def _store_of(tmp_path, days=(1, 2, 3, 5), **more):
    for day in days:
        _put(tmp_path, f"2026-09-{day:02d}", [f"log-{day}"], **more)
    return str(tmp_path)


def test_a_window_takes_its_dates_and_names_those_that_are_missing(tmp_path):
    store = _store_of(tmp_path)
    assert len(open_window([store], Window(first="2026-09-01", until="2026-09-03")).ingests) == 3
    assert len(open_window([store], Window(until="2026-09-02")).ingests) == 2
    assert len(open_window([store], Window(last=1)).ingests) == 1
    assert open_window([store], Window(last=2, until="2026-09-03")).first == "2026-09-02"
    with pytest.raises(StageError, match=r"The store has nothing for 2026-09-04, within the days"):
        open_window([store], Window(last=3))
    with pytest.raises(StageError, match=r"The store has nothing for 2026-08-31, 2026-09-04, 2026-09-06, within"):
        open_window([store], Window(first="2026-08-31", until="2026-09-06"))
    found = open_window([store], Window(last=3, allow_missing=True))
    assert (len(found.ingests), found.missing) == (2, ["2026-09-04"])
    with pytest.raises(UsageError, match="holds days from 2026-09-01 to 2026-09-05"):
        open_window([store], Window(first="2026-10-01"))
    with pytest.raises(StageError, match="and 49 more"):
        open_window([store], Window(first="2026-07-05"))


def test_without_a_window_all_is_taken_and_with_one_the_undated_are_left_out(tmp_path):
    store = _store_of(tmp_path)
    request = Request(
        stage="ingest", stage_version=1, config={"date": None}, inputs={"logs": ["x"], "person_key": "key-1"}
    )
    undated = run_stage(store, request, lambda folder: Outcome()).manifest.digest
    everything = open_window([store])
    assert undated in {day.manifest.digest for day in everything.ingests}
    assert (len(everything.ingests), everything.num_undated, everything.missing) == (5, 1, ["2026-09-04"])
    chosen = open_window([store], Window(last=1))
    assert undated not in {day.manifest.digest for day in chosen.ingests}
    assert chosen.num_undated_left_out == 1


def test_a_window_needs_a_store(tmp_path):
    store = _store_of(tmp_path, days=(1,))
    folder = open_window([store]).ingests[0].folder
    with pytest.raises(UsageError, match=r"among a store's dates, and single days are given."):
        open_window([folder], Window(last=1))
    with pytest.raises(UsageError, match="The store holds no dated day"):
        open_window([str(tmp_path / "other")], Window(last=1))


@pytest.mark.parametrize(
    "wrong",
    [
        {"first": "2026-9-1"},
        {"until": "yesterday"},
        {"first": "20260901"},
        {"last": 0},
        {"last": 2, "first": "2026-09-01"},
        {"allow_missing": -1},
        {"first": "2026-09-02", "until": "2026-09-01"},
    ],
)
def test_windows_that_cannot_be_are_wrong_usage(wrong):
    with pytest.raises(UsageError):
        Window(**wrong)


def test_a_window_over_two_keys_says_which_dates_may_be_united(tmp_path):
    _store_of(tmp_path, days=(1, 2))
    _store_of(tmp_path, days=(3, 4), person_key="key-2")
    for window in (Window(first="2026-09-01"), Window()):
        with pytest.raises(
            StageError, match="2026-09-01 to 2026-09-02 under key-1; 2026-09-03 to 2026-09-04 under key-2"
        ) as raised:
            open_window([str(tmp_path)], window)
        assert "--from 2026-09-03 (or --last 2)" in raised.value.fix
    assert len(open_window([str(tmp_path)], Window(last=2)).ingests) == 2
    assert len(open_window([str(tmp_path)], Window(until="2026-09-02")).ingests) == 2


def test_the_last_dates_begin_with_the_newest_key_or_with_the_store_and_grow(tmp_path):
    """Keys that do not overlap, since nobody asked for it."""
    store = _store_of(tmp_path, days=(1, 2))
    young = open_window([store], Window(last=9))
    assert (len(young.ingests), young.begins, young.num_other_key) == (2, "2026-09-01", 0)
    assert young.to_json().items() >= {"from": "2026-08-25", "begins": "2026-09-01"}.items()
    _store_of(tmp_path, days=(3, 4), person_key="key-2")
    renewed = open_window([store], Window(last=4))
    assert (renewed.first, renewed.begins, renewed.num_other_key) == ("2026-09-01", "2026-09-03", 2)
    assert {day.manifest.request.inputs["person_key"] for day in renewed.ingests} == {"key-2"}
    assert renewed.versions == {"2026-09-03": 1, "2026-09-04": 1}
    assert renewed.missing == ["2026-09-01", "2026-09-02"]
    with pytest.raises(StageError, match="nothing for 2026-09-05, within"):
        open_window([store], Window(last=4, until="2026-09-05"))


def test_as_many_dates_may_be_missing_as_the_window_says(tmp_path):
    store = _store_of(tmp_path, days=(1, 3, 5))
    assert open_window([store], Window(last=5, allow_missing=2)).missing == ["2026-09-02", "2026-09-04"]
    assert len(open_window([store], Window(last=3, allow_missing=1)).ingests) == 2
    with pytest.raises(StageError, match=r"nothing for 2026-09-02, 2026-09-04, .*; 1 may be missing") as raised:
        open_window([store], Window(last=5, allow_missing=1))
    assert "backfill pipeline.toml --missing" in raised.value.fix
    assert "allow_missing_days = 2" in raised.value.fix


def test_while_two_keys_overlap_a_date_has_parts_under_both_and_a_window_those_of_the_key_of_most_dates(tmp_path):
    store, keys = str(tmp_path), ("key-1", "key-2")
    for day in range(1, 8):
        for key in keys[::-1]:  # the newest first
            if key == "key-1" or day > 4:
                _put(tmp_path, f"2026-09-{day:02d}", [f"log-{day}"], person_key=key, keys=keys)
    assert _parts(tmp_path, "2026-09-05")[::2] == (2, SECOND_KEY)

    def key_of(window: Window) -> set[str]:
        return {day.manifest.request.inputs["person_key"] for day in open_window([store], window).ingests}

    assert key_of(Window(last=7)) == key_of(Window()) == key_of(Window(first="2026-09-02")) == {"key-1"}
    assert key_of(Window(last=3)) == {"key-2"}, "of two that cover all of it the newest, which stays longest"

    late = _put(tmp_path, "2026-09-03", ["late"], keys=keys)
    assert not dated_days.is_covered(store, _dated_request("2026-09-03", ["later"], person_key="key-2"))
    assert dated_days.is_covered(store, _dated_request("2026-09-03", ["log-3", "late"], person_key="key-2"))
    assert late in _parts(tmp_path, "2026-09-03")[1]
    for key in keys[::-1]:
        _put(tmp_path, "2026-09-06", ["late-6"], person_key=key, keys=keys)
    assert [len(newest_version(store, "2026-09-06").under(key).parts) for key in keys] == [2, 2]

    _put(tmp_path, "2026-09-07", ["log-7", "log-8"], person_key="key-2", keys=("key-2",))
    assert newest_version(store, "2026-09-07").person_keys == {"key-2"}, "of the other key is an earlier state"
    storage.remove(f"{store}/days/2026-09-06")
    with pytest.raises(StageError, match="nothing for 2026-09-06, within"):
        open_window([store], Window(last=6))


@pytest.mark.slow
def test_the_last_step_of_the_job_registers_the_day_so_that_a_dead_client_loses_nothing(tmp_path, monkeypatch):
    # as if the client had died by then
    monkeypatch.setattr("clicktower.beam_jobs.ingest.ingest_stage._complete", lambda _, result, *__: result)
    log = write_lines(tmp_path / "log.ndjson", day_lines("2026-09-01", 1))
    result = ingest_log([log], store=str(tmp_path / "store"), config=IngestConfig(date="2026-09-01"))
    assert _parts(tmp_path / "store", "2026-09-01") == (1, {result.manifest.digest}, FIRST)


@pytest.mark.slow
def test_a_day_that_changed_under_a_running_job_refuses_it_and_keeps_what_it_made(tmp_path, monkeypatch):
    store, day = str(tmp_path / "store"), IngestConfig(date="2026-09-01")
    one, two, three = (
        write_lines(tmp_path / f"{n}.ndjson", day_lines("2026-09-01", n, num_searches=3)) for n in range(3)
    )
    real = dated_days.find_held

    def overtaken(where, request, **options):
        found = real(where, request, **options)
        monkeypatch.setattr("clicktower.beam_jobs.ingest.dated_days.find_held", real)
        ingest_log([two, three], store=store, config=day)  # while the other is about to start
        return found

    monkeypatch.setattr("clicktower.beam_jobs.ingest.dated_days.find_held", overtaken)
    with pytest.raises(StageError, match=r"(?i)Lines of the 2 log files are in version"):
        ingest_log([one, two], store=store, config=day)
    assert len(open_window([store]).ingests) == 1
    assert all(not damaged_files(result.folder, result.manifest.files) for result in finished_ingests(store))
    assert len(finished_ingests(store)) == 2


def _ingest_day(folder, date_: str, lines=None, **config):
    log = write_lines(folder / "logs" / f"{date_}.ndjson", lines or LINES[date_])
    return ingest_log([log], store=str(folder / "store"), config=IngestConfig(date=date_, **config))


@pytest.fixture(scope="module")
def two_days(tmp_path_factory):
    """A folder whose store holds the first two dates, without their logs; to be read or copied."""
    folder = tmp_path_factory.mktemp("two-days")
    for day in DATES[:2]:
        _ingest_day(folder, day)
    shutil.rmtree(folder / "logs")
    write_documents(folder / "documents.tsv", DOCUMENTS)
    return folder


@pytest.fixture
def grown(two_days, tmp_path):
    """A folder of the test's own with the same two days."""
    return shutil.copytree(two_days, tmp_path / "grown")


@pytest.mark.slow
def test_a_late_file_changes_the_build_and_leaves_the_one_before(grown):
    store, documents = str(grown / "store"), str(grown / "documents.tsv")
    window, day = Window(last=1), DATES[1]
    late = day_lines(day, 2)
    (first,) = open_window([store], window).ingests
    before = build_shards([store], documents, store=store, config=CONFIG, window=window)
    second = _ingest_day(grown, day, late)
    again = _ingest_day(grown, day, late)
    assert (again.reused, again.folder) == (True, second.folder)

    after = build_shards([store], documents, store=store, config=CONFIG, window=window)
    assert after.manifest.request.inputs["days"] == sorted([first.manifest.digest, second.manifest.digest])
    assert after.manifest.outcome.metrics["window"]["versions"] == {day: 2}
    assert before.manifest.digest != after.manifest.digest
    assert storage.exists(storage.join(before.folder, "manifest.json"))
    assert after.manifest.outcome.ledger.total == len(LINES[day]) + len(late)
    assert after.manifest.outcome.logical_digest != before.manifest.outcome.logical_digest
    (old,) = open_window([f"{store}/days/{day}/version-00001.json"]).ingests  # what `before` was made of
    assert [old.manifest.digest] == before.manifest.request.inputs["days"]
    assert not damaged_files(old.folder, old.manifest.files, hashes=True)


@pytest.mark.slow
def test_a_day_with_another_byte_than_was_written_is_not_built_from(grown):
    """Of the same size, so that nobody sees it who does not read it."""
    store, documents = str(grown / "store"), str(grown / "documents.tsv")
    (day,) = open_window([store], Window(last=1)).ingests
    victim = next(Path(day.data).glob("exposures-*.arrow"))
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(content)
    with pytest.raises(StageError, match=f"{victim.name} has other bytes than were written"):
        build_shards([store], documents, store=store, config=CONFIG, window=Window(last=1))


@pytest.mark.slow
def test_ingesting_all_files_of_a_date_with_other_settings_replaces_it(grown):
    other = _ingest_day(grown, DATES[1], bots=BotRules(searches_per_day=3))
    assert not other.reused
    assert [day.folder for day in open_window([str(grown / "store")], Window(last=1)).ingests] == [other.folder]


@pytest.mark.slow
def test_settings_of_build_alone_leave_the_days_as_they_are(grown):
    store, documents = str(grown / "store"), str(grown / "documents.tsv")
    written = {path: path.read_bytes() for path in (grown / "store" / "ingest").rglob("*") if path.is_file()}
    assert written
    (grown / "words.txt").write_text("garden hose\n")
    words = str(grown / "words.txt")
    everything = BuildConfig(k=3, num_negatives=2, dev_share=0.5, adult_list=words)
    window = Window(last=1)
    made = [
        build_shards([store], documents, store=store, config=CONFIG),
        build_shards([store], documents, store=store, config=everything, window=window),
    ]
    days = [day.manifest.digest for day in open_window([store]).ingests]
    settings = [
        CONFIG,
        BuildConfig(k=3, num_negatives=2, dev_share=0.2),
        BuildConfig(k=2, num_negatives=2, dev_share=0.5),
        BuildConfig(k=2, num_negatives=2, dev_share=0.2, adult_list=words),
        everything,
    ]
    names = [build_request(days, documents, None, config).digest for config in settings]
    assert made[0].manifest.digest == names[0]
    assert len({*names, made[1].manifest.digest}) == 6
    assert written == {path: path.read_bytes() for path in (grown / "store" / "ingest").rglob("*") if path.is_file()}


@pytest.mark.slow
def test_days_whose_logs_are_gone_and_a_new_one_give_the_shards_of_a_run_from_scratch(grown, tmp_path):
    a, documents = str(grown / "store"), str(grown / "documents.tsv")
    build_shards([a], documents, store=a, config=CONFIG, window=Window(last=2))
    _ingest_day(grown, DATES[2])
    incremental = build_shards([a], documents, store=a, config=CONFIG, window=Window(last=3))

    for day in DATES[::-1]:  # from scratch, under a key of its own, and in another order
        _ingest_day(tmp_path / "scratch", day)
    b = str(tmp_path / "scratch" / "store")
    scratch = build_shards([b], documents, store=b, config=CONFIG, window=Window(last=3))
    assert incremental.manifest.outcome.logical_digest == scratch.manifest.outcome.logical_digest
    assert incremental.manifest.outcome.ledger == scratch.manifest.outcome.ledger
    assert incremental.manifest.outcome.ledger.total == sum(map(len, LINES.values()))
    # A person who comes back on another day is one person: the nine of them are no ten, however many days they came.
    assert incremental.manifest.outcome.metrics["left_at_k"][-2] == {"k": 10, "queries": 0, "clicks": 0, "pairs": 0}
    assert incremental.manifest.outcome.counts["train_pairs"] > 0
