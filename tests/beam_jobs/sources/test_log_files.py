"""What a path, a pattern or a folder names: every file that is not an engine's own, and of tables the current ones."""

import os

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from clicktower.beam_jobs.checking.check_log import check_log
from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, open_source
from clicktower.beam_jobs.sources.log_files import LogFiles, expand, find_files
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, UsageError
from tests.beam_jobs.ingest.source_rows import read_all

ENGINES_OWN = (
    "_SUCCESS", "_committed_17", "_started_17", "_metadata", "_common_metadata", ".DS_Store", ".part-0.crc",
    "part-0.crc", "_temporary/0/part-1", ".spark-staging/part-2", "day=2/_SUCCESS",
)  # fmt: skip
LINE = b'{"query_id": "a", "user_query": "lamp"}\n'


@pytest.fixture
def logs(tmp_path):
    for name in ("a.ndjson", "day=1/b.ndjson", "day=2/hour=3/c.ndjson", "_day=4/d.ndjson", *ENGINES_OWN):
        (tmp_path / "logs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "logs" / name).write_bytes(LINE)
    return tmp_path / "logs"


def names(found: LogFiles, folder) -> list[str]:
    return [path.removeprefix(f"{folder}/") for path in found.paths]


def test_a_folder_is_read_in_depth_without_what_engines_write_beside_their_data(logs):
    found = expand(str(logs), {})
    assert names(found, logs) == ["_day=4/d.ndjson", "a.ndjson", "day=1/b.ndjson", "day=2/hour=3/c.ndjson"]
    assert {path.removeprefix(f"{logs}/") for path in found.skipped} == set(ENGINES_OWN)
    checked = check_log([str(logs)])
    assert (checked.facts["files"]["count"], checked.facts["files"]["skipped"]) == (4, len(ENGINES_OWN))


def test_a_pattern_gives_the_folders_that_it_matches_in_depth_and_hidden_files_where_it_spells_them(logs):
    assert names(expand(f"{logs}/day=*", {}), logs) == ["day=1/b.ndjson", "day=2/hour=3/c.ndjson"]
    everything = expand(f"{logs}/*", {})
    assert everything.paths == expand(str(logs), {}).paths
    assert names(expand(f"{logs}/_temporary/*", {}), logs) == ["_temporary/0/part-1"]
    assert names(expand(f"{logs}/_[cs]*_17", {}), logs) == ["_committed_17", "_started_17"]
    assert names(expand(f"{logs}/_SUCCESS", {}), logs) == ["_SUCCESS"]
    assert names(find_files([f"{logs}/day=1", f"{logs}/day=*", f"{logs}/_SUCCESS"]), logs) == [
        "day=1/b.ndjson",
        "day=2/hour=3/c.ndjson",
        "_SUCCESS",
    ]


def test_a_folder_of_hidden_files_alone_is_an_error_that_counts_them(logs):
    (logs / "_temporary/0/part-1").rename(logs / "_temporary/0/_part")
    with pytest.raises(UsageError, match=r"There is no file .*_temporary/0/\* \(1 hidden ones"):
        find_files([f"{logs}/_temporary/0/*"])


def test_a_table_below_a_folder_gives_the_files_of_its_current_version(tmp_path):
    for mode in ("append", "overwrite"):
        write_deltalake(str(tmp_path / "lake/shop/log"), pa.table({"q": ["lamp"]}), mode=mode)
    write_deltalake(str(tmp_path / "lake/_old/log"), pa.table({"q": ["lamp"]}))
    lake = (tmp_path / "lake").rename(tmp_path / "lake [2026]")  # where deltalake reads, and cannot write
    (lake / "plain.parquet").write_bytes(b"PAR1")
    current = expand(str(lake / "shop/log"), {}).paths
    assert (len(list((lake / "shop/log").glob("*.parquet"))), len(current)) == (2, 1)
    for name in ("shop/log/*.parquet", "shop/l?g/*", "[s]hop/log", "sho*", "*/log/part*"):
        assert expand(str(lake / name), {}).paths == current, name
    assert expand(str(lake), {}).paths == [str(lake / "plain.parquet"), *current]
    assert expand(str(tmp_path / "*" / "*" / "*" / "*.parquet"), {}).paths == current


@pytest.mark.parametrize("name", [".hoodie/hoodie.properties", "day=1/.hoodie_partition_metadata"])
def test_a_hudi_table_is_refused_wherever_it_is(tmp_path, name):
    table = tmp_path / "lake/table"
    for file in (name, "day=1/part.parquet"):
        (table / file).parent.mkdir(parents=True, exist_ok=True)
        (table / file).write_bytes(b"")
    for log in (tmp_path / "lake", table, table / "day=1", table / "day=1/*.parquet", table / "day=1/part.parquet"):
        with pytest.raises(UsageError, match="Hudi") as error:
            expand(str(log), {})
        assert "snapshot" in error.value.fix


def test_a_folder_that_may_not_be_read_and_a_broken_link_are_errors_that_name_them(logs, monkeypatch):
    (logs / "day=1/e.ndjson").symlink_to("nowhere")
    with pytest.raises(StageError, match=r"day=1/e\.ndjson cannot be read"):
        open_source(IngestConfig()).plan([str(logs)])
    scan = os.scandir

    def no_hours(folder):
        if str(folder).endswith("hour=3"):
            raise PermissionError(13, "Permission denied", folder)
        return scan(folder)

    monkeypatch.setattr(os, "scandir", no_hours)
    with pytest.raises(StageError, match=r"day=2/hour=3 cannot be read: Permission denied"):
        find_files([str(logs)])


def test_what_can_be_read_once_is_refused(tmp_path, logs):
    os.mkfifo(tmp_path / "pipe")
    for log, found in (("-", "Standard input"), ("/dev/stdin", "Standard input"), (str(tmp_path / "pipe"), "The pipe")):
        with pytest.raises(UsageError, match=f"^{found}.* can be read once") as error:
            find_files([log])
        assert "> log.ndjson" in error.value.fix
    with pytest.raises(UsageError, match="klingon:// is an address of a kind that is not known"):
        find_files(["klingon://log"])
    os.mkfifo(logs / "pipe")
    assert len(find_files([f"{logs}/*"]).paths) == 4


def test_folders_of_an_object_store_are_read_as_those_of_this_machine(logs):
    for file in logs.rglob("*"):
        if file.is_file():
            storage.write_atomic(f"memory://depth/{file.relative_to(logs)}", file.read_bytes())
    for pattern in ("", "day=*", "*/*", "_temporary/*", "a.ndjson", "d?y=1/b.ndjson"):
        here, there = expand(f"{logs}/{pattern}", {}), expand(f"memory://depth/{pattern}", {})
        assert names(there, "memory:///depth") == names(here, logs)
        assert len(there.skipped) == len(here.skipped)
    rows, _, _ = read_all(["memory://depth/day=*"], IngestConfig())
    assert len(rows) == 2
