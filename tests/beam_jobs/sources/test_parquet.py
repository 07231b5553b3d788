"""Parquet: rows as Polars reads them, row groups as units, clear errors for files that do not fit."""

from datetime import UTC, datetime

import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clicktower.beam_jobs.checking.check_log import check_log
from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, open_source
from clicktower.beam_jobs.sources.mapping import Columns, Mapping
from clicktower.schemas.errors import StageError, UsageError
from tests.beam_jobs.ingest.source_rows import read_all

MAPPING = Mapping(
    columns=Columns(client_id="user.id", query="q", document_id="doc", position="rank", time="at"), time_format="iso"
)


def _config(mapping=MAPPING):
    return IngestConfig(format="parquet", mapping=mapping)


def _table(num_rows=1000, seed=0):
    rng = np.random.default_rng(seed)
    user = pa.StructArray.from_arrays([pa.array(rng.integers(0, 50, num_rows))], ["id"])
    return pa.table(
        {
            "user": user,
            "q": pa.array([f"query {n}" for n in rng.integers(0, 99, num_rows)]).dictionary_encode(),
            "doc": pa.array([None if n < 3 else f"D{n}" for n in rng.integers(0, 9, num_rows)], pa.large_string()),
            "rank": pa.array([None if n == 0 else float(n) for n in rng.integers(0, 9, num_rows)]),
            "at": pa.array(10**15 + rng.integers(0, 2**40, num_rows), pa.timestamp("us")),
            "tags": pa.array([["a"]] * num_rows),
        }
    )


def test_rows_agree_with_polars_and_places_are_row_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr("clicktower.beam_jobs.sources.read_lines.RANGE_BYTES", 4000)
    monkeypatch.setattr("clicktower.beam_jobs.sources.parquet.BATCH_ROWS", 33)
    log = tmp_path / "log.parquet"
    pq.write_table(_table(), log, row_group_size=100)
    units = open_source(_config()).plan([str(log)]).units
    assert len(units) > 2
    assert (units[0].start, units[-1].end) == (0, 10)
    rows, rejects, num_lines = read_all([log], _config())
    frame = polars.read_parquet(log).with_columns(
        client_id=polars.col("user").struct.field("id").cast(str),
        kind=polars.when(polars.col("doc").is_null()).then(polars.lit("search")).otherwise(polars.lit("click")),
        position=polars.col("rank").cast(int).fill_null(-1),
        time=polars.col("at").dt.truncate("1ms").dt.replace_time_zone("UTC"),
    )
    names = ["kind", "client_id", "query", "document_id", "position", "time"]
    expected = frame.select("kind", "client_id", polars.col("q").cast(str), "doc", "position", "time").rows()
    assert [tuple(row[name] for name in names) for row in rows] == expected
    assert (rejects, num_lines) == ([], 1000)


def test_bad_text_costs_its_row_and_a_bad_rank_does_not(tmp_path):
    invalid = pa.Array.from_buffers(
        pa.string(), 3, [*pa.array(["ab", "c", "d"]).buffers()[:2], pa.py_buffer(b"a\xffcd")]
    )
    table = pa.table({"q": invalid, "doc": ["D1", "D2", "D3"], "rank": [1, -4, 3]})
    pq.write_table(pa.concat_tables([table] * 2), tmp_path / "log.parquet")
    mapping = Mapping(columns=Columns(query="q", document_id="doc", position="rank"))
    rows, rejects, _ = read_all([tmp_path / "log.parquet"], _config(mapping))
    assert [(row["query"], row["position"]) for row in rows] == [("c", -1), ("d", 3)] * 2
    assert [(place, reason) for _, place, reason in rejects] == [(0, "unreadable_not_utf8"), (3, "unreadable_not_utf8")]


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32(), pa.decimal128(30, 2), pa.decimal256(40, 0)])
def test_ids_that_came_through_floats_are_whole_numbers_again(tmp_path, kind):
    numbers = pa.array([10, 101, None]).cast(pa.float64() if pa.types.is_floating(kind) else pa.int64()).cast(kind)
    table = pa.table({"who": numbers, "q": ["a"] * 3, "doc": numbers})
    pq.write_table(table, tmp_path / "log.parquet")
    rows, rejects, _ = read_all([tmp_path / "log.parquet"], _config(NUMBERED))
    assert [(row["client_id"], row["document_id"]) for row in rows] == [("10", "10"), ("101", "101"), (None, None)]
    assert rejects == []


