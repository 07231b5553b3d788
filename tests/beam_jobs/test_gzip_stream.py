"""A gzip file is read as Python's own module reads it, whatever is behind its members and wherever it ends."""

import gzip
import io
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_jobs.gzip_stream import GzipStream


def _read(packed: bytes, opened) -> bytes | None:
    """The content, None for an error."""
    try:
        return opened(io.BytesIO(packed)).read()
    except (EOFError, zlib.error, OSError):
        return None


def _of_python(packed: bytes) -> bytes | None:
    return _read(packed, lambda file: gzip.GzipFile(fileobj=file))


@given(st.lists(st.tuples(st.binary(max_size=300), st.integers(0, 9)), min_size=1, max_size=4), st.integers(1, 50))
def test_members_and_the_zeros_behind_them(members, piece):
    packed = b"".join(gzip.compress(content) + bytes(zeros) for content, zeros in members)
    stream = io.BufferedReader(GzipStream(io.BytesIO(packed)), 16)
    found = b"".join(iter(lambda: stream.read1(piece), b""))
    assert found == b"".join(content for content, _ in members) == _of_python(packed)


def test_a_file_that_ends_anywhere_is_whole_or_an_error_as_it_is_to_python():
    packed = gzip.compress(b"one line\n" * 40) + bytes(3) + gzip.compress(b"another\n")
    found = [_read(packed[:end], GzipStream) for end in range(1, len(packed) + 1)]
    assert found == [_of_python(packed[:end]) for end in range(1, len(packed) + 1)]
    assert found.count(None) == len(packed) - 5  # good: after the first member, three zeros behind it, and whole


@pytest.mark.parametrize("at", [0, 3, 12, -6, -2])  # the header, the flags, the data, the checksum, the length
def test_a_byte_that_is_another_one_is_an_error(at):
    packed = bytearray(gzip.compress(b"one line\n" * 40))
    packed[at] ^= 0xE0
    assert _read(bytes(packed), GzipStream) is None


def test_garbage_behind_a_member_is_an_error():
    assert _read(gzip.compress(b"x") + b"y", GzipStream) is None


def test_a_piece_that_unpacks_to_much_is_handed_out_in_parts():
    zeros = bytes(5_000_000)
    stream = io.BufferedReader(GzipStream(io.BytesIO(gzip.compress(zeros))), 1 << 16)
    assert b"".join(iter(lambda: stream.read1(1 << 20), b"")) == zeros
