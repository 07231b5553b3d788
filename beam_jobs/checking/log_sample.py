"""A bounded sample of a log: whole blocks in a row from a few places, read by the source that `ingest` would read by.

The places are spread evenly over the files, and over the ranges of big plain ones; a packed file is read from its head.
What is left of the budget goes to where reading stopped, so a log that fits is read whole.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from beam_jobs.sources.lines import split_lines
from beam_jobs.sources.read_lines import (
    GZIP,
    MAGIC_BYTES,
    PARQUET,
    PLAIN,
    ZSTD,
    ReadingPlan,
    Unit,
    find_files,
    kind_of,
    read_blocks,
    unreadable,
)
from beam_jobs.sources.source import ParsedBlock, Source
from schemas import storage
from schemas.errors import StageError
from schemas.log_row import LOG_ROW
from schemas.stage import Progress, silent

SAMPLE_LINES = 500_000
MAX_PLACES = 16
MAX_BLOCKS = 64  # of 4 MiB of text each
_LINES_PER_PLACE = 20_000  # fewer are hardly worth a place: a block holds about as many
_MAX_PLACES_OF_REJECTS = 5


@dataclass(kw_only=True, slots=True)
class Sample:
    """What was read. `stretch` numbers, for each row, the run of lines without a gap that it is in."""

    rows: pa.Table  # LOG_ROW
    stretch: np.ndarray
    files: int  # that something was read of
    num_lines: int
    stored_bytes: int
    num_stretches: int
    is_whole: bool
    seconds: float
    action_lines: int = 0
    rejects: Counter[str] = field(default_factory=Counter)
    reject_places: dict[str, list[str]] = field(default_factory=dict)  # reason -> file:offset
    kinds_of_file: dict[str, Counter[str]] = field(default_factory=dict)
    errors: list[StageError] = field(default_factory=list)

    @property
    def unreadable_share(self) -> float:
        return sum(self.rejects.values()) / self.num_lines if self.num_lines else 0.0


def draw_sample(
    source: Source, plan: ReadingPlan, *, sample_lines: int = SAMPLE_LINES, progress: Progress = silent
) -> Sample:
    """About `sample_lines` lines; a block more from each place at most. A file that cannot be read ends in `errors`."""
    reading = _Reading(source=source, progress=progress, sample_lines=sample_lines)
    places = _spread(plan.units, min(MAX_PLACES, max(1, sample_lines // _LINES_PER_PLACE)))
    each = -(-sample_lines // len(places))
    for number in places:
        reading.read(number, plan.units[number], each)
    for number, unit in sorted(enumerate(plan.units), key=lambda pair: pair[0] not in places):
        reading.read(number, unit, sample_lines)
    return reading.result(len(plan.units), plan.stored_bytes)


@dataclass(kw_only=True, slots=True)
class _Reading:
    """What has been read so far."""

    source: Source
    progress: Progress
    sample_lines: int
    open: dict[int, Iterator[ParsedBlock]] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    batches: list[pa.RecordBatch] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)  # of the unit of each batch
    num_lines: int = 0
    stored: int = 0
    seconds: float = 0.0
    action_lines: int = 0
    rejects: Counter[str] = field(default_factory=Counter)
    places: dict[str, list[str]] = field(default_factory=dict)
    kinds_of_file: dict[str, Counter[str]] = field(default_factory=dict)
    errors: list[StageError] = field(default_factory=list)

    def read(self, number: int, unit: Unit, budget: int) -> None:
        """Go on in a unit for `budget` lines, or until all that may be read has been."""
        got = 0
        while got < budget and not self._is_full() and number not in self.ended:
            begun = time.perf_counter()
            try:
                block = next(self.open.setdefault(number, self.source.read(unit)), None)
            except StageError as error:
                self.errors.append(error)
                block = None
            self.seconds += time.perf_counter() - begun
            if block is None:
                self.ended.add(number)
                return
            got += block.num_lines
            self._take(number, unit, block)
            self.progress("reading a sample (lines)", min(self.num_lines, self.sample_lines), self.sample_lines)

    def result(self, num_units: int, all_bytes: int) -> Sample:
        for number, iterator in self.open.items():
            if number not in self.ended and next(iterator, None) is None:  # it had just come to its end
                self.ended.add(number)
        is_whole = len(self.ended) == num_units and not self.errors
        order = np.argsort(self.numbers, kind="stable").tolist()
        batches = [self.batches[at] for at in order]
        rows = pa.Table.from_batches(batches, LOG_ROW) if batches else LOG_ROW.empty_table()
        sizes = [batch.num_rows for batch in batches]
        return Sample(
            rows=rows.unify_dictionaries().combine_chunks(),
            stretch=np.repeat(np.sort(np.array(self.numbers, np.int64)), sizes),
            files=len(self.kinds_of_file),
            num_lines=self.num_lines,
            stored_bytes=all_bytes if is_whole else min(self.stored, all_bytes),
            num_stretches=len(set(self.numbers)),
            is_whole=is_whole,
            seconds=self.seconds,
            action_lines=self.action_lines,
            rejects=self.rejects,
            reject_places=self.places,
            kinds_of_file=self.kinds_of_file,
            errors=self.errors,
        )

    def _is_full(self) -> bool:
        return self.num_lines >= self.sample_lines or len(self.batches) >= MAX_BLOCKS

    def _take(self, number: int, unit: Unit, block: ParsedBlock) -> None:
        self.batches.append(block.rows)
        self.numbers.append(number)
        self.num_lines += block.num_lines
        self.stored += block.stored_bytes
        self.action_lines += block.num_action_lines
        self.rejects.update(block.reject_reasons)
        for offset, reason in zip(block.reject_offsets.tolist(), block.reject_reasons, strict=True):
            if len(self.places.setdefault(reason, [])) < _MAX_PLACES_OF_REJECTS:
                self.places[reason].append(f"{unit.file}:{offset}")
        counts = self.kinds_of_file.setdefault(unit.file, Counter())
        for row in block.rows["kind"].dictionary_decode().value_counts().to_pylist():
            counts[row["values"]] += row["counts"]


def _spread(units: Sequence[Unit], most: int) -> list[int]:
    """Numbers of units, evenly spread, the first among them."""
    count = min(most, len(units))
    return [number * len(units) // count for number in range(count)]


# The first lines of some files of a log as they are, whatever their form is: what a guess at the form is made from.
#
# Lines are looked at and never shown.


MAX_FILES, MAX_LINES = 16, 2000  # looked into, and of each
_LOOK_BYTES = 1 << 20
TEXT_KINDS = (PLAIN, GZIP, ZSTD)


@dataclass(frozen=True, kw_only=True, slots=True)
class FileLook:
    """One file. `lines` are its first ones, or none; `schema` is there for Parquet; `error` says why it is not read."""

    file: str
    kind: str  # of read_lines
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
