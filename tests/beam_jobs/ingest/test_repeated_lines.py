"""One line repeated without end: exactly counted, in memory that does not grow with it."""

import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clicktower.beam_jobs.compiled.log_library import library
from clicktower.beam_jobs.ingest.ingest_job import distinct_rows
from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, ingest_log
from clicktower.beam_jobs.sources import ubi
from clicktower.beam_jobs.sources.mapping import Events
from clicktower.schemas.ledger import Ledger
from tests.beam_jobs.sources.ubi_lines import event, search

KINDS = ubi.kinds_of_actions(Events())


@given(st.lists(st.sampled_from("abcde"), max_size=40))
def test_of_each_line_of_a_block_the_first_goes_on(ids):
    rows = ubi.parse_block(b"".join(search(name, f"lamp {name}") + b"\n" for name in ids), KINDS).rows
    assert distinct_rows(rows)["query_id"].to_pylist() == list(dict.fromkeys(ids))


@pytest.mark.skipif(library() is None, reason="only compiled code has memory of its own")
def test_the_rows_that_go_on_do_not_keep_the_memory_of_their_block():
    everyday = ubi.everyday_rows((event("q1", "click", "D1") + b"\n") * 500, KINDS)
    distinct = distinct_rows(everyday.rows)
    del everyday
    gc.collect()
    assert len(distinct) == 1
    assert [held for held in gc.get_objects() if type(held) is ubi._Columns] == []
    assert distinct["application"].to_pylist() == ["shop"]


@pytest.mark.slow
def test_every_repeat_is_counted_however_blocks_and_files_are_cut(tmp_path, monkeypatch):
    lines = [search("q1", "lamp"), *[event("q1", "click", "D1")] * 1500, *[event("q1", "click", "D2")] * 700]
    (tmp_path / "a.ndjson").write_bytes(b"".join(line + b"\n" for line in lines))
    (tmp_path / "b.ndjson").write_bytes(b"".join(line + b"\n" for line in reversed(lines)))
    ledgers = set()
    for range_bytes in (32 << 20, 3_000):
        monkeypatch.setattr("clicktower.beam_jobs.sources.read_lines.RANGE_BYTES", range_bytes)
        store = str(tmp_path / f"store-{range_bytes}")
        day = ingest_log([str(tmp_path / "*.ndjson")], store=store, config=IngestConfig())
        ledgers.add(str(day.manifest.outcome.ledger))
    assert ledgers == {str(Ledger(total=4402, lines={"repeat": 4399, "day_search": 1, "day_click": 2}))}
