"""The person key: made once, its owner's alone, gone with its window."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta

import pytest

from beam_jobs.person_key import ensure_key, read_key, worker_key
from schemas.errors import StageError, UsageError

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
    with pytest.raises(StageError, match="holds the key"):
        worker_key(str(path), "0" * 16)
