"""Delta and Iceberg tables: the rows that their own libraries read, whatever lies beside them."""

import io
import json
import shutil
import struct
import sys
import zlib
from contextlib import contextmanager
from pathlib import Path

import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField, StringType, StructType
from pyroaring import BitMap64

from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, ingest_log
from clicktower.beam_jobs.sources.log_files import Tables
from clicktower.beam_jobs.sources.log_files import expand as expand_log
from clicktower.beam_jobs.sources.mapping import Columns, Mapping
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, UsageError
from tests.beam_jobs.ingest.source_rows import read_all
from tests.s3_server import S3Server

ROWS = pa.table(
    {
        "day": ["1", "1", "1", "2", "2"],
        "person": ["c1", "c2", "c3", "c1", "c2"],
        "query": ["red hammer", "red hammer", "blue saw", "drill", "red hammer"],
        "doc": ["d1", "d1", None, "d3", "d1"],
    }
)
CONFIG = IngestConfig(
    format="parquet", mapping=Mapping(columns=Columns(client_id="person", query="query", document_id="doc"))
)


def expand(log: str, tables: Tables) -> list[str]:
    return expand_log(log, tables).paths


@pytest.fixture
def delta(tmp_path) -> Path:
    """ROWS twice, without the drill, by day."""
    write_delta(str(tmp_path / "delta"))
    return tmp_path / "delta"


@pytest.fixture
def iceberg(tmp_path):
    """As `delta`, by the catalogue that wrote it."""
    with write_iceberg(tmp_path, f"file://{tmp_path}/lake") as table:
        yield table


def write_delta(folder: str) -> None:
    for _ in range(2):
        write_deltalake(folder, ROWS, mode="append", partition_by=["day"])
    DeltaTable(folder).delete("query = 'drill'")


@contextmanager
def write_iceberg(tmp_path: Path, warehouse: str):
    properties = {"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"}
    catalogue = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/lake.db", warehouse=warehouse, **properties)
    catalogue.create_namespace("shop")
    table = catalogue.create_table("shop.log", schema=ROWS.schema)
    with table.update_spec() as spec:
        spec.add_identity("day")
    for _ in range(2):
        table.append(ROWS)
    table.delete("query = 'drill'")
    yield table
    catalogue.close()


def folder_of(table) -> Path:
    return Path(table.location().removeprefix("file://"))


def read(files: list[str]) -> list[tuple]:
    """Without the day, which Delta keeps in the names of folders alone."""
    return sorted(polars.concat(polars.read_parquet(file) for file in files).select("person", "query", "doc").rows())


def test_a_delta_table_and_its_partitions_are_read_without_the_files_of_earlier_versions(delta):
    expected = polars.from_arrow(ROWS).filter(polars.col("query") != "drill").drop("day")
    assert len(list(delta.glob("day=*/*.parquet"))) > len(expand(str(delta), {}))
    assert read(expand(str(delta), {})) == sorted(2 * expected.rows())
    assert expand(str(delta / "*/*.parquet"), {}) == expand(str(delta), {})
    of_day = [file for file in expand(str(delta), {}) if "day=2" in file]
    for name in ("day=2", "day=2/", "day=2/*", "day=2/*.parquet"):
        assert expand(f"{delta}/{name}", {}) == of_day


def test_partitions_with_names_that_are_escaped_are_read(tmp_path):
    rows = pa.table({"query": ["a", "b", "c", "d"], "shop": ["a b", "x/y", "ü%", "[1]"]})
    write_deltalake(str(tmp_path / "delta"), rows, partition_by=["shop"])
    files = expand(str(tmp_path / "delta"), {})
    assert sorted(pq.ParquetFile(file).read()["query"][0].as_py() for file in files) == ["a", "b", "c", "d"]
    assert expand(f"{tmp_path}/delta/shop=*", {}) == files


def test_an_iceberg_table_and_its_partitions_are_read_without_the_files_of_earlier_versions(iceberg):
    folder, whole = folder_of(iceberg), polars.from_arrow(iceberg.scan().to_arrow())
    files = expand(str(folder), {})
    assert len(list(folder.glob("data/day=*/*.parquet"))) > len(files)
    assert read(files) == sorted(whole.drop("day").rows())
    assert expand(iceberg.metadata_location, {}) == files
    for name in (folder / "data/day=2", f"file:{folder}/data/day=2", f"file://{folder}/data/day=2"):
        assert expand(str(name), {}) == [file for file in files if "day=2" in file]


def test_an_older_version_of_an_iceberg_table_is_the_one_that_its_metadata_names(iceberg):
    before = iceberg.metadata_location
    iceberg.append(ROWS)
    assert len(expand(iceberg.metadata_location, {})) > len(expand(before, {}))


