"""Reading: every byte of every file is in exactly one block, and blocks begin and end where lines do."""

import gzip
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_jobs.read_lines import Unit, plan_reading, read_blocks
from schemas.errors import StageError

DATA = st.lists(st.sampled_from([b"a", b"bb\r", b"", b"line of some length"]), max_size=30).map(b"\n".join)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("log") / "log"


@given(data=DATA, cuts=st.lists(st.integers(0, 400), max_size=4), block=st.integers(1, 50))
def test_ranges_hold_each_line_once_in_order_whatever_the_cuts_and_the_block(file, data, cuts, block):
    file.write_bytes(data)
    edges = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    units = [Unit(file=str(file), start=a, end=b, is_gzip=False) for a, b in pairwise(edges)]
    _assert_whole([b for unit in units for b in read_blocks(unit, block)], data)


@given(data=DATA, block=st.integers(1, 50))
def test_a_gzip_file_of_several_members_is_one_stream(file, data, block):
    middle = len(data) // 2
    file.write_bytes(gzip.compress(data[:middle]) + gzip.compress(data[middle:]))
    size = file.stat().st_size
    blocks = list(read_blocks(Unit(file=str(file), start=0, end=size, is_gzip=True), block))
    _assert_whole(blocks, data)


def _assert_whole(blocks, data):
    assert b"".join(block.data for block in blocks) == data
    assert all(block.data.endswith(b"\n") for block in blocks[:-1])
    assert [block.offset for block in blocks] == [sum(len(b.data) for b in blocks[:n]) for n in range(len(blocks))]
    lines = data.split(b"\n")
    assert sum(block.num_lines for block in blocks) == len(lines) - (lines[-1] == b"")


def test_a_big_plain_file_is_many_units_and_a_gzip_file_one(tmp_path, monkeypatch):
    monkeypatch.setattr("beam_jobs.read_lines.RANGE_BYTES", 10)
    (tmp_path / "a.ndjson").write_bytes(b"x\n" * 12)
    (tmp_path / "b.gz").write_bytes(gzip.compress(b"x\n" * 12))
    plan = plan_reading([str(tmp_path), str(tmp_path / "a.*")])
    assert [(unit.start, unit.end) for unit in plan.units if not unit.is_gzip] == [(0, 10), (10, 20), (20, 24)]
    assert sum(unit.is_gzip for unit in plan.units) == 1
    assert len(plan.files) == 2  # a file that is named twice is read once


def test_garbage_after_a_gzip_stream_is_damage(tmp_path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"x\n") + b"garbage")
    (unit,) = plan_reading([str(tmp_path / "a.gz")]).units
    with pytest.raises(StageError, match="damaged"):
        list(read_blocks(unit))