NUMBERED = Mapping(columns=Columns(client_id="who", query="q", document_id="doc"))


def test_a_float_that_cannot_be_an_id_costs_its_row_and_no_number_at_all_is_none(tmp_path):
    nan = float("nan")
    doc, rank = pa.array([1.5, 2.0**53 + 2, nan, 7, 8]), pa.array([1, 1, nan, nan, 2.5])
    table = pa.table({"q": ["a"] * 5, "doc": doc, "rank": rank})
    pq.write_table(table, tmp_path / "log.parquet")
    mapping = Mapping(columns=Columns(query="q", document_id="doc", position="rank"))
    source = open_source(_config(mapping))
    (block,) = [block for unit in source.plan([str(tmp_path / "log.parquet")]).units for block in source.read(unit)]
    assert block.reject_reasons == ["unreadable_field"] * 2
    names = ("kind", "document_id", "position")
    assert [tuple(row[name] for name in names) for row in block.rows.to_pylist()] == [
        ("search", None, -1), ("click", "7", -1), ("click", "8", -1),
    ]  # fmt: skip
    assert block.wrong_values == {"document_id: a fraction, or a float too large for an id": 2, "position: a number": 1}


def _hashes(log, mapping):
    source = open_source(_config(mapping))
    return [
        line_hash
        for unit in source.plan([str(log)]).units
        for block in source.read(unit)
        for line_hash in block.rows["line_hash"].to_pylist()
    ]


def test_rows_are_repeats_if_all_mapped_columns_agree_and_line_id_tells_them_apart(tmp_path):
    table = pa.table({"q": ["a", "a", "a1", "a"], "doc": ["1x", "1x", "x", None], "id": [1, 2, 3, 4]})
    pq.write_table(table, tmp_path / "log.parquet")
    hashes = _hashes(tmp_path / "log.parquet", Mapping(columns=Columns(query="q", document_id="doc")))
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 3
    apart = Mapping(columns=Columns(query="q", document_id="doc", line_id="id"))
    assert len(set(_hashes(tmp_path / "log.parquet", apart))) == 4


def test_moments_of_another_unit_or_zone_are_the_same_line(tmp_path):
    moment = datetime(2026, 9, 1, tzinfo=UTC)
    rows = []
    for number, kind in enumerate([pa.timestamp("s"), pa.timestamp("ns", tz="Europe/Berlin")]):
        table = pa.table({"q": ["a"], "doc": ["D"], "at": pa.array([moment], pa.timestamp("s")).cast(kind)})
        table = table if number else pa.table({"q": ["a"], "doc": ["D"], "at": pa.array([moment], pa.timestamp("us"))})
        pq.write_table(table, tmp_path / "log.parquet")
        mapping = Mapping(columns=Columns(query="q", document_id="doc", time="at"))
        rows.append(read_all([tmp_path / "log.parquet"], _config(mapping))[0])
    assert rows[0][0]["time"] == rows[1][0]["time"] == moment


def test_a_missing_column_and_a_type_of_no_use_are_named(tmp_path):
    log = tmp_path / "log.parquet"
    pq.write_table(_table(), log)
    with pytest.raises(
        UsageError, match=r"'user\.id', 'q', 'doc', 'rank', 'at' and 1 that is not.*.did you mean 'doc'"
    ):
        read_all([log], _config(Mapping(columns=Columns(query="q", document_id="docs"))))
    with pytest.raises(UsageError, match="it as a list"):
        read_all([log], _config(Mapping(columns=Columns(query="q", document_id="tags"))))
    with pytest.raises(UsageError, match="it as double"):
        read_all([log], _config(Mapping(columns=Columns(query="q", document_id="doc", event="rank"))))


