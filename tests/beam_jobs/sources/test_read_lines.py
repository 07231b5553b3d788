"""Reading: every byte of every file is in exactly one block, and blocks begin and end where lines do."""

import gzip
import random
from itertools import pairwise

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, open_source
from clicktower.beam_jobs.sources.read_lines import Unit, plan_reading, read_blocks
from clicktower.schemas.errors import StageError

DATA = st.lists(st.sampled_from([b"a", b"bb\r", b"", b"line of some length"]), max_size=30).map(b"\n".join)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("log") / "log"


@given(data=DATA, cuts=st.lists(st.integers(0, 400), max_size=4), block=st.integers(1, 50))
def test_ranges_hold_each_line_once_in_order_whatever_the_cuts_and_the_block(file, data, cuts, block):
    file.write_bytes(data)
    edges = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    units = [Unit(file=str(file), start=a, end=b, kind="plain") for a, b in pairwise(edges)]
    _assert_whole([b for unit in units for b in read_blocks(unit, block)], data)


@given(data=DATA, block=st.integers(1, 50))
def test_a_gzip_file_of_several_members_is_one_stream(file, data, block):
    middle = len(data) // 2
    file.write_bytes(gzip.compress(data[:middle]) + gzip.compress(data[middle:]))
    size = file.stat().st_size
    blocks = list(read_blocks(Unit(file=str(file), start=0, end=size, kind="gzip"), block))
    _assert_whole(blocks, data)


@given(data=DATA, block=st.integers(1, 50))
def test_a_zstd_file_of_several_frames_is_one_stream(file, data, block):
    middle = len(data) // 2
    file.write_bytes(b"".join(_zstd(part) for part in (data[:middle], data[middle:])))
    size = file.stat().st_size
    blocks = list(read_blocks(Unit(file=str(file), start=0, end=size, kind="zstd"), block))
    _assert_whole(blocks, data)
    assert sum(block.stored_bytes for block in blocks) <= size


def _zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)  # as the command line tool writes it


@pytest.mark.parametrize("pack", [gzip.compress, _zstd])
def test_packed_data_that_are_cut_or_damaged_are_an_error_that_says_how_far_they_were_good(tmp_path, pack):
    rng = random.Random(0)
    whole = b"".join(b"%x\n" % rng.getrandbits(256) for _ in range(5000))
    packed = pack(whole)
    flipped = bytearray(packed)
    flipped[len(packed) // 2] ^= 0xFF
    for bad, found in ((packed[:-20], "ends in the middle"), (packed[: len(packed) // 2], "ends in the middle"),
                       (bytes(flipped), "damaged"), (packed + b"garbage behind it", "damaged")):  # fmt: skip
        (tmp_path / "log").write_bytes(bad)
        (unit,) = plan_reading([str(tmp_path / "log")]).units
        with pytest.raises(StageError, match=found) as caught:
            list(read_blocks(unit, 1000))
        assert "can be read" in caught.value.problem
        readable = int(caught.value.problem.split(";")[1].split()[0].replace(",", ""))
        assert 0 <= readable <= len(whole)


@pytest.mark.parametrize(("name", "content", "found"), [
    ("log.zst", b"{}\n", "is named like a zstd file"), ("log.gz", _zstd(b"{}\n"), "is named like a gzip file"),
    ("log.bz2", b"BZh91AY", "bzip2"), ("log", b"\xfd7zXZ\x00\x00", "xz"), ("log", b"PK\x03\x04..", "zip"),
    ("log", b"PAR1....", "--format parquet"), ("log", b"ARROW1..", "Arrow"),
])  # fmt: skip
def test_a_file_of_another_kind_is_told_by_its_first_bytes(tmp_path, name, content, found):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(StageError, match=found):
        plan_reading([str(tmp_path / name)])


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path):
    line = b'{"query_id": "a", "user_query": "x"}\n'
    (tmp_path / "log").write_bytes(b"\xef\xbb\xbf" + line + b"bad\n")
    source = open_source(IngestConfig())
    (unit,) = source.plan([str(tmp_path / "log")]).units
    (block,) = source.read(unit)
    assert (block.rows.num_rows, block.reject_offsets.tolist()) == (1, [3 + len(line)])


def _assert_whole(blocks, data):
    assert b"".join(block.data for block in blocks) == data
    assert all(block.data.endswith(b"\n") for block in blocks[:-1])
    assert [block.offset for block in blocks] == [sum(len(b.data) for b in blocks[:n]) for n in range(len(blocks))]
    lines = data.split(b"\n")
    assert sum(block.num_lines for block in blocks) == len(lines) - (lines[-1] == b"")


def test_a_big_plain_file_is_many_units_and_a_gzip_file_one(tmp_path, monkeypatch):
    monkeypatch.setattr("clicktower.beam_jobs.sources.read_lines.RANGE_BYTES", 10)
    (tmp_path / "a.ndjson").write_bytes(b"x\n" * 12)
    (tmp_path / "b.gz").write_bytes(gzip.compress(b"x\n" * 12))
    plan = plan_reading([str(tmp_path), str(tmp_path / "a.*")])
    assert [(unit.start, unit.end) for unit in plan.units if unit.kind == "plain"] == [(0, 10), (10, 20), (20, 24)]
    assert sum(unit.kind == "gzip" for unit in plan.units) == 1
    assert len(plan.files) == 2  # a file that is named twice is read once
