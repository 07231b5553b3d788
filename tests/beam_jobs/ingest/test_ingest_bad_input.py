"""What cannot be ingested: each a clear error, and nothing left under a final name."""

import gzip
import json
import os
import resource
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, ingest_log
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.section import changed
from tests.beam_jobs.sources.ubi_lines import event, random_log, search

GOOD = [search("a", "angle bracket"), event("a", "click", "D1")]
LENIENT = IngestConfig(max_unreadable_share=1)


@pytest.fixture(scope="module")
def ingested_log(tmp_path_factory):
    """A folder with a log, and the store that it was ingested into; to be read or copied."""
    folder = tmp_path_factory.mktemp("made")
    log = _write(folder / "log.ndjson", random_log(4))
    return folder, ingest_log([str(log)], store=str(folder / "store"), config=LENIENT)


@pytest.fixture
def key_path(ingested_log, tmp_path):
    """The person key of a store of the test's own, beside the log that the store holds."""
    shutil.copytree(ingested_log[0], tmp_path, dirs_exist_ok=True)
    return tmp_path / "store" / "private" / "person-key.json"


def _fails(logs, store, config=None, kind=StageError) -> StageError:
    with pytest.raises(kind) as caught:
        ingest_log([str(log) for log in logs], store=str(store), config=config or IngestConfig())
    assert type(caught.value) is kind
    _assert_nothing_committed(store)
    return caught.value


def _assert_nothing_committed(store) -> None:
    left = [path for path in (Path(store) / "ingest").rglob("*") if path.is_file()]
    assert left == []


def _write(path, lines):
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def test_a_missing_file_and_a_pattern_without_match_are_wrong_usage(tmp_path):
    for name in ("missing.ndjson", "*.gz"):
        error = _fails([tmp_path / name], tmp_path / "store", kind=UsageError)
        assert name in str(error)
        assert error.exit_code == 2


def test_empty_files_are_refused_if_all_are_empty_and_passed_over_otherwise(tmp_path):
    empty, packed = tmp_path / "empty.ndjson", tmp_path / "empty.ndjson.gz"
    empty.touch()
    packed.touch()
    assert f"Every file of {empty}, {packed} is empty" in str(_fails([empty, packed], tmp_path / "store"))
    result = ingest_log(
        [str(empty), str(_write(tmp_path / "good.ndjson", GOOD))], store=str(tmp_path / "store"), config=IngestConfig()
    )
    assert result.manifest.outcome.counts["lines"] == 2


def test_a_gzip_of_nothing_is_empty(tmp_path):
    (tmp_path / "nothing.gz").write_bytes(gzip.compress(b""))
    assert "is empty" in str(_fails([tmp_path / "nothing.gz"], tmp_path / "store"))