def test_two_files_of_different_forms_are_both_named_unless_the_mapped_columns_agree(tmp_path):
    mapping = Mapping(columns=Columns(query="q", document_id="doc"))
    for name, columns in {"1": {"q": ["a"], "doc": ["D"]}, "2": {"q": ["a"], "doc": [7], "more": [1]},
                          "3": {"q": ["a"], "document": ["D"]}, "4": {"q": ["a"], "doc": [[1]]}}.items():  # fmt: skip
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    rows, _, _ = read_all([tmp_path / "1.parquet", tmp_path / "2.parquet"], _config(mapping))
    assert [row["document_id"] for row in rows] == ["D", "7"]
    with pytest.raises(UsageError, match=r"1\.parquet has it and .*3\.parquet has not"):
        read_all([tmp_path / "1.parquet", tmp_path / "3.parquet"], _config(mapping))
    with pytest.raises(UsageError, match=r"4\.parquet has it as a list or a map, while .*1\.parquet has string"):
        read_all([tmp_path / "1.parquet", tmp_path / "4.parquet"], _config(mapping))


@pytest.mark.parametrize("content", [b"q,doc\na,D1\n", b"PAR1", b"PAR1" + b"x" * 100 + b"PAR1"])
def test_what_is_no_parquet_is_an_error(tmp_path, content):
    (tmp_path / "log.parquet").write_bytes(content)
    with pytest.raises(StageError, match=r"Nothing of it was kept."):
        read_all([tmp_path / "log.parquet"], _config())


def test_a_cut_or_damaged_file_is_an_error_at_the_latest_where_it_is_read(tmp_path):
    log = tmp_path / "log.parquet"
    pq.write_table(_table(50_000), log)
    whole = log.read_bytes()
    log.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StageError, match="cut off"):
        read_all([log], _config())
    log.write_bytes(whole[:4] + bytes(len(whole) // 2) + whole[4 + len(whole) // 2 :])
    with pytest.raises(StageError, match="damaged"):
        read_all([log], _config())


def test_empty_files_and_no_rows(tmp_path):
    (tmp_path / "empty.parquet").touch()
    with pytest.raises(StageError, match="is empty"):
        read_all([tmp_path / "empty.parquet"], _config())
    pq.write_table(_table(0), tmp_path / "none.parquet")
    assert read_all([tmp_path / "none.parquet"], _config()) == ([], [], 0)


@pytest.mark.parametrize("name", ["_rowid", "a`b", "a.b", "a..b", ".", "x y", "'"])
def test_a_column_of_any_name_is_read(tmp_path, name):
    table = pa.table({"q": ["lamp"], "d": ["D1"], name: ["c1"], "": ["none"]})
    pq.write_table(table, tmp_path / "log.parquet")
    mapping = Mapping(columns=Columns(query="q", document_id="d", client_id=name))
    rows, _, _ = read_all([tmp_path / "log.parquet"], _config(mapping))
    assert [row["client_id"] for row in rows] == ["c1"]
    assert check_log([str(tmp_path / "log.parquet")], log_format="parquet", mapping=mapping).can_be_ingested


def test_two_columns_of_one_path_cannot_be_told_apart_by_it(tmp_path):
    inner = pa.StructArray.from_arrays([pa.array(["c2"])], ["id"])
    for number, twice in enumerate((["user.id", "user"], ["user.id", "user.id"])):
        columns = [pa.array(["lamp"]), pa.array(["D1"]), pa.array(["c1"]), inner if twice[1] == "user" else ["c2"]]
        pq.write_table(pa.table(columns, names=["q", "d", *twice]), tmp_path / f"{number}.parquet")
        mapping = Mapping(columns=Columns(query="q", document_id="d", client_id="user.id"))
        with pytest.raises(UsageError, match="2 columns of that name"):
            read_all([tmp_path / f"{number}.parquet"], _config(mapping))