def test_two_newest_versions_of_an_iceberg_table_are_an_error_that_asks_for_one(iceberg):
    newest = Path(iceberg.metadata_location.removeprefix("file://"))
    shutil.copy(newest, newest.with_name(newest.name[:6] + "lost.metadata.json"))
    with pytest.raises(UsageError, match="2 newest versions"):
        expand(str(folder_of(iceberg)), {})
    assert expand(str(newest), {})


def read_rows(log: Path | str, **columns: str) -> list[tuple]:
    mapping = Mapping(columns=Columns(**columns))
    rows, rejects, _ = read_all([log], IngestConfig(format="parquet", mapping=mapping))
    assert not rejects
    return sorted((tuple(row[name] for name in columns) for row in rows), key=str)


def scanned(table, *columns: str) -> list[tuple]:
    return sorted(polars.from_arrow(table.scan().to_arrow()).select(columns).rows(), key=str)


def test_iceberg_columns_that_swapped_their_names_are_read_by_their_numbers(iceberg):
    for old, new in (("query", "held"), ("doc", "query"), ("held", "doc")):
        with iceberg.update_schema() as change:
            change.rename_column(old, new)
    iceberg.append(ROWS.filter(pc.is_valid(ROWS["doc"])))
    iceberg.delete("query is null")
    rows = read_rows(folder_of(iceberg), client_id="person", query="query", document_id="doc")
    assert rows == scanned(iceberg, "person", "query", "doc")
    assert ("c1", "red hammer", "d1") in rows
    assert ("c1", "d1", "red hammer") in rows


def test_the_values_of_a_dropped_column_do_not_return_under_its_name(iceberg):
    with iceberg.update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("query")
    with iceberg.update_schema() as change:
        change.add_column("query", StringType())
    iceberg.append(ROWS)
    rows = read_rows(folder_of(iceberg), query="person", document_id="doc", application="query")
    assert rows == scanned(iceberg, "person", "doc", "query")
    assert {application for _, _, application in rows} == {None, *ROWS["query"].to_pylist()}


def test_names_within_structs_follow_their_fields_too(iceberg):
    with iceberg.update_schema() as change:
        change.add_column(
            "who", StructType(NestedField(100, "id", StringType()), NestedField(101, "name", StringType()))
        )
    people = pa.array([{"id": "c7", "name": "Ann"}], pa.struct([("id", pa.string()), ("name", pa.string())]))
    iceberg.append(pa.table({**ROWS.slice(0, 1).to_pydict(), "who": people}))
    for old, new in (("who.id", "held"), ("who.name", "id")):
        with iceberg.update_schema() as change:
            change.rename_column(old, new)
    rows = read_rows(folder_of(iceberg), query="query", document_id="doc", client_id="who.id", application="who.held")
    assert ("red hammer", "d1", "Ann", "c7") in rows
    assert len(rows) == len(scanned(iceberg, "query"))
    with pytest.raises(UsageError, match=r"'who\.name'"):
        read_rows(folder_of(iceberg), query="query", document_id="doc", client_id="who.name")


@pytest.mark.parametrize("has_mapping", [True, False])
def test_iceberg_files_without_numbers_need_a_name_mapping_once_the_schema_has_changed(tmp_path, has_mapping):
    properties = {"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"}
    catalogue = SqlCatalog(
        "lake", uri=f"sqlite:///{tmp_path}/lake.db", warehouse=f"file://{tmp_path}/lake", **properties
    )
    catalogue.create_namespace("shop")
    table = catalogue.create_table("shop.log", schema=ROWS.schema)
    pq.write_table(ROWS, tmp_path / "imported.parquet")
    table.add_files([f"file://{tmp_path}/imported.parquet"])
    if not has_mapping:
        with table.transaction() as change:
            change.remove_properties("schema.name-mapping.default")
    assert len(read_rows(folder_of(table), query="query", document_id="doc")) == ROWS.num_rows
    with table.update_schema() as change:
        change.rename_column("query", "typed")
    if has_mapping:
        assert read_rows(folder_of(table), query="typed", document_id="doc") == scanned(table, "typed", "doc")
    else:
        with pytest.raises(UsageError, match="does not number its columns"):
            read_rows(folder_of(table), query="typed", document_id="doc")
    catalogue.close()


