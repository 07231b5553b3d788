"""Log files -> units of reading -> blocks of whole lines.

A line is what a newline ends, and what follows the last newline if that is anything. Plain files are cut into byte
ranges, so that one big file uses every core: a line belongs to the range that holds its first byte. A gzip file is one
unit, read as a stream; it is told by its first two bytes.
"""

import gzip
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

from schemas import storage
from schemas.errors import StageError, UsageError

BLOCK_BYTES = 4 << 20
RANGE_BYTES = 32 << 20
MAX_LINE_BYTES = 64 << 20
GZIP_MAGIC = b"\x1f\x8b"
# JSON logs shrink to a tenth or so; only the number of buckets hangs on it.
GZIP_RATIO = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """What one worker reads in one go: a byte range of a plain file, or a whole gzip file."""

    file: str
    start: int
    end: int  # exclusive, in bytes of the file
    is_gzip: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """All that is to be read."""

    files: Sequence[str]
    units: Sequence[Unit]
    stored_bytes: int
    estimated_bytes: int  # uncompressed


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """Whole lines. `offset` is where they start in the uncompressed file; `stored_bytes` what was read of the file."""

    offset: int
    data: bytes
    stored_bytes: int

    @property
    def num_lines(self) -> int:
        return self.data.count(b"\n") + (not self.data.endswith(b"\n"))


def plan_reading(logs: Sequence[str]) -> Plan:
    """The units of all files that paths, patterns and folders name; a file named twice is read once.

    Raises UsageError (no such file, nothing matches) and StageError (not readable, not a gzip file, all files empty).
    """
    files = list(dict.fromkeys(file for log in logs for file in _expand(log)))
    units: list[Unit] = []
    stored = estimated = 0
    for file in files:
        size, is_gzip = _look_at(file)
        if not size:
            continue
        stored += size
        estimated += size * GZIP_RATIO if is_gzip else size
        step = size if is_gzip else RANGE_BYTES
        units += [
            Unit(file=file, start=start, end=min(start + step, size), is_gzip=is_gzip) for start in range(0, size, step)
        ]
    if not units:
        raise StageError(
            asked=f"a search log was to be read from {', '.join(logs)}",
            found=f"{_files(len(files))} found, and there is not one byte in {'it' if len(files) == 1 else 'them'}",
            follows="there is nothing to ingest",
            do="give a log with at least one line",
        )
    return Plan(files=files, units=units, stored_bytes=stored, estimated_bytes=estimated)


def read_blocks(unit: Unit, block_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
    """The lines that begin in a unit, in blocks of about `block_bytes`.

    Raises StageError where the file cannot be read to its end (truncated or damaged gzip) or a line has no end.
    """
    try:
        with storage.open_read(unit.file) as file:
            stream = gzip.GzipFile(fileobj=file) if unit.is_gzip else file
            yield from _cut(unit, file, stream, block_bytes)
    except OSError as error:
        raise _unreadable(unit.file, error) from None


def _cut(unit: Unit, file: IO[bytes], stream: Any, block_bytes: int) -> Iterator[Block]:
    position, told = unit.start, unit.start
    if unit.start:  # the line across the border belongs to the range before
        stream.seek(unit.start - 1)
        position += len(_read_line(unit, stream, unit.start)) - 1
    while unit.is_gzip or position < unit.end:
        wanted = block_bytes if unit.is_gzip else min(block_bytes, unit.end - position)
        data = _read(unit, stream, wanted, position)
        if not data:
            return
        if not data.endswith(b"\n"):
            data += _read_line(unit, stream, position + len(data))
        here = file.tell() if unit.is_gzip else min(position + len(data), unit.end)
        yield Block(offset=position, data=data, stored_bytes=here - told)
        position, told = position + len(data), here


def _read(unit: Unit, stream: Any, wanted: int, position: int) -> bytes:
    """Up to `wanted` bytes, fewer only at the end. Says how far a damaged gzip file could be read."""
    if not unit.is_gzip:
        return stream.read(wanted)
    pieces: list[bytes] = []
    length = 0
    try:
        while length < wanted and (piece := stream.read1(wanted - length)):
            pieces.append(piece)
            length += len(piece)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _damaged(unit.file, position + length, error) from None
    return b"".join(pieces)


def _read_line(unit: Unit, stream: Any, position: int) -> bytes:
    try:
        line = stream.readline(MAX_LINE_BYTES)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _damaged(unit.file, position, error) from None
    if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
        raise StageError(
            asked=f"{unit.file} was to be read line by line",
            found=f"there is no line end within {MAX_LINE_BYTES >> 20} MiB after byte {position:,}",
            follows="this is no log of one event a line",
            do="give newline-delimited JSON",
        )
    return line


def _expand(log: str) -> list[str]:
    asked = f"a search log was to be read from {log}"
    try:
        files = storage.expand(log)
    except OSError as error:
        raise _unreadable(log, error) from None
    if not files:
        raise UsageError(
            asked=asked,
            found="there is no such file, and nothing that the pattern matches",
            do="check the path; quote a pattern, so that the shell leaves it alone",
        )
    return files


def _look_at(file: str) -> tuple[int, bool]:
    """(size in bytes, whether it is gzip)."""
    try:
        size = storage.size_bytes(file) or 0
        with storage.open_read(file) as opened:
            is_gzip = opened.read(2) == GZIP_MAGIC
    except OSError as error:
        raise _unreadable(file, error) from None
    if size and file.endswith(".gz") and not is_gzip:
        raise StageError(
            asked=f"{file} was to be read as a gzip file",
            found="its first bytes are not those of one",
            follows="nothing was ingested",
            do="compress it, or take .gz off its name",
        )
    return size, is_gzip


def _unreadable(file: str, error: OSError) -> StageError:
    return StageError(
        asked=f"{file} was to be read",
        found=f"the system says: {error.strerror or type(error).__name__}",
        follows="nothing was ingested",
        do="make the file readable, or leave it out",
    )


def _damaged(file: str, position: int, error: Exception) -> StageError:
    ends = (
        "it ends in the middle of its compressed data"
        if isinstance(error, EOFError)
        else "its compressed data is damaged"
    )
    return StageError(
        asked=f"{file} was to be read to its end",
        found=f"{ends}; {position:,} uncompressed bytes of it could be read",
        follows="part of the log would be missing without a sign, so nothing was ingested",
        do="copy the file again, or leave it out",
    )


def _files(count: int) -> str:
    return "1 file was" if count == 1 else f"{count} files were"
