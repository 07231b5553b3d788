"""Log files -> units of reading -> blocks of whole lines.

A line is what a newline ends, and what follows the last newline if that is anything. Plain files are cut into byte
ranges, so that one big file uses every core: a line belongs to the range that holds its first byte. A compressed file
is one unit, read as a stream. What a file is, its first bytes say (beam_jobs.file_kinds).
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import pyarrow as pa

from beam_jobs.file_kinds import GZIP, MAGIC_BYTES, PLAIN, check_kind, kind_of
from beam_jobs.gzip_stream import DAMAGED, GzipStream
from schemas import storage
from schemas.errors import StageError, UsageError

BLOCK_BYTES = 8 << 20
RANGE_BYTES = 32 << 20
MAX_LINE_BYTES = 64 << 20
# JSON logs shrink to a tenth or so; only the number of buckets hangs on it.
COMPRESSION_RATIO = 10
_PIECE_BYTES = 1 << 16
_LINE_END = ord("\n")
_DECODER_ERRORS = (EOFError, OSError, DAMAGED)


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """What one worker reads in one go: a byte range of a plain file, a whole compressed one, a Parquet row group.

    `header` names the columns, where a file says them in its first line.
    """

    file: str
    start: int
    end: int  # exclusive, in bytes of the file; in row groups for Parquet
    kind: str = PLAIN  # of beam_jobs.file_kinds
    header: tuple[str, ...] = ()


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
        ends = np.frombuffer(self.data, np.uint8) == _LINE_END  # several times as fast as bytes.count
        return int(np.count_nonzero(ends)) + (not self.data.endswith(b"\n"))


def plan_reading(logs: Sequence[str], *, split: bool = True) -> Plan:
    """The units of all files that paths, patterns and folders name; a file named twice is read once.

    With `split` a plain file becomes many units. Raises UsageError (no such file, nothing matches) and StageError (not
    readable, of a kind that is no text, all files empty).
    """
    files = find_files(logs)
    units: list[Unit] = []
    stored = estimated = 0
    for file in files:
        size, kind = _look_at(file)
        if not size:
            continue
        stored += size
        estimated += size if kind == PLAIN else size * COMPRESSION_RATIO
        step = RANGE_BYTES if kind == PLAIN and split else size
        units += [
            Unit(file=file, start=start, end=min(start + step, size), kind=kind) for start in range(0, size, step)
        ]
    if not units:
        raise nothing_in(logs, files)
    return Plan(files=files, units=units, stored_bytes=stored, estimated_bytes=estimated)


def find_files(logs: Sequence[str]) -> list[str]:
    """The files that paths, patterns, folders and URIs name, each once. Raises UsageError and StageError."""
    return list(dict.fromkeys(file for log in logs for file in _expand(log)))


def nothing_in(logs: Sequence[str], files: Sequence[str]) -> StageError:
    """The error for files that are all empty."""
    return StageError(
        asked=f"lines were to be read from {', '.join(logs)}",
        found=f"{_files(len(files))} found, and there is not one byte in {'it' if len(files) == 1 else 'them'}",
        follows="there is nothing to work on",
        do="give a file with at least one line",
    )


def read_blocks(unit: Unit, block_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
    """The lines that begin in a unit, in blocks of about `block_bytes`.

    Raises StageError where the file cannot be read to its end (truncated or damaged gzip) or a line has no end.
    """
    try:
        with storage.open_read(unit.file) as file:
            yield from _cut(unit, file, _open(unit, file), block_bytes)
    except OSError as error:
        raise unreadable(unit.file, error) from None


def _open(unit: Unit, file: IO[bytes]) -> Any:
    if unit.kind == PLAIN:
        return file
    if unit.kind == GZIP:
        return io.BufferedReader(GzipStream(file), _PIECE_BYTES)
    # Arrow's reader says that data are cut off, which zstandard's own passes over in silence.
    return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(file, mode="r"), unit.kind), _PIECE_BYTES)


def _cut(unit: Unit, file: IO[bytes], stream: Any, block_bytes: int) -> Iterator[Block]:
    position, told = unit.start, unit.start
    if unit.start:  # the line across the border belongs to the range before
        stream.seek(unit.start - 1)
        position += len(_read_line(unit, stream, unit.start)) - 1
    while unit.kind != PLAIN or position < unit.end:
        wanted = block_bytes if unit.kind != PLAIN else min(block_bytes, unit.end - position)
        data = _read(unit, stream, wanted, position)
        if not data:
            return
        if not data.endswith(b"\n"):
            data += _read_line(unit, stream, position + len(data))
        here = file.tell() if unit.kind != PLAIN else min(position + len(data), unit.end)
        yield Block(offset=position, data=data, stored_bytes=here - told)
        position, told = position + len(data), here


def _read(unit: Unit, stream: Any, wanted: int, position: int) -> bytes:
    """Up to `wanted` bytes, fewer only at the end. Says how far a damaged compressed file could be read."""
    if unit.kind == PLAIN:
        return stream.read(wanted)
    pieces: list[bytes] = []
    length = 0
    try:
        while length < wanted and (piece := stream.read1(wanted - length)):
            pieces.append(piece)
            length += len(piece)
    except _DECODER_ERRORS as error:
        raise _damaged(unit.file, position + length, error) from None
    return b"".join(pieces)


def _read_line(unit: Unit, stream: Any, position: int) -> bytes:
    """The rest of a line, with its end."""
    try:
        line = stream.readline(MAX_LINE_BYTES)
    except _DECODER_ERRORS as error:
        raise _damaged(unit.file, position, error) from None
    if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
        raise endless(unit.file, position)
    return line


def endless(file: str, position: int) -> StageError:
    """The error for a line that is longer than any line of a log."""
    return StageError(
        asked=f"{file} was to be read line by line",
        found=f"there is no line end within {MAX_LINE_BYTES >> 20} MiB after byte {position:,}",
        follows="this is no file of one record a line",
        do="give a file of one record a line",
    )


def _expand(log: str) -> list[str]:
    asked = f"lines were to be read from {log}"
    try:
        files = storage.expand(log)
    except OSError as error:
        raise unreadable(log, error) from None
    if not files:
        raise UsageError(
            asked=asked,
            found="there is no such file, and nothing that the pattern matches",
            do="check the path; quote a pattern, so that the shell leaves it alone",
        )
    return files


def _look_at(file: str) -> tuple[int, str]:
    """(size in bytes, kind) of a text file. Raises StageError for a file of another kind than its name or its use."""
    try:
        size = storage.size_bytes(file) or 0
        with storage.open_read(file) as opened:
            kind = kind_of(opened.read(MAGIC_BYTES))
    except OSError as error:
        raise unreadable(file, error) from None
    if size:
        check_kind(file, kind)
    return size, kind


def unreadable(file: str, error: OSError) -> StageError:
    """The error for a file that the system does not give."""
    return StageError(
        asked=f"{file} was to be read",
        found=f"the system says: {error.strerror or type(error).__name__}",
        follows="nothing of it was kept",
        do="make the file readable, or leave it out",
    )


def _damaged(file: str, position: int, error: Exception) -> StageError:
    if isinstance(error, OSError) and error.errno is not None:  # the decoders' own errors have no number
        return unreadable(file, error)
    is_cut = isinstance(error, EOFError) or "Truncated" in str(error)
    ends = "it ends in the middle of its compressed data" if is_cut else "its compressed data is damaged"
    return StageError(
        asked=f"{file} was to be read to its end",
        found=f"{ends}; {position:,} uncompressed bytes of it could be read",
        follows="part of it would be missing without a sign, so nothing of it was kept",
        do="copy the file again, or leave it out",
    )


def _files(count: int) -> str:
    return "1 file was" if count == 1 else f"{count} files were"
