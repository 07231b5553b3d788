"""Log files -> units of reading -> blocks of whole lines -> lines, and the shared functions of text sources.

A line ends with a newline; anything after the last newline is a line too. Plain files are split into byte ranges, so
that one big file uses every core: a line belongs to the range that holds its first byte. A compressed file is one unit,
read as a stream. The first bytes of a file determine its type.
"""

import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import IO, Any

import msgspec
import numpy as np
import pyarrow as pa
from isal import igzip, isal_zlib

from clicktower.beam_jobs.sources import lake_tables
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.search_log import LINE_HASH_BYTES

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
_FIXES = dict.fromkeys(("bzip2", "xz", "zip"), "Unpack it, or pack it with gzip or zstd") | {
    PARQUET: "read it with --format parquet and a mapping",
    "Arrow": "write it as Parquet, or as JSON lines",
}

BLOCK_BYTES = 8 << 20
RANGE_BYTES = 32 << 20
MAX_LINE_BYTES = 64 << 20
# JSON logs shrink to about a tenth; this only affects the number of buckets.
COMPRESSION_RATIO = 10
_PIECE_BYTES = 1 << 16
_DECODER_ERRORS: tuple[type[Exception], ...] = (EOFError, OSError, isal_zlib.error)  # type: ignore[assignment]


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """What one worker reads at a time: a byte range of a plain file, a whole compressed one, Parquet row groups.

    `header` names the columns, if the file's first line does.
    """

    file: str
    start: int
    end: int  # exclusive, in bytes of the file; in row groups for Parquet
    kind: str = PLAIN
    header: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadingPlan:
    """Everything to read."""

    files: Sequence[str]
    units: Sequence[Unit]
    stored_bytes: int
    estimated_bytes: int  # uncompressed


@dataclass(frozen=True, kw_only=True, slots=True)
class LineBlock:
    """Whole lines. `offset` is their start in the uncompressed file; `stored_bytes` the bytes read from the file."""

    offset: int
    data: bytes
    stored_bytes: int

    @property
    def num_lines(self) -> int:
        ends = np.frombuffer(self.data, np.uint8) == ord("\n")  # several times as fast as bytes.count
        return int(np.count_nonzero(ends)) + (not self.data.endswith(b"\n"))


def plan_reading(logs: Sequence[str], *, split: bool = True) -> ReadingPlan:
    """The units of all files that paths, patterns and folders name; a file named twice is read once.

    With `split` a plain file becomes many units. Raises UsageError (no such file, no match) and StageError (unreadable,
    not text, all files empty).
    """
    files = find_files(logs)
    units: list[Unit] = []
    stored = estimated = 0
    for file in files:
        size, kind = _sniff(file)
        if not size:
            continue
        stored += size
        estimated += size if kind == PLAIN else size * COMPRESSION_RATIO
        step = RANGE_BYTES if kind == PLAIN and split else size
        units += [
            Unit(file=file, start=start, end=min(start + step, size), kind=kind) for start in range(0, size, step)
        ]
    if not units:
        raise empty_input_error(logs, files)
    return ReadingPlan(files=files, units=units, stored_bytes=stored, estimated_bytes=estimated)


def find_files(logs: Sequence[str]) -> list[str]:
    """The files that paths, patterns, folders, tables and URIs name, each once. Raises UsageError and StageError."""
    sources: dict[str, None] = {}
    tables: lake_tables.Tables = {}
    for log in logs:
        try:
            files = lake_tables.expand(log, tables)
        except OSError as error:
            raise unreadable(log, error) from None
        if not files:
            raise UsageError(
                f"There is no file {log}, and nothing that the pattern matches.",
                "Check the path; quote a pattern, so that the shell leaves it alone.",
            )
        sources |= dict.fromkeys(files)
    return list(sources)


def empty_input_error(logs: Sequence[str], files: Sequence[str]) -> StageError:
    """The error for input files that are all empty."""
    return StageError(f"Every file of {', '.join(logs)} is empty.", "Give a file with at least one line.")


