"""A gzip log is read as Python's own module reads it, whatever is behind its members and wherever it ends."""

import gzip
import io
import zlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clicktower.beam_jobs.sources.read_lines import Unit, read_blocks
from clicktower.schemas.errors import StageError


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("gzip") / "log.gz"


def _read(path, packed: bytes, block: int = 1 << 20) -> bytes | None:
    """The content, None for an error."""
    path.write_bytes(packed)
    try:
        return b"".join(b.data for b in read_blocks(Unit(file=str(path), start=0, end=len(packed), kind="gzip"), block))
    except StageError:
        return None


def _of_python(packed: bytes) -> bytes | None:
    try:
        return gzip.GzipFile(fileobj=io.BytesIO(packed)).read()
    except (EOFError, zlib.error, OSError):
        return None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.binary(max_size=300), st.integers(0, 9)), min_size=1, max_size=4), st.integers(1, 50))
def test_members_and_the_zeros_behind_them(path, members, block):
    packed = b"".join(gzip.compress(content) + bytes(zeros) for content, zeros in members)
    assert _read(path, packed, block) == b"".join(content for content, _ in members) == _of_python(packed)


def test_a_file_that_ends_anywhere_is_whole_or_an_error_as_it_is_to_python(path):
    packed = gzip.compress(b"one line\n" * 40) + bytes(3) + gzip.compress(b"another\n")
    found = [_read(path, packed[:end]) for end in range(1, len(packed) + 1)]
    assert found == [_of_python(packed[:end]) for end in range(1, len(packed) + 1)]
    assert found.count(None) == len(packed) - 5  # good: after the first member, three zeros behind it, and whole


@pytest.mark.parametrize("at", [0, 12, -6, -2])  # the header, the data, the checksum, the length
def test_a_byte_that_is_another_one_is_an_error(path, at):
    packed = bytearray(gzip.compress(b"one line\n" * 40))
    packed[at] ^= 0xE0
    assert _of_python(bytes(packed)) is None
    assert _read(path, bytes(packed)) is None


def test_garbage_behind_a_member_is_an_error(path):
    assert _read(path, gzip.compress(b"x") + b"y") is None


def test_a_piece_that_unpacks_to_much_is_handed_out_in_parts(path):
    zeros = b"0\n" * 2_500_000
    path.write_bytes(gzip.compress(zeros))
    blocks = list(read_blocks(Unit(file=str(path), start=0, end=path.stat().st_size, kind="gzip"), 1 << 20))
    assert b"".join(block.data for block in blocks) == zeros
    assert max(len(block.data) for block in blocks) <= (1 << 20) + 1
