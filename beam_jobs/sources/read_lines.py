"""Log files -> units of reading -> blocks of whole lines -> lines, and the shared functions of text sources.

A line ends with a newline; anything after the last newline is a line too. Plain files are split into byte ranges, so
that one big file uses every core: a line belongs to the range that holds its first byte. A compressed file, or one in
another encoding than UTF-8, is one unit, read as a stream of UTF-8. The first bytes of a file determine its type.
"""

import codecs
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pkgutil import resolve_name
from typing import IO, Any

import msgspec
import numpy as np
import pyarrow as pa
from isal import igzip, isal_zlib

from clicktower.beam_jobs.sources.log_files import find_files, unreadable
from clicktower.beam_jobs.sources.mapping import UTF8
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError
from clicktower.schemas.search_log import LINE_HASH_BYTES
from clicktower.schemas.text_file import (
    GZIP,
    HEAD_BYTES,
    NOT_TEXT,
    PARQUET,
    PLAIN,
    RETURNS_FIX,
    TAR,
    ZSTD,
    ends_lines_by_returns,
    is_utf8,
    kind_of,
    other_encoding,
    require_promised,
    require_text,
)

_FIXES = {
    **NOT_TEXT,
    **dict.fromkeys(("Arrow", "Avro"), "Write it as Parquet, or as JSON lines."),
    PARQUET: "Read it with --format parquet and a mapping.",
    TAR: "Unpack it, and give the folder of its members.",
}
# What JSON files hold instead of an object per line, how they begin, and the filter of jq that makes lines of them.
_HITS = rb"""\s*\{\s*(?="(?:took|_scroll_id|pit_id|timed_out|_shards|hits)").*?"hits"\s*:\s*\{[^]]*"hits"\s*:\s*\["""
_NOT_LINES = (
    (re.compile(rb"\s*\[\s*\{"), "a JSON array", ".[]"),
    (re.compile(_HITS, re.DOTALL), "a response to a search, whose hits are the events", ".hits.hits[]"),
    (re.compile(rb"""\s*\{\s*"(?:events|batch|ubi_events|ubi_queries)"\s*:\s*\[\s*\{"""), "a batch of events", ".[][]"),
    (re.compile(rb"\s*\{\s*\n"), "JSON printed over several lines", "."),
)
_RESPONSE_KEYS = {
    "_clusters", "_scroll_id", "_shards", "aggregations", "ext", "hits", "num_reduce_phases", "pit_id", "profile",
    "suggest", "terminated_early", "timed_out", "took",
}  # fmt: skip

NOT_UTF8, BLANK = "unreadable_not_utf8", "blank_line"
FAILURES = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError)  # to decode a line

BLOCK_BYTES = 8 << 20
RANGE_BYTES = 32 << 20
MAX_LINE_BYTES = 64 << 20
# JSON logs shrink to about a tenth; this only affects the number of buckets.
COMPRESSION_RATIO = 10
_PIECE_BYTES = 1 << 16
_LOOK_BYTES = 1 << 14
_DECODER_ERRORS: tuple[type[Exception], ...] = (EOFError, OSError, isal_zlib.error)  # type: ignore[assignment]


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """What one worker reads at a time: a byte range of a plain file, a whole compressed one, Parquet row groups.

    `header` names the columns, if the file's first line does. `places`: of Parquet, the dotted path of each mapped
    column in this file; None for one that it lacks.
    """

    file: str
    start: int
    end: int  # exclusive, in bytes of the file; in row groups for Parquet
    kind: str = PLAIN
    header: tuple[str, ...] = ()
    places: tuple[str | None, ...] = ()
    encoding: str = UTF8

    @property
    def is_stream(self) -> bool:
        """Whether it is read from its start to its end, and places count its bytes once unpacked and in UTF-8."""
        return self.kind != PLAIN or self.encoding != UTF8


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadingPlan:
    """Everything to read."""

    files: Sequence[str]
    units: Sequence[Unit]
    stored_bytes: int
    estimated_bytes: int  # uncompressed
    renamed: Mapping[str, Sequence[str | None]] = field(default_factory=dict)  # Unit.places other than the mapping's

    def fingerprints(self) -> list[str]:
        """The identity of each file, sorted: of its content, and of the columns that are read under other names."""
        digests = storage.map_files(storage.fingerprint, self.files)
        for number, file in enumerate(self.files):
            if file in self.renamed:
                text = f"{digests[number]}\0{json.dumps(self.renamed[file])}"
                digests[number] = sha256(text.encode()).hexdigest()
        return sorted(digests)


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


