"""The person key: made once, its owner's alone, gone with its window."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta

import pytest

from clicktower.beam_jobs.ingest.person_key import (
    default_path,
    ensure_key,
    ensure_store_key,
    key_paths,
    read_key,
    worker_key,
)
from clicktower.schemas.errors import StageError, UsageError

TODAY = date(2026, 9, 1)


def test_of_many_who_start_together_one_makes_the_key(tmp_path):
    path = str(tmp_path / "private" / "person-key.json")
    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(lambda _: ensure_key(path, create=True, today=TODAY), range(8)))
    assert len({key.key for key in keys}) == 1
    assert [entry.name for entry in (tmp_path / "private").iterdir()] == ["person-key.json"]
    assert (tmp_path / "private").stat().st_mode & 0o077 == 0


def test_a_key_holds_for_90_days(tmp_path):
    path = str(tmp_path / "key.json")
    made = ensure_key(path, create=True, today=TODAY)
    assert len(made.key) == 32
    assert ensure_key(path, create=False, today=TODAY + timedelta(days=90)) == made
    with pytest.raises(StageError, match="expired on 2026-11-30"):
        ensure_key(path, create=True, today=TODAY + timedelta(days=91))


def test_a_key_prints_as_its_id(tmp_path):
    key = ensure_key(str(tmp_path / "key.json"), create=True, today=TODAY)
    assert key.key.hex() not in f"{key} {key!r}"
    assert key.id in repr(key)
    assert key.id not in key.key.hex()


@pytest.mark.parametrize(
    "content", ["", "[]", '{"version": 1}', '{"version": 1, "key": "00", "expires": "2030-01-01"}']
)
def test_another_file_is_no_key(tmp_path, content):
    path = tmp_path / "key.json"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(StageError, match="not a key file"):
        read_key(str(path))


def test_a_missing_key_is_not_made_where_it_was_named(tmp_path):
    with pytest.raises(UsageError):
        ensure_key(str(tmp_path / "key.json"), create=False)
    assert not (tmp_path / "key.json").exists()


def test_a_worker_refuses_another_key_than_the_job_was_submitted_with(tmp_path):
    path = tmp_path / "key.json"
    key = ensure_key(str(path), create=True, today=TODAY)
    assert worker_key(str(path), key.id) == key.key
    path.write_text(json.dumps(json.loads(path.read_text()) | {"key": "ab" * 32}))
    with pytest.raises(StageError, match="holds the person key"):
        worker_key(str(path), "0" * 16)


def test_an_expired_key_gives_way_to_a_new_one_only_when_that_is_asked_for(tmp_path):
    store, late = str(tmp_path), TODAY + timedelta(days=91)
    first_path, first = ensure_store_key(store, renew=True, today=TODAY)
    assert ensure_store_key(store, renew=True, today=TODAY + timedelta(days=90)) == (first_path, first)
    with pytest.raises(StageError, match="expired") as raised:
        ensure_store_key(store, renew=False, today=late)
    assert "--renew-key" in raised.value.fix
    second_path, second = ensure_store_key(store, renew=True, today=late)
    assert second.id != first.id
    assert ensure_store_key(store, renew=False, today=late) == (second_path, second)
    assert key_paths(store) == [first_path, second_path]
    assert default_path(store) == second_path
    assert read_key(first_path) == first  # a person can still be erased from the days of that window
    third_path, _ = ensure_store_key(store, renew=True, today=late + timedelta(days=91))
    assert [path.rsplit("/", 1)[-1] for path in key_paths(store)] == [
        "person-key.json",
        "person-key-2.json",
        "person-key-3.json",
    ]
    assert {entry.stat().st_mode & 0o777 for entry in (tmp_path / "private").iterdir()} == {0o600}
    assert default_path(store) == third_path


def test_of_many_who_renew_at_once_one_makes_the_key(tmp_path):
    store, late = str(tmp_path), TODAY + timedelta(days=91)
    ensure_store_key(store, renew=False, today=TODAY)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: ensure_store_key(store, renew=True, today=late), range(8)))
    assert len({key.key for _, key in found}) == 1
    assert len(key_paths(store)) == 2


def test_ten_windows_are_in_the_order_of_their_numbers(tmp_path):
    for number in range(11):
        ensure_store_key(str(tmp_path), renew=True, today=TODAY + timedelta(days=91 * number))
    assert default_path(str(tmp_path)).endswith("/person-key-11.json")
