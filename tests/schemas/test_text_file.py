"""Small files of text in every form in which programs write them."""

import bz2
import gzip
import lzma

import pyarrow as pa
import pytest

from clicktower.schemas.errors import StageError
from clicktower.schemas.text_file import decoded, ending, lines, read_text

PLAIN = "q1\tled bulb\nq2\tmaße 窓\n"


def zstd(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("compress", [bytes, gzip.compress, zstd])
@pytest.mark.parametrize(
    "written",
    [
        PLAIN,
        "\ufeff" + PLAIN,
        PLAIN.replace("\n", "\r\n"),
        PLAIN.replace("\n", "\r\r\n"),
        PLAIN.replace("\n", "\r"),
        PLAIN.replace("\n", "  \n"),
        "\n\n" + PLAIN.replace("\n", "\n \n"),
        PLAIN.replace("q2", "\ufeffq2"),  # two files, one after the other
        PLAIN.rstrip(),
    ],
)
def test_every_form_of_a_file_has_the_same_lines(tmp_path, written, compress):
    (tmp_path / "file").write_bytes(compress(written.encode()))
    assert [line for _, line in lines(read_text(str(tmp_path / "file")))] == PLAIN.splitlines()


def test_compressed_files_that_were_joined_are_read_to_the_end():
    for compress in (gzip.compress, zstd):
        assert decoded(compress(b"a\n") + compress(b"b\n"), "f") == "a\nb\n"
    skippable = b"\x50\x2a\x4d\x18\4\0\0\0size"  # as pzstd writes before each frame
    assert decoded(skippable + zstd(b"a\n") + skippable + zstd(b"b\n"), "f") == "a\nb\n"


def test_lines_keep_their_numbers():
    assert lines("a\n\nb \n") == [(1, "a"), (3, "b")]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (PLAIN.encode("utf-16"), "is UTF-16, not UTF-8"),
        (PLAIN.encode("utf-16-be"), "is UTF-16-BE, not UTF-8"),
        (PLAIN.encode("utf-32"), "is UTF-32, not UTF-8"),
        (b"a" * 99 + b"\0", "holds bytes of zero"),
        (b"caf\xe9", "Byte 3 of the file is not UTF-8"),
        (gzip.compress(PLAIN.encode() * 99)[:-9], "is not whole"),
        (zstd(PLAIN.encode() * 99)[:-9], "is not whole"),
        (b"\x1f\x8bno gzip", "is not whole"),
        (gzip.compress(gzip.compress(PLAIN.encode())), "is packed twice"),
        (bz2.compress(PLAIN.encode()), "is a file of the kind bzip2"),
        (lzma.compress(PLAIN.encode()), "is a file of the kind xz"),
        (b"PAR1\x15" + bytes(99), "is a file of the kind parquet"),
    ],
)
def test_other_bytes_are_named(content, problem):
    with pytest.raises(StageError, match=problem) as error:
        decoded(content, "the file")
    assert error.value.fix
    assert error.value.exit_code == 1, "as for documents and logs of such bytes"


@pytest.mark.parametrize("text", ["PAR1001\tparaffin oil\n", "ARROW1\tarrow head\n", "BZh9\tbolt\n"])
def test_ids_that_begin_as_a_kind_of_file_does_are_text(text):
    assert decoded(text.encode(), "the file") == text


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a/queries.jsonl", ".jsonl"),
        ("queries.NDJSON", ".jsonl"),
        ("s3://b/queries.JSONL.gz", ".jsonl"),
        ("q.json.zst", ".json"),
        ("a.b/queries", ""),
        ("q.TSV", ".tsv"),
    ],
)
def test_endings_are_told_alike(name, expected):
    assert ending(name) == expected