def read_blocks(unit: Unit, block_bytes: int = BLOCK_BYTES) -> Iterator[LineBlock]:
    """The lines that begin in a unit, in blocks of about `block_bytes`.

    Raises StageError if the file is truncated or damaged, or if a line has no end.
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
        return igzip.IGzipFile(fileobj=file, mode="rb")  # the same result as Python's own, in a fifth of the time
    # Arrow's reader reports truncated data, which zstandard's own ignores.
    return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(file, mode="r"), unit.kind), _PIECE_BYTES)


def _cut(unit: Unit, file: IO[bytes], stream: Any, block_bytes: int) -> Iterator[LineBlock]:
    position, counted = unit.start, unit.start
    if unit.start:  # a line across the border belongs to the range before
        stream.seek(unit.start - 1)
        position += len(_read_line(unit, stream, unit.start)) - 1
    while unit.kind != PLAIN or position < unit.end:
        num_bytes = block_bytes if unit.kind != PLAIN else min(block_bytes, unit.end - position)
        data = _read(unit, stream, num_bytes, position)
        if not data:
            return
        if not data.endswith(b"\n"):
            data += _read_line(unit, stream, position + len(data))
        here = file.tell() if unit.kind != PLAIN else min(position + len(data), unit.end)
        yield LineBlock(offset=position, data=data, stored_bytes=here - counted)
        position, counted = position + len(data), here


def _read(unit: Unit, stream: Any, size: int, position: int) -> bytes:
    """Up to `size` bytes, fewer only at the end. The error for a damaged compressed file says how much of it is
    readable.
    """
    if unit.kind == PLAIN:
        return stream.read(size)
    pieces: list[bytes] = []
    length = 0
    try:
        while length < size and (piece := stream.read1(size - length)):
            pieces.append(piece)
            length += len(piece)
    except _DECODER_ERRORS as error:
        raise _damaged(unit.file, position + length, error) from None
    return b"".join(pieces)


def _read_line(unit: Unit, stream: Any, position: int) -> bytes:
    """The rest of a line, including its end."""
    try:
        line = stream.readline(MAX_LINE_BYTES)
    except _DECODER_ERRORS as error:
        raise _damaged(unit.file, position, error) from None
    if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
        raise endless_line_error(unit.file, position)
    return line


def kind_of(start: bytes) -> str:
    """The type of a file that starts with these bytes (MAGIC_BYTES of them suffice)."""
    return next((kind for magic, kind in _MAGICS.items() if start.startswith(magic)), PLAIN)


def check_kind(file: str, kind: str) -> None:
    """Raise StageError if a file does not match its name, or cannot be read as lines of text."""
    promised = next((named for suffix, named in _SUFFIXES.items() if file.endswith(suffix)), kind)
    if kind != promised:
        raise StageError(
            f"{file} is named like a {promised} file, and its first bytes are not those of one.",
            "Pack it as its name says, or change the name.",
        )
    if kind in _FIXES:
        raise StageError(f"{file} should be lines of text, and is a file of the kind {kind}.", _FIXES[kind])


def endless_line_error(file: str, position: int) -> StageError:
    """The error for a line that is longer than any line of a log."""
    return StageError(
        f"{file} has no line end within {MAX_LINE_BYTES >> 20} MiB after byte {position:,}: it does not hold one"
        " record per line.",
        "Give a file with one record per line.",
    )


def _sniff(file: str) -> tuple[int, str]:
    """(size in bytes, type) of a text file. Raises StageError for a file of another type than its name or use
    requires.
    """
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
    """The error for a file that the system cannot read."""
    return StageError(
        f"{file} cannot be read: {error.strerror or type(error).__name__}. Nothing of it was kept.",
        "Make the file readable, or leave it out.",
    )


def _damaged(file: str, position: int, error: Exception) -> StageError:
    if isinstance(error, OSError) and error.errno is not None:  # the decoders' own errors have no number
        return unreadable(file, error)
    is_cut = isinstance(error, EOFError) or "Truncated" in str(error)
    ends = "ends in the middle of its compressed data" if is_cut else "has damaged compressed data"
    return StageError(
        f"{file} {ends}; {position:,} uncompressed bytes of it can be read. Nothing of it was kept.",
        "Copy the file again, or leave it out.",
    )


# Functions on the lines of a block: split, check, hash, decode as JSON.


def split_lines(block: bytes) -> list[bytes]:
    """The lines without their newlines; the last line of a block may lack it."""
    lines = block.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def without_returns(block: bytes, lines: list[bytes]) -> list[bytes]:
    """The lines without a carriage return before the newline: it belongs to the line end."""
    if b"\r" not in block:
        return lines
    return [line.removesuffix(b"\r") for line in lines]


def not_utf8(block: bytes, lines: Sequence[bytes]) -> list[int]:
    """The numbers of the lines that are not UTF-8. `block` is all of them, so that one check usually suffices."""
    bounds = pa.py_buffer(np.array([0, len(block)], np.int64))
    try:
        pa.LargeStringArray.from_buffers(1, bounds, pa.py_buffer(block)).validate(full=True)
    except pa.ArrowInvalid:
        return [number for number, line in enumerate(lines) if not line.isascii() and not is_utf8(line)]
    return []


def line_hashes(lines: Iterable[bytes]) -> pa.FixedSizeBinaryArray:
    """The first LINE_HASH_BYTES of the SHA-256 of each line: the fastest strong hash on today's processors."""
    digests = np.frombuffer(b"".join([sha256(line).digest() for line in lines]), np.uint8).reshape(-1, 32)
    hashes = np.ascontiguousarray(digests[:, :LINE_HASH_BYTES])
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(LINE_HASH_BYTES), len(hashes), [None, pa.py_buffer(hashes)])