def test_a_column_of_a_table_that_is_younger_than_a_file_is_null_there(delta, iceberg):
    younger = pa.table({**ROWS.to_pydict(), "app": ["web"] * ROWS.num_rows})
    write_deltalake(str(delta), younger, mode="append", schema_mode="merge")
    with iceberg.update_schema() as change:
        change.add_column("app", StringType())
    iceberg.append(younger)
    expected = scanned(iceberg, "query", "doc", "app")
    for folder in (delta, folder_of(iceberg)):
        assert read_rows(folder, query="query", document_id="doc", application="app") == expected
    assert {app for *_, app in expected} == {None, "web"}
    for name, place in (("day", "folders"), ("ap", "did you mean 'app'")):
        with pytest.raises(UsageError, match=place):
            read_rows(delta, query="query", document_id="doc", application=name)
    day = read_rows(folder_of(iceberg), query="query", document_id="doc", application="day")
    assert day == scanned(iceberg, "query", "doc", "day")


@pytest.mark.slow
def test_a_new_name_for_the_same_files_is_another_request(iceberg, tmp_path):
    """A rename changes no file of a table, and what the mapping reads from them."""
    with iceberg.update_schema() as change:
        change.rename_column("person", "seen")
    with iceberg.update_schema() as change:
        change.add_column("person", StringType())
    mapping = Mapping(columns=Columns(client_id="person", query="query", document_id="doc"))
    config = IngestConfig(format="parquet", mapping=mapping)
    first = ingest_log([str(folder_of(iceberg))], store=str(tmp_path / "store"), config=config)
    again = ingest_log([str(folder_of(iceberg))], store=str(tmp_path / "store"), config=config)
    assert (again.reused, first.manifest.outcome.counts["people"]) == (True, 0)
    with iceberg.update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("person")
    with iceberg.update_schema() as change:
        change.rename_column("seen", "person")
    renamed = ingest_log([str(folder_of(iceberg))], store=str(tmp_path / "store"), config=config)
    assert (renamed.reused, renamed.manifest.outcome.counts["people"]) == (False, 3)


@pytest.mark.slow
def test_a_table_gives_the_day_that_its_files_give(delta, tmp_path):
    of_table = ingest_log([str(delta)], store=str(tmp_path / "store"), config=CONFIG)
    again = ingest_log(expand(str(delta), {}), store=str(tmp_path / "store"), config=CONFIG)
    assert (again.reused, again.manifest.digest) == (True, of_table.manifest.digest)
    assert of_table.manifest.outcome.ledger.total == 8
    copied = tmp_path / "copied"
    copied.mkdir()
    for number, file in enumerate(expand(str(delta), {})):
        shutil.copy(file, copied / f"{number}.parquet")
    other = ingest_log([str(copied)], store=str(tmp_path / "other"), config=CONFIG)
    assert other.manifest.outcome.ledger == of_table.manifest.outcome.ledger


def test_a_log_below_a_folder_that_its_reader_may_not_see_is_read(tmp_path, monkeypatch):
    (tmp_path / "logs").mkdir()
    pq.write_table(ROWS, tmp_path / "logs/log.parquet")
    exists = storage.exists

    def only_logs(uri: str) -> bool:
        if not uri.startswith(f"{tmp_path}/logs"):
            raise PermissionError(13, "Permission denied")
        return exists(uri)

    monkeypatch.setattr(storage, "exists", only_logs)
    assert expand(str(tmp_path / "logs"), {}) == [str(tmp_path / "logs/log.parquet")]


@pytest.mark.engine
def test_tables_are_read_on_an_object_store(tmp_path, monkeypatch):
    with S3Server(tmp_path) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        write_delta("s3://bucket/delta")
        expected = sorted(2 * polars.from_arrow(ROWS).filter(polars.col("query") != "drill").drop("day").rows())
        with write_iceberg(tmp_path, "s3://bucket/lake") as table:
            for folder in ("s3://bucket/delta", "s3a://bucket/delta", table.location(), table.metadata_location):
                files = expand(folder, {})
                assert all(file.startswith("s3://bucket/") for file in files)
                tables = [pq.read_table(io.BytesIO(storage.read_bytes(file))) for file in files]
                rows = polars.concat(polars.from_arrow(part.select(["person", "query", "doc"])) for part in tables)
                assert sorted(rows.rows()) == expected


def _act(delta: Path, *actions: dict) -> None:
    """A commit of these actions."""
    version = DeltaTable(str(delta)).version() + 1
    (delta / f"_delta_log/{version:020d}.json").write_text("\n".join(map(json.dumps, actions)))


