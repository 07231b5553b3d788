"""Keys that overlap, and what goes with an expired one, wherever that is cut off."""

from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from clicktower.beam_jobs.ingest import dated_days
from clicktower.beam_jobs.ingest.days import Window, open_window
from clicktower.beam_jobs.ingest.erased_list import add_to_list, ensure_list_key, read_list
from clicktower.beam_jobs.ingest.erased_people import open_list
from clicktower.beam_jobs.ingest.expired_keys import remove_expired_keys
from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig
from clicktower.beam_jobs.ingest.person_key import (
    LIFETIME_DAYS,
    MAX_OVERLAP_DAYS,
    default_path,
    ensure_store_key,
    hash_people,
    key_paths,
    key_state,
    read_key,
    valid_keys,
)
from clicktower.beam_jobs.ingest.windows import list_holes
from clicktower.flows.config.toml_file import with_fields
from clicktower.schemas import storage
from clicktower.schemas.day_version import KEY_ENDED, list_dates, newest_version
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.manifest import Request
from clicktower.schemas.stage import Outcome, run_stage
from tests.end_to_end.every_byte import files_with

TODAY = date(2026, 1, 1)
PERSON = pa.array(["client-7"])


def after(days: int) -> date:
    return TODAY + timedelta(days=days)


@pytest.mark.parametrize("overlap", [1, 7, 30, 45, MAX_OVERLAP_DAYS])
def test_every_window_of_at_most_the_overlap_has_a_key_that_covers_it(tmp_path, overlap):
    """Each day's log is ingested on the next day, or up to three days later."""
    under: dict[int, set[str]] = {}
    most = 0
    for day in range(250):
        ensure_store_key(str(tmp_path), renew=False, overlap=overlap, today=after(day))
        keys = valid_keys(str(tmp_path), after(day))
        most = max(most, len(keys))
        under[day - 1] = {key.id for _, key in keys}
        for late in (0, 3):
            window = range(max(0, day - late - overlap), day - late)
            covering = set.intersection(*(under[night] for night in window)) if window else set()
            assert covering or not window, (day, late)
    assert most == -(-LIFETIME_DAYS // (LIFETIME_DAYS - overlap - 3)) or most == 2


def test_without_an_overlap_there_is_one_key_and_a_notice_before_it_ends(tmp_path):
    store = str(tmp_path)
    ensure_store_key(store, renew=False, today=TODAY)
    for days, word in ((75, None), (76, "expires on 2026-04-01"), (90, "expires on"), (91, "expired on 2026-04-01")):
        notice = key_state(store, renews=False, today=after(days))["notice"]
        assert word in notice if word else notice == ""
        assert key_state(store, renews=True, today=after(days))["notice"] == ""
    assert [len(valid_keys(store, after(days))) for days in (90, 91)] == [1, 0]


def test_two_keys_are_told_with_the_day_on_which_the_older_ends(tmp_path):
    store = str(tmp_path)
    for days in (0, 58):
        ensure_store_key(store, renew=False, overlap=30, today=after(days))
    state = key_state(store, renews=True, today=after(58))
    assert state == {
        "expires": "2026-05-29",
        "notice": "",
        "overlap": "2 keys of people overlap until 2026-04-01: the log is read once for each",
    }


def test_keys_overlap_for_windows_that_are_short_enough_and_for_keys_of_the_store():
    with pytest.raises(UsageError, match="key_overlap"):
        with_fields(IngestConfig(), [f"key_overlap={MAX_OVERLAP_DAYS + 1}"])
    with pytest.raises(UsageError, match="person_key names another"):
        IngestConfig(key_overlap=30, person_key="key.json")


def _put(store: str, day: int, key: str, keys: tuple[str, ...]) -> str:
    """An ingest of a date that holds the hash of a person, finished, or cut off where the key is none."""
    request = Request(
        stage="ingest",
        stage_version=1,
        config={"date": after(day).isoformat()},
        inputs={"logs": [f"log-{day}"], "person_key": read_key(key).id},
    )

    def produce(folder: str) -> Outcome:
        hashed = hash_people(PERSON, read_key(key).key)[0].as_py()
        storage.write_atomic(storage.join(folder, "queries-00000.arrow"), hashed.to_bytes(8, "little"))
        return Outcome()

    result = run_stage(store, request, produce)
    dated_days.register(store, request, keys=keys)
    return result.folder


@pytest.fixture
def store(tmp_path) -> str:
    """Days 50 to 59 and an undated log under one key, and from day 55 on under a second too; a person who is erased,
    and the remains of killed jobs.
    """
    store = str(tmp_path / "store")
    for days in (0, 58):
        ensure_store_key(store, renew=False, overlap=30, today=after(days))
    paths = key_paths(store)
    ids = tuple(read_key(path).id for path in paths)
    for day in range(50, 60):
        for path in paths[::-1] if day >= 55 else paths[:1]:
            _put(store, day, path, ids)
    all_keys = [read_key(path) for path in (*paths, ensure_list_key(store))]
    add_to_list(store, {key.id: hash_people(PERSON, key.key) for key in all_keys})
    hashed = hash_people(PERSON, all_keys[0].key)[0].as_py().to_bytes(8, "little")
    for killed in ("ingest/a/attempt-1", "ingest/a/attempt-1-scratch", "build/b/attempt-2-scratch"):
        storage.write_atomic(f"{store}/{killed}/rows.arrow", hashed)
    storage.write_atomic(f"{open_window([store]).ingests[0].folder}/attempt-3-scratch/rows.arrow", hashed)
    return store


def _traces(store: str) -> list[bytes]:
    key = read_key(f"{store}/private/person-key.json")
    hashed = hash_people(PERSON, key.key)[0].as_py()
    return [key.key.hex().encode(), key.id.encode(), hashed.to_bytes(8, "little"), str(hashed).encode()]


def test_nothing_of_an_expired_key_is_left_and_all_of_the_next_is(store):
    traces, second = _traces(store), default_path(store)
    before = open_window([store], Window(last=5)).ingests
    remove_expired_keys(store, after(91))
    assert files_with(traces, [Path(store)]), "a job that began before midnight ends in peace"
    remove_expired_keys(store, after(92))
    assert files_with(traces, [Path(store)]) == set()
    assert key_paths(store) == [second]
    assert [day for day in list_dates(store) if newest_version(store, day)] == [
        after(day).isoformat() for day in range(55, 60)
    ]
    version = newest_version(store, after(57).isoformat())
    assert (version.because, version.person_keys) == (KEY_ENDED, {read_key(second).id})
    after_it = open_window([store], Window(last=30))
    assert [day.manifest.digest for day in after_it.ingests] == [day.manifest.digest for day in before]
    assert after_it.begins == after(55).isoformat()
    assert list_holes(store, after(60)) == []
    erased = open_list(store, second)
    assert set(read_list(store)) == {read_key(path).id for path in (second, ensure_list_key(store))}
    assert erased.digest != ""


def test_what_is_cut_off_anywhere_is_finished_by_the_next(store, monkeypatch, tmp_path):
    """After each call that changes the store, until there is none left."""
    traces, calls = _traces(store), 0
    changing = {name: getattr(storage, name) for name in ("remove", "write_new", "write_atomic")}

    class CutOffError(Exception):
        pass

    def cut(name, at):
        def changed(*args):
            nonlocal calls
            calls += 1
            if calls == at:
                raise CutOffError
            return changing[name](*args)

        return changed

    at, is_whole = 1, False
    while not is_whole:
        calls = 0
        with monkeypatch.context() as patched:
            for name in changing:
                patched.setattr(storage, name, cut(name, at))
            try:
                remove_expired_keys(store, after(92))
                is_whole = True
            except CutOffError:
                assert (Path(store) / "private/person-key.json").exists() or not files_with(traces, [Path(store)])
        assert len(open_window([store], Window(last=5)).ingests) == 5
        at += 1
    assert at > 5
    assert files_with(traces, [Path(store)]) == set()


def test_a_key_that_alone_knows_erased_people_stays_with_their_list(store):
    """They were erased before the list had a key of its own."""
    first = read_key(f"{store}/private/person-key.json")
    storage.write_atomic(
        f"{store}/private/erased/erasure-00002.json",
        f'{{"schema_version": "1.0", "created": "2026-01-02", "people": {{"{first.id}": [7]}}}}'.encode(),
    )
    remove_expired_keys(store, after(92))
    assert len(key_paths(store)) == 2
    assert read_list(store)[first.id].to_pylist() == [7]
    assert {day.manifest.request.inputs["person_key"] for day in open_window([store]).ingests} != {first.id}
    assert len(valid_keys(store, after(92))) == 1


def test_dates_that_lack_a_key_are_holes_since_an_ingest_was_cut_off_between_two(store):
    ids = tuple(key.id for _, key in valid_keys(store, after(60)))
    path = key_paths(store)[1]
    _put(store, 61, path, ids)
    expected = [after(day).isoformat() for day in (60, 61)]
    assert list_holes(store, after(62)) == expected
    with pytest.raises(StageError, match="nothing for 2026-03-02"):
        open_window([store], Window(last=4))
