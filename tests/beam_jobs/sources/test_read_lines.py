"""Reading: every byte of every file is in exactly one block, and blocks begin and end where lines do."""

import gzip
import json
import random
import tarfile
from itertools import pairwise

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from clicktower.beam_jobs.checking.check_log import check_log
from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, open_source
from clicktower.beam_jobs.sources.mapping import Columns, Mapping
from clicktower.beam_jobs.sources.read_lines import Unit, plan_reading, read_blocks
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.section import named_settings
from tests.beam_jobs.ingest.source_rows import read_all

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
def test_packed_data_that_are_cut_or_damaged_are_an_error(tmp_path, pack):
    rng = random.Random(0)
    whole = b"".join(b"%x\n" % rng.getrandbits(256) for _ in range(5000))
    packed = pack(whole)
    flipped = bytearray(packed)
    flipped[len(packed) // 2] ^= 0xFF
    for bad, found in ((packed[:-20], "ends in the middle"), (packed[: len(packed) // 2], "ends in the middle"),
                       (packed[:14], "ends in the middle"),
                       (bytes(flipped), "damaged"), (packed + b"garbage behind it", "damaged")):  # fmt: skip
        (tmp_path / "log").write_bytes(bad)
        (unit,) = plan_reading([str(tmp_path / "log")]).units
        with pytest.raises(StageError, match=f"{found}.*Nothing of it was kept"):
            list(read_blocks(unit, 1000))


@pytest.mark.parametrize(("name", "content", "found"), [
    ("log.zst", b"{}\n", "is named like a zstd file"), ("log.gz", _zstd(b"{}\n"), "is named like a gzip file"),
    ("log.bz2", b"BZh91AY", "bzip2"), ("log", b"\xfd7zXZ\x00\x00", "xz"), ("log", b"PK\x03\x04..", "zip"),
    ("log", b"PAR1\x15...", "--format parquet"), ("log", b"ARROW1\0\0", "Arrow"), ("log", b"Obj\x01....", "Avro"),
    ("log.lz4", b"\x04\x22\x4d\x18....", "lz4"), ("log.7z", b"7z\xbc\xaf\x27\x1c", "7z"),
    ("log.gz", gzip.compress(gzip.compress(b"{}\n")), "packed twice"), ("log.zst", _zstd(b"PK\x03\x04"), "kind zip"),
])  # fmt: skip
def test_a_file_of_another_kind_is_told_by_its_first_bytes(tmp_path, name, content, found):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(StageError, match=found):
        plan_reading([str(tmp_path / name)])


@pytest.mark.parametrize("mode", ["w", "w:gz"])
@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
def test_an_archive_is_told_also_where_it_is_packed(tmp_path, mode, form):
    (tmp_path / "a.ndjson").write_bytes(b"{}\n")
    with tarfile.open(tmp_path / "logs", mode, format=form) as archive:
        archive.add(tmp_path / "a.ndjson", "a.ndjson")
    with pytest.raises(StageError, match="kind tar") as error:
        plan_reading([str(tmp_path / "logs")])
    assert "folder of its members" in error.value.fix


ARRAY = b'[\n  {"query_id": "a"},\n  {"query_id": "b"}\n]\n'
HITS = (
    b'{"took": 3, "_shards": {"total": 1}, "hits": {"total": {"value": 2}, "hits": [{"_source": {"query_id": "a"}}]}}\n'
)


@pytest.mark.parametrize(("content", "what", "jq"), [
    (ARRAY, "a JSON array", "'.[]'"), (b"\xef\xbb\xbf" + ARRAY, "a JSON array", "'.[]'"),
    (b'[{"action_name": "click"}, {"action_name": "click"}]\n[{"action_name": "click"}]\n', "a JSON array", "'.[]'"),
    (HITS, "a response to a search", "'.hits.hits[]'"),
    (json.dumps(json.loads(HITS), indent=2).encode(), "a response to a search", "'.hits.hits[]'"),
    (b'{"hits": {"hits": [{"_source": {}}]}}', "a response to a search", "'.hits.hits[]'"),
    (b'{"events": [{"action_name": "click"}]}\n', "a batch", "'.[][]'"),
    (b'{\n  "query_id": "a"\n}\n{\n', "JSON printed over several lines", "'.'"),
])  # fmt: skip
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_json_that_is_not_an_object_per_line_is_named_with_the_command_that_makes_lines_of_it(
    tmp_path, content, what, jq, pack
):
    (tmp_path / "log.json").write_bytes(pack(content))
    with pytest.raises(StageError, match=what) as error:
        plan_reading([str(tmp_path / "log.json")])
    assert f"jq -c {jq}" in error.value.fix
    (finding,) = check_log([str(tmp_path / "log.json")]).findings
    assert (finding.level, finding.problem) == ("fails", error.value.problem)


@pytest.mark.parametrize("line", [
    b'{"took": 3, "query": "lamp", "hits": {"hits": [{"_id": "D1"}]}}', b'{"events": [{"a": 1}], "query": "lamp"}',
    b'{"hits": 3, "query": "lamp"}', b'["a"]', b"[2026-09-01] {", b'{"query_attributes": {"x": [{}]}}',
])  # fmt: skip
def test_a_line_with_fields_of_its_own_is_none_of_these(tmp_path, line):
    (tmp_path / "log").write_bytes(line + b"\n" + line)
    assert plan_reading([str(tmp_path / "log")]).units


@pytest.mark.parametrize("pack", [gzip.compress, _zstd])
def test_a_packed_file_without_a_line_is_like_an_empty_one(tmp_path, pack):
    (tmp_path / "a").write_bytes(pack(b""))
    with pytest.raises(StageError, match="is empty"):
        plan_reading([str(tmp_path)])
    (tmp_path / "b").write_bytes(b'{"q": "lamp", "d": "D1"}\n')
    mapping = Mapping(columns=Columns(query="q", document_id="d"))
    rows, _, num_lines = read_all([tmp_path], IngestConfig(format="jsonl", mapping=mapping))
    assert (len(rows), num_lines) == (1, 1)
    assert check_log([str(tmp_path)], log_format="jsonl", mapping=mapping).can_be_ingested
    (tmp_path / "b").write_bytes(b"q\td\nlamp\tD1\n")
    assert len(read_all([tmp_path], IngestConfig(format="delimited", mapping=mapping))[0]) == 1


def test_a_longer_memory_than_readers_have_is_named(tmp_path):
    for name, window in (("short", 27), ("long", 28)):
        long = zstandard.ZstdCompressionParameters.from_level(3, window_log=window)
        packer = zstandard.ZstdCompressor(compression_params=long).compressobj()  # does not know how much will come
        (tmp_path / name).write_bytes(packer.compress(b"{}\n") + packer.flush())
    (block,) = read_blocks(*plan_reading([str(tmp_path / "short")]).units)
    assert block.data == b"{}\n"
    with pytest.raises(StageError, match="zstd --long=28") as error:
        plan_reading([str(tmp_path / "long")])
    assert "zstd -d --long=31" in error.value.fix


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_one_file_in_another_encoding_among_many_is_named(tmp_path, encoding):
    for hour in range(30):
        (tmp_path / f"{hour}.ndjson").write_text('{"query_id": "a", "user_query": "lamp"}\n')
    (tmp_path / "7.ndjson").write_bytes('{"query_id": "a", "user_query": "lamp"}\n'.encode(encoding))
    with pytest.raises(StageError, match=r"7\.ndjson begins as text in UTF-") as error:
        plan_reading([str(tmp_path)])
    assert f"iconv -f {encoding}" in error.value.fix
    assert 'encoding = "' in error.value.fix


LETTERS = "Äpfel für drüben, ½ Brot\r\n"


@given(
    data=st.lists(st.sampled_from([LETTERS, "lamp\n", "\n", "ß"]), max_size=30).map("".join),
    encoding=st.sampled_from(["latin-1", "cp1252", "utf-16", "utf-16-be", "utf-32"]),
    block=st.integers(1, 50),
    is_packed=st.booleans(),
)
def test_text_in_another_encoding_is_read_as_the_same_text_in_utf8(file, data, encoding, block, is_packed):
    content = data.encode(encoding)
    file.write_bytes(gzip.compress(content) if is_packed else content)
    if data:
        (unit,) = plan_reading([str(file)], encoding=encoding).units
        _assert_whole(list(read_blocks(unit, block)), data.encode())


@pytest.mark.parametrize(("encoding", "good", "bad"), [
    ("shift_jis", "ランプ", b"\x81\xff"), ("gb18030", "灯", b"\xff"), ("cp1252", "Äpfel", b"\x81"),
    ("utf-16-le", "lamp", b"\x00\xd8"),
])  # fmt: skip
def test_bytes_that_are_no_text_in_the_encoding_cost_their_line_alone(tmp_path, encoding, good, bad):
    line = '{{"query_id": "a", "user_query": "{}"}}\n'
    parts = [line.format(good).encode(encoding), '{"query_id": "a", "user_query": "'.encode(encoding), bad,
             '"}\n'.encode(encoding), line.format(good).encode(encoding)]  # fmt: skip
    (tmp_path / "log").write_bytes(b"".join(parts))
    rows, rejects, num_lines = read_all([tmp_path / "log"], IngestConfig(mapping=Mapping(encoding=encoding)))
    assert [row["query"] for row in rows] == [good, good]
    assert [reason for *_, reason in rejects] == ["unreadable_not_utf8"]
    assert num_lines == 3


def test_an_encoding_is_named_as_python_names_it_and_identifies_a_day_only_where_it_is_another():
    assert Mapping(encoding="latin1") == Mapping(encoding="ISO-8859-1")
    assert Mapping(encoding="UTF8") == Mapping()
    assert "encoding" not in named_settings(Mapping())
    assert named_settings(Mapping(encoding="latin1"))["encoding"] == "iso8859-1"
    for name in ("klingon", "base64", "rot13"):
        with pytest.raises(UsageError, match=f"encoding '{name}' of the mapping is unknown"):
            Mapping(encoding=name)
    columns = Columns(query="q", document_id="d")
    with pytest.raises(UsageError, match="Parquet says its own"):
        IngestConfig(format="parquet", mapping=Mapping(columns=columns, encoding="latin1"))


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