def plan_reading(logs: Sequence[str], *, split: bool = True, encoding: str = UTF8) -> ReadingPlan:
    """The units of all files that paths, patterns and folders name; a file named twice is read once.

    With `split` a plain file in UTF-8 becomes many units. Raises UsageError (no such file, no match) and StageError
    (unreadable, not lines of text, all files empty).
    """
    files = find_files(logs).paths
    units: list[Unit] = []
    stored = estimated = 0
    for file in files:
        start = start_of(file, encoding)
        check_start(file, start, encoding)
        if not start.text:
            continue
        size, unit = start.size, Unit(file=file, start=0, end=start.size, kind=start.kind, encoding=encoding)
        stored += size
        estimated += size if start.kind == PLAIN else size * COMPRESSION_RATIO
        step = RANGE_BYTES if split and not unit.is_stream else size
        units += [replace(unit, start=begin, end=min(begin + step, size)) for begin in range(0, size, step)]
    if not units:
        raise empty_input_error(logs)
    return ReadingPlan(files=files, units=units, stored_bytes=stored, estimated_bytes=estimated)


@dataclass(frozen=True, kw_only=True, slots=True)
class FileStart:
    """A file's size in bytes, its type, and the first bytes of its text, unpacked and in UTF-8. They are empty only if
    the whole text is.
    """

    size: int
    kind: str
    text: bytes


def start_of(file: str, encoding: str = UTF8) -> FileStart:
    """Look at a file. Raises StageError if it cannot be read, or unpacking it takes too much memory; damage is left to
    its reader.
    """
    try:
        size = storage.size_bytes(file) or 0
        with storage.open_read(file) as opened:
            head = opened.read(HEAD_BYTES)
            kind = kind_of(head)
            if kind not in (PLAIN, GZIP, ZSTD) or not size:
                return FileStart(size=size, kind=kind, text=head)
            opened.seek(0)
            text = _first_bytes(_open(Unit(file=file, start=0, end=size, kind=kind, encoding=encoding), opened))
    except OSError as error:
        if "too much memory" in str(error):
            raise _damaged(file, error) from None
        raise unreadable(file, error) from None
    return FileStart(size=size, kind=kind, text=b"\n" if text is None else text)


def _first_bytes(stream: Any) -> bytes | None:
    """The first bytes of a stream; None if it is damaged before the first."""
    pieces: list[bytes] = []
    try:
        while sum(map(len, pieces)) < _LOOK_BYTES and (piece := stream.read(_LOOK_BYTES)):
            pieces.append(piece)
    except _DECODER_ERRORS as error:
        if isinstance(error, OSError) and (error.errno is not None or "too much memory" in str(error)):
            raise
        return b"".join(pieces) or None
    return b"".join(pieces)


def check_start(file: str, start: FileStart, encoding: str = UTF8) -> None:
    """Raise StageError if a file does not match its name, or does not begin as lines of text do in this encoding."""
    if not start.size:
        return
    require_promised(file, start.kind)
    require_text(file, start.text, _FIXES)
    if name := other_encoding(start.text):
        reading = "" if encoding == UTF8 else f", and is read as {encoding}"
        raise StageError(
            f"{file} begins as text in {name.upper()} does{reading}.",
            f"Write it in UTF-8 (iconv -f {name} -t utf-8). Of logs that are all so, a mapping says encoding ="
            f" {json.dumps(name)}.",
        )
    if ends_lines_by_returns(start.text):
        raise StageError(f"{file} ends its lines in carriage returns alone.", RETURNS_FIX)
    text = start.text.removeprefix(codecs.BOM_UTF8)
    for pattern, form, jq in _NOT_LINES:
        if pattern.match(text) and not _has_fields(text.partition(b"\n")[0]):
            raise StageError(
                f"{file} begins as {form} does, and should hold one JSON object per line.",
                f"Make lines of it: jq -c '{jq}' FILE > FILE.ndjson.",
            )


def _has_fields(line: bytes) -> bool:
    """Whether a line is a JSON object with fields of its own: neither a search engine's response nor a mere batch."""
    try:
        keys = msgspec.json.decode(line, type=dict[str, msgspec.Raw]).keys()
    except FAILURES:
        return False
    return len(keys) > 1 and not keys <= _RESPONSE_KEYS