def test_a_truncated_gzip_is_an_error_that_names_the_file(tmp_path):
    packed = gzip.compress(b"\n".join(random_log(0)))
    log = tmp_path / "cut.gz"
    log.write_bytes(packed[: len(packed) // 2])
    error = _fails([log], tmp_path / "store")
    assert error.problem == f"{log} ends in the middle of its compressed data. Nothing of it was kept."


def test_a_damaged_gzip_is_an_error(tmp_path):
    packed = bytearray(gzip.compress(b"\n".join(random_log(0))))
    packed[-6] ^= 1  # the checksum
    (tmp_path / "bad.gz").write_bytes(packed)
    assert "damaged" in str(_fails([tmp_path / "bad.gz"], tmp_path / "store"))


@pytest.mark.slow
def test_a_plain_file_called_gz_is_an_error_and_a_gzip_without_the_name_is_read(tmp_path):
    assert "gzip" in str(_fails([_write(tmp_path / "plain.gz", GOOD)], tmp_path / "store"))
    (tmp_path / "log").write_bytes(gzip.compress(b"\n".join(GOOD)))
    result = ingest_log([str(tmp_path / "log")], store=str(tmp_path / "store"), config=IngestConfig())
    assert result.manifest.outcome.counts["clicks"] == 1


def test_another_format_is_recognised_as_such(tmp_path):
    log = _write(tmp_path / "clicks.tsv", [b"1\tangle bracket\tD1\thttp://x"] * 50)
    error = _fails([log], tmp_path / "store")
    assert "something other than `ubi`" in str(error)
    assert "50 not a JSON object" in str(error)
    assert f"{log}:0" in str(error)
    assert "angle" not in str(error)


@pytest.mark.slow
def test_too_many_unreadable_lines_fail_with_reasons_and_places_and_fewer_pass(tmp_path):
    log = _write(tmp_path / "log.ndjson", GOOD * 9 + [b"\xff", b'{"qid": 1}'])
    error = _fails([log], tmp_path / "store")
    assert "1 not UTF-8 text" in str(error)
    assert "1 no usable query_id" in str(error)
    assert "something other" not in str(error)
    result = ingest_log([str(log)], store=str(tmp_path / "store"), config=IngestConfig(max_unreadable_share=0.1))
    assert result.manifest.outcome.counts["rejects"] == 2


def test_a_line_without_end_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("clicktower.beam_jobs.sources.read_lines.MAX_LINE_BYTES", 1000)
    monkeypatch.setattr("clicktower.beam_jobs.sources.read_lines.BLOCK_BYTES", 100)
    (tmp_path / "log.ndjson").write_bytes(b"x" * 5000)
    from clicktower.beam_jobs.sources.read_lines import plan_reading, read_blocks

    (unit,) = plan_reading([str(tmp_path / "log.ndjson")]).units
    with pytest.raises(StageError, match="no line end"):
        list(read_blocks(unit, 100))


def test_a_file_that_may_not_be_read_is_named(tmp_path, monkeypatch):
    log = _write(tmp_path / "log.ndjson", GOOD)

    def refuse(uri):
        raise PermissionError(13, "Permission denied", uri)

    monkeypatch.setattr(
        "clicktower.schemas.storage.open_read", refuse
    )  # tests may run as root, who may read everything
    error = _fails([log], tmp_path / "store")
    assert str(log) in str(error)
    assert "Permission denied" in str(error)


def test_a_store_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StageError, match="No file can be written below"):
        ingest_log([str(_write(tmp_path / "log.ndjson", GOOD))], store=str(tmp_path / "file"), config=IngestConfig())


@pytest.mark.slow
def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path):
    """No file may grow beyond 3 kB in a process of its own: what a full disk does to the day's files."""
    log = _write(tmp_path / "log.ndjson", random_log(0))
    code = (
        "import resource, signal, sys\n"
        "from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, ingest_log\n"
        "from clicktower.schemas.errors import StageError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))\n"
        "try:\n"
        "    ingest_log([sys.argv[1]], store=sys.argv[2], config=IngestConfig(max_unreadable_share=1))\n"
        "except StageError as error:\n"
        "    sys.exit(f'StageError: {error}')\n"
    )
    run = subprocess.run(
        [sys.executable, "-B", "-c", code, str(log), str(tmp_path / "store")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1
    assert run.stderr.startswith("StageError: No file can be written below")
    assert "File too large" in run.stderr
    assert "Traceback" not in run.stderr
    _assert_nothing_committed(tmp_path / "store")
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


def test_an_expired_person_key_says_what_to_do(key_path, tmp_path):
    value = json.loads(key_path.read_text())
    key_path.write_text(json.dumps(value | {"expires": "2020-01-01"}))
    with pytest.raises(StageError, match="expired on 2020-01-01") as caught:
        ingest_log([str(tmp_path / "log.ndjson")], store=str(tmp_path / "store"), config=LENIENT)
    assert "--renew-key" in caught.value.fix
    assert value["key"] not in str(caught.value)


def test_the_person_key_must_be_its_owners_alone(key_path, tmp_path):
    assert key_path.stat().st_mode & 0o777 == 0o600
    os.chmod(key_path, 0o644)
    with pytest.raises(StageError, match="chmod 600"):
        ingest_log([str(tmp_path / "log.ndjson")], store=str(tmp_path / "store"), config=LENIENT)


@pytest.mark.slow
def test_a_named_person_key_must_be_there_and_is_used_by_path_without_naming_the_result(ingested_log, tmp_path):
    folder, first = ingested_log
    log, key = str(folder / "log.ndjson"), str(folder / "store" / "private" / "person-key.json")
    _fails([log], tmp_path / "a", replace(LENIENT, person_key=str(tmp_path / "no-key.json")), UsageError)
    again = ingest_log([log], store=str(tmp_path / "b"), config=replace(LENIENT, person_key=key))
    assert again.manifest.digest == first.manifest.digest
    assert not (tmp_path / "b" / "private").exists()


@pytest.mark.parametrize("field", [{"format": "csv"}, {"max_unreadable_share": 1.5}])
def test_settings_out_of_range_are_wrong_usage(field):
    with pytest.raises(UsageError):
        changed(IngestConfig(), field)


def test_an_option_beam_does_not_take_is_wrong_usage(tmp_path):
    log = str(_write(tmp_path / "log.ndjson", GOOD))
    with pytest.raises(UsageError, match="Beam refuses"):
        ingest_log([log], store=str(tmp_path / "s"), config=IngestConfig(), beam_options=["--direct_num_workers=many"])
    _assert_nothing_committed(tmp_path / "s")


@pytest.mark.slow
def test_a_store_that_is_no_local_folder_works_alike(ingested_log):
    folder, local = ingested_log
    remote = ingest_log([str(folder / "log.ndjson")], store="memory://clicktower-test-store", config=LENIENT)
    assert remote.manifest.outcome.logical_digest == local.manifest.outcome.logical_digest
    assert [file.path.split("/")[1] for file in remote.manifest.files] == [
        file.path.split("/")[1] for file in local.manifest.files
    ]
