"""Tables between two steps: the same rows by value and by reference, and a clear end where the scratch files fail."""

import os

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.testing.util import assert_that
from hypothesis import given
from hypothesis import strategies as st

from clicktower.beam_jobs.engine import exchange
from clicktower.beam_jobs.engine.arrow_files import get, put
from clicktower.beam_jobs.engine.engine_options import exchange_scratch
from clicktower.beam_jobs.engine.exchange import Exchange
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError

ROWS = st.lists(st.tuples(st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=9), st.integers(0, 9)))


def table_of(rows) -> pa.Table:
    texts = pa.array([text for text, _ in rows], pa.string())
    return pa.table(
        [texts, texts.dictionary_encode(), pa.array([number for _, number in rows], pa.int64())],
        names=["text", "code", "number"],
    )


@given(st.lists(ROWS, min_size=1, max_size=4))
def test_rows_come_back_the_same_by_value_and_by_reference(tmp_path_factory, groups):
    tables = [table_of(rows) for rows in groups]
    for scratch in (None, str(tmp_path_factory.mktemp("scratch")), "memory://scratch"):
        records = put(tables, scratch)
        assert all(isinstance(record, bytes) == (scratch is None) for record in records)
        for table, record in zip(tables, records, strict=True):
            assert get([record]).to_pydict() == table.to_pydict()
        assert get(records).to_pydict() == pa.concat_tables(tables).unify_dictionaries().to_pydict()


def test_all_records_of_one_put_lie_in_one_file(tmp_path):
    records = put([table_of([("a", n)]) for n in range(50)], str(tmp_path))
    assert len({uri for uri, _, _ in records}) == 1
    assert [first for _, first, _ in records][1:] == [first + size for _, first, size in records][:-1]
    assert sum(size for _, _, size in records) == os.path.getsize(records[0][0])


@pytest.mark.parametrize("spoil", [os.unlink, lambda path: os.truncate(path, 100)])
def test_a_scratch_file_that_was_touched_stops_the_job_and_says_so(tmp_path, spoil):
    record = put([table_of([("a", 1)])], str(tmp_path))[0]
    spoil(record[0])
    with pytest.raises(StageError, match=r"Intermediate rows cannot be read back from"):
        get([record])


@pytest.mark.parametrize(
    ("options", "by_reference"),
    [
        ([], True),
        (["--runner=DirectRunner"], True),
        (["--runner=PrismRunner"], True),
        (["--runner=FlinkRunner", "--flink_master=[local]"], False),
        (["--runner=DataflowRunner"], False),
    ],
)
def test_runners_that_keep_elements_in_memory_are_handed_references(options, by_reference):
    with exchange_scratch(options, "s") as scratch:
        assert scratch == ("s" if by_reference else None)


@pytest.mark.parametrize("by_reference", [True, False])
def test_an_exchange_cuts_what_it_gathered_whenever_that_is_enough(tmp_path, monkeypatch, by_reference):
    monkeypatch.setattr(exchange, "GATHER_BYTES", 2_000)  # about every fourth table
    tables = [
        pa.table({"key": [f"k{n % 13}" for n in range(40)], "row": [f"{t}-{n}" for n in range(40)]}) for t in range(30)
    ]

    def check(buckets):
        rows = [row for _, bucket in buckets for row in bucket["row"].to_pylist()]
        assert sorted(rows) == sorted(f"{t}-{n}" for t in range(30) for n in range(40))
        homes = {(key, number) for number, bucket in buckets for key in bucket["key"].to_pylist()}
        assert len(homes) == 13

    scratch = str(tmp_path / "scratch") if by_reference else None
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        assert_that(pipeline | beam.Create(tables) | Exchange("By key", "key", 4, scratch), check)
    files = storage.list_files(str(tmp_path / "scratch"))
    assert (5 < len(files) < 30) if by_reference else not files