def is_utf8(text: bytes | None) -> bool:
    """Whether bytes are UTF-8; true for no bytes."""
    try:
        (text or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


MAX_DEPTH = 200  # deeper than any log
NOT_JSON, NOT_UTF8, WRONG_FIELD = "unreadable_not_json", "unreadable_not_utf8", "unreadable_field"
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"?')
FAILURES = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError)

as_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def decode_lines(
    block: bytes, lines: Sequence[bytes], decode: Callable[[bytes], Any]
) -> tuple[list[Any], dict[int, str]]:
    """(the result of `decode` for each line, None if it fails; the reason for each failure, by the line's number).

    `block` is all the lines together.
    """
    rejects = dict.fromkeys(not_utf8(block, lines), NOT_UTF8)
    for number in [number for number, line in enumerate(lines) if len(line) > 2 * MAX_DEPTH]:
        if number not in rejects and is_too_deep(lines[number]):
            rejects[number] = NOT_JSON
    if rejects:
        lines = [b"" if number in rejects else line for number, line in enumerate(lines)]
    values: list[Any] = []
    decoded = map(decode, lines)
    while True:
        try:
            values.extend(decoded)  # the lines before an error stay
        except FAILURES:
            number = len(values)
            values.append(None)
            if number not in rejects:
                rejects[number] = _reason(lines[number])
        else:
            return values, rejects


def is_too_deep(line: bytes) -> bool:
    """Whether a line nests more than MAX_DEPTH values; for a line that is not JSON either answer is fine."""
    if line.count(b"{") + line.count(b"[") <= MAX_DEPTH:
        return False
    marks = np.frombuffer(_STRING.sub(b"", line), np.uint8)
    steps = np.isin(marks, list(b"{[")).astype(np.int64) - np.isin(marks, list(b"}]"))
    return bool(np.cumsum(steps).max(initial=0) > MAX_DEPTH)


def _reason(line: bytes) -> str:
    try:
        as_object(line)
    except FAILURES:
        return NOT_JSON
    return WRONG_FIELD