def empty_input_error(logs: Sequence[str]) -> StageError:
    """The error for input files that are all empty."""
    return StageError(f"Every file of {', '.join(logs)} is empty.", "Give a file with at least one line.")


def read_blocks(unit: Unit, block_bytes: int = BLOCK_BYTES) -> Iterator[LineBlock]:
    """The lines that begin in a unit, in blocks of about `block_bytes`.

    Raises StageError if the file is truncated or damaged, or if a line has no end.
    """
    try:
        with storage.open_read(unit.file) as file:
            yield from _cut(unit, file, _open(unit, file), block_bytes)
    except _DECODER_ERRORS as error:
        if isinstance(error, OSError) and (error.errno is not None or not unit.is_stream):  # decoders' have no number
            raise unreadable(unit.file, error) from None
        raise _damaged(unit.file, error) from None


def _open(unit: Unit, file: IO[bytes]) -> Any:
    """The stream of a unit's bytes, unpacked and in UTF-8."""
    stream: Any = file
    if unit.kind == GZIP:
        stream = igzip.IGzipFile(fileobj=file, mode="rb")  # the same result as Python's own, in a fifth of the time
    elif unit.kind == ZSTD:
        # Arrow's reader reports truncated data, which zstandard's own ignores.
        stream = io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(file, mode="r"), unit.kind), _PIECE_BYTES)
    if unit.encoding == UTF8:
        return stream
    as_utf8 = resolve_name("clicktower.beam_jobs.sources.encodings:AsUtf8")(stream, unit.encoding)
    return io.BufferedReader(as_utf8, _PIECE_BYTES)


def _cut(unit: Unit, file: IO[bytes], stream: Any, block_bytes: int) -> Iterator[LineBlock]:
    position, counted = unit.start, unit.start
    if unit.start:  # a line across the border belongs to the range before
        stream.seek(unit.start - 1)
        position += len(_rest_of_line(unit, stream, unit.start)) - 1
    while unit.is_stream or position < unit.end:
        num_bytes = block_bytes if unit.is_stream else min(block_bytes, unit.end - position)
        data = stream.read(num_bytes)
        if not data:
            return
        if not data.endswith(b"\n"):
            data += _rest_of_line(unit, stream, position + len(data))
        here = file.tell() if unit.is_stream else min(position + len(data), unit.end)
        yield LineBlock(offset=position, data=data, stored_bytes=here - counted)
        position, counted = position + len(data), here


def _rest_of_line(unit: Unit, stream: Any, position: int) -> bytes:
    """The rest of a line, including its end."""
    line: bytes = stream.readline(MAX_LINE_BYTES)
    if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
        raise endless_line_error(unit.file, position)
    return line


def endless_line_error(file: str, position: int) -> StageError:
    """The error for a line that is longer than any line of a log."""
    return StageError(
        f"{file} has no line end within {MAX_LINE_BYTES >> 20} MiB after byte {position:,}: it does not hold one"
        " record per line.",
        "Give a file with one record per line.",
    )


def _damaged(file: str, error: Exception) -> StageError:
    if "too much memory" in str(error):
        return StageError(
            f"{file} was packed with a longer memory than 128 MiB (zstd --long=28 or more).",
            "Unpack it (zstd -d --long=31), or pack it again without --long.",
        )
    is_cut = isinstance(error, EOFError) or "Truncated" in str(error)
    ends = "ends in the middle of its compressed data" if is_cut else "has damaged compressed data"
    return StageError(f"{file} {ends}. Nothing of it was kept.", "Copy the file again, or leave it out.")


# Functions on the lines of a block: split, check, hash.


def split_lines(block: bytes) -> list[bytes]:
    """The lines without their newlines; the last line of a block may lack it."""
    lines = block.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def bare_lines(block: bytes, lines: list[bytes]) -> list[bytes]:
    """The lines without what is no part of them: carriage returns before the newline, and the byte order mark that some
    programs write before UTF-8, which stands within a file where files were joined.
    """
    if codecs.BOM_UTF8 in block:
        lines = [line.removeprefix(codecs.BOM_UTF8) for line in lines]
    if b"\r" not in block:
        return lines
    return [line.rstrip(b"\r") for line in lines]


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
