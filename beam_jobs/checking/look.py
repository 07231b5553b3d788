"""The first lines of some files of a log as they are, whatever their form is: what a guess at the form is made from.

Lines are looked at and never shown.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from beam_jobs.file_kinds import GZIP, MAGIC_BYTES, PARQUET, PLAIN, ZSTD, kind_of
from beam_jobs.read_lines import Unit, find_files, read_blocks, unreadable
from beam_jobs.sources.lines import split_lines
from schemas import storage
from schemas.errors import StageError

MAX_FILES, MAX_LINES = 16, 2000  # looked into, and of each
_LOOK_BYTES = 1 << 20
TEXT_KINDS = (PLAIN, GZIP, ZSTD)


@dataclass(frozen=True, kw_only=True, slots=True)
class FileLook:
    """One file. `lines` are its first ones, or none; `schema` is there for Parquet; `error` says why it is not read."""

    file: str
    kind: str  # of beam_jobs.file_kinds
    size: int
    lines: tuple[bytes, ...] = ()
    schema: pa.Schema | None = None
    error: StageError | None = None


def look_at(logs: Sequence[str]) -> list[FileLook]:
    """Every file of a log; into MAX_FILES of them, evenly spread, deeper. Raises UsageError where there is none."""
    files = find_files(logs)
    kinds = [_kind_and_size(file) for file in files]
    with_bytes = [number for number, (_, size, _) in enumerate(kinds) if size]
    step = -(-len(with_bytes) // MAX_FILES) or 1
    chosen = set(with_bytes[::step])
    return [_look(file, *kinds[number], deeper=number in chosen) for number, file in enumerate(files)]


def _kind_and_size(file: str) -> tuple[str, int, StageError | None]:
    try:
        size = storage.size_bytes(file) or 0
        with storage.open_read(file) as opened:
            return kind_of(opened.read(MAGIC_BYTES)), size, None
    except OSError as error:
        return PLAIN, 0, unreadable(file, error)


def _look(file: str, kind: str, size: int, error: StageError | None, *, deeper: bool) -> FileLook:
    found = FileLook(file=file, kind=kind, size=size, error=error)
    if not deeper or error:
        return found
    try:
        if kind == PARQUET:
            with storage.open_read(file) as opened:
                return FileLook(file=file, kind=kind, size=size, schema=pq.read_schema(opened))
        if kind in TEXT_KINDS:
            first = next(read_blocks(Unit(file=file, start=0, end=size, kind=kind), _LOOK_BYTES), None)
            lines = split_lines(first.data)[:MAX_LINES] if first else []
            return FileLook(file=file, kind=kind, size=size, lines=tuple(line.removesuffix(b"\r") for line in lines))
    except StageError as raised:
        return FileLook(file=file, kind=kind, size=size, error=raised)
    except (pa.ArrowInvalid, OSError):
        return found  # its source says what is wrong with it
    return found
