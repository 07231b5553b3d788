"""Log files -> units of reading -> blocks of whole lines.

A line is what a newline ends, and what follows the last newline if that is anything. Plain files are cut into byte
ranges, so that one big file uses every core: a line belongs to the range that holds its first byte. A compressed file
is one unit, read as a stream. What a file is, its first bytes say (read_lines).
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import pyarrow as pa
from isal import isal_zlib

from schemas import storage
from schemas.errors import StageError, UsageError

# What a file is, told by its first bytes: plain text, gzip, zstd, or something that is no text log.


PLAIN, GZIP, ZSTD, PARQUET = "plain", "gzip", "zstd", "parquet"
MAGIC_BYTES = 6
_MAGICS = {
    b"\x1f\x8b": GZIP,
    b"\x28\xb5\x2f\xfd": ZSTD,
    b"\x50\x2a\x4d\x18": ZSTD,  # a skippable frame, which pzstd begins with
    b"PAR1": PARQUET,
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"PK\x03\x04": "zip",
    b"ARROW1": "Arrow",
}
_SUFFIXES = {".gz": GZIP, ".zst": ZSTD, ".zstd": ZSTD}
_DO = {
    PARQUET: "read it with --format parquet and a mapping",
    "bzip2": "unpack it, or pack it with gzip or zstd",
    "xz": "unpack it, or pack it with gzip or zstd",
    "zip": "unpack it, or pack it with gzip or zstd",
    "Arrow": "write it as Parquet, or as JSON lines",
}


def kind_of(start: bytes) -> str:
    """The kind of a file that starts with these bytes (MAGIC_BYTES of them are enough)."""
    return next((kind for magic, kind in _MAGICS.items() if start.startswith(magic)), PLAIN)


def check_kind(file: str, kind: str) -> None:
    """Nothing. Raises StageError where a file is not what its name says, or cannot be read as lines of text."""
    promised = next((named for suffix, named in _SUFFIXES.items() if file.endswith(suffix)), kind)
    if kind != promised:
        raise StageError(
            asked=f"{file} was to be read as a {promised} file",
            found="its first bytes are not those of one",
            follows="nothing of it was kept",
            do="pack it as its name says, or change the name",
        )
    if kind in _DO:
        raise StageError(
            asked=f"{file} was to be read as lines of text",
            found=f"it is a file of the kind {kind}",
            follows="nothing of it was kept",
            do=_DO[kind],
        )


# A gzip file as a stream of bytes, as Python's own `gzip` gives it, in a fifth of the time.
#
# The work is that of ISA-L, in pieces as they are read, so that whatever lies before a damage is given. (Its own file
# object has larger buffers, and nothing of the last one.)


_GZIP_PIECE_BYTES = 1 << 17  # of packed data: a thousand times as much unpacked at most
_GZIP = 16 + isal_zlib.MAX_WBITS  # data with gzip's header and checksum, as zlib counts
_MAGIC = b"\x1f\x8b"
DAMAGED: type[Exception] = isal_zlib.error  # type: ignore[assignment]  # a class, whatever its stub says


class GzipStream(io.RawIOBase):
    """What the members of a gzip file hold, one after the other; there may be zeros behind each.

    Reading raises EOFError where the file ends within a member, DAMAGED where one is damaged or something else
    follows.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._member: Any = isal_zlib.decompressobj(_GZIP)
        self._packed = b""  # what was read behind the end of a member
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, room) -> int:  # type: ignore[no-untyped-def]  # any buffer that can be written to
        while not self._ready:
            if not self._unpack():
                return 0
        size = min(len(room), len(self._ready))
        room[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size

    def _unpack(self) -> bool:
        """Whether there was anything more to unpack; it may have given nothing."""
        packed = self._packed or self._file.read(_GZIP_PIECE_BYTES)
        self._packed = b""
        if not packed:
            if self._member:
                raise EOFError("the file ends within a member")
            return False
        if not self._member:
            packed = packed.lstrip(b"\0")
            if not packed:
                return True
            if not _MAGIC.startswith(packed[: len(_MAGIC)]):  # or else taken for the beginning of a header
                raise DAMAGED("what follows a member is none")
            self._member = isal_zlib.decompressobj(_GZIP)
        self._ready = memoryview(self._member.decompress(packed))
        if self._member.eof:
            self._packed, self._member = self._member.unused_data, None
        return True


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
    kind: str = PLAIN  # of read_lines
    header: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadingPlan:
    """All that is to be read."""

    files: Sequence[str]
    units: Sequence[Unit]
    stored_bytes: int
    estimated_bytes: int  # uncompressed


@dataclass(frozen=True, kw_only=True, slots=True)
class LineBlock:
    """Whole lines. `offset` is where they start in the uncompressed file; `stored_bytes` what was read of the file."""

    offset: int
    data: bytes
    stored_bytes: int

    @property
    def num_lines(self) -> int:
        ends = np.frombuffer(self.data, np.uint8) == _LINE_END  # several times as fast as bytes.count
        return int(np.count_nonzero(ends)) + (not self.data.endswith(b"\n"))


def plan_reading(logs: Sequence[str], *, split: bool = True) -> ReadingPlan:
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
    return ReadingPlan(files=files, units=units, stored_bytes=stored, estimated_bytes=estimated)


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


def read_blocks(unit: Unit, block_bytes: int = BLOCK_BYTES) -> Iterator[LineBlock]:
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


def _cut(unit: Unit, file: IO[bytes], stream: Any, block_bytes: int) -> Iterator[LineBlock]:
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
        yield LineBlock(offset=position, data=data, stored_bytes=here - told)
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