def test_a_delta_table_with_deletion_vectors_is_refused_and_read_once_it_has_none(tmp_path):
    folder = tmp_path / "delta"
    write_deltalake(str(folder), pa.table({"query": [f"q{n}" for n in range(40)]}))
    (file,) = (Path(name).name for name in expand(str(folder), {}))
    added = {"path": file, "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True,
             "stats": json.dumps({"numRecords": 40})}  # fmt: skip
    bits = struct.pack("<I", 1681511377) + BitMap64([3, 4, 7]).serialize()  # as Delta's protocol describes it
    vector = struct.pack(">BI", 1, len(bits)) + bits + struct.pack(">I", zlib.crc32(bits))
    (tmp_path / "vector.bin").write_bytes(vector)
    place = {
        "storageType": "p", "pathOrInlineDv": f"file://{tmp_path}/vector.bin", "offset": 1, "sizeInBytes": len(bits),
        "cardinality": 3,
    }  # fmt: skip
    features = {
        "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors"],
    }  # fmt: skip
    _act(folder, {"protocol": features})
    assert len(expand(str(folder), {})) == 1
    _act(folder, {"remove": added}, {"add": added | {"deletionVector": place}})
    with pytest.raises(UsageError, match="deletion vectors"):
        expand(str(folder), {})


def test_a_delta_table_that_renames_columns_is_refused(tmp_path):
    write_deltalake(str(tmp_path), ROWS)
    (first,) = (tmp_path / "_delta_log").glob("*.json")
    metadata = next(json.loads(line) for line in first.read_text().splitlines() if "metaData" in line)
    schema = json.loads(metadata["metaData"]["schemaString"])
    for number, column in enumerate(schema["fields"]):
        names = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
        column["metadata"] = names
    metadata["metaData"]["schemaString"] = json.dumps(schema)
    metadata["metaData"]["configuration"] = {"delta.columnMapping.mode": "name"}
    _act(tmp_path, {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}, metadata)
    with pytest.raises(UsageError, match="renames columns"):
        expand(str(tmp_path), {})


class _DeletesWriter(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return super()._meta | {"content": "deletes"}


def test_an_iceberg_table_with_delete_files_is_refused(iceberg, tmp_path):
    """As Flink and Trino write them; pyiceberg reads such files and writes none, so its parts are put together here."""
    folder, (file, *_) = folder_of(iceberg), expand(iceberg.metadata_location, {})
    deletes, manifest = folder / "data/deletes.parquet", f"{iceberg.location()}/metadata/deletes.avro"
    pq.write_table(pa.table({"file_path": [f"file://{file}"], "pos": [0]}), deletes)
    deleted = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES, file_path=f"file://{deletes}", file_format=FileFormat.PARQUET,
        partition=Record(file.split("day=")[1][0]), record_count=1, file_size_in_bytes=deletes.stat().st_size,
    )  # fmt: skip
    snapshot = iceberg.current_snapshot()
    number, sequence = snapshot.snapshot_id + 1, snapshot.sequence_number + 1
    with _DeletesWriter(iceberg.spec(), iceberg.schema(), iceberg.io.new_output(manifest), number, "null") as writer:
        writer.add_entry(
            ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=number, data_file=deleted)
        )
    manifests = [*snapshot.manifests(iceberg.io), writer.to_manifest_file()]
    listed = f"{iceberg.location()}/metadata/snap-deletes.avro"
    with write_manifest_list(
        2, iceberg.io.new_output(listed), number, snapshot.snapshot_id, sequence, "null"
    ) as writer:
        writer.add_manifests(manifests)
    metadata = json.loads(iceberg.metadata.model_dump_json())
    latest = next(one for one in metadata["snapshots"] if one["snapshot-id"] == snapshot.snapshot_id)
    metadata["snapshots"].append(latest | {"snapshot-id": number, "sequence-number": sequence, "manifest-list": listed})
    metadata |= {"current-snapshot-id": number, "last-sequence-number": sequence}
    metadata["refs"]["main"]["snapshot-id"] = number
    (folder / "metadata/00099-deletes.metadata.json").write_text(json.dumps(metadata))
    with pytest.raises(UsageError, match="delete files"):
        expand(str(folder), {})


@pytest.mark.parametrize("name", ["_delta_log/00000000000000000000.json", "metadata/v1.metadata.json"])
def test_a_damaged_table_is_an_error_of_one_sentence(tmp_path, name):
    (tmp_path / name).parent.mkdir()
    (tmp_path / name).write_text("{")
    with pytest.raises(StageError, match="cannot be read"):
        expand(str(tmp_path), {})


@pytest.mark.parametrize(("package", "name"), [("deltalake", "_delta_log"), ("pyiceberg", "metadata")])
def test_without_its_package_a_table_is_refused_and_not_read_as_a_folder(tmp_path, monkeypatch, package, name):
    (tmp_path / name).mkdir()
    (tmp_path / name / "v1.metadata.json").write_text("{}")
    for module in [module for module in sys.modules if module.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError, match=rf"{package} is not installed") as error:
        expand(str(tmp_path), {})
    assert "clicktower[tables]" in error.value.fix
