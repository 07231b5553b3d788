"""The job's view of a log in any format: the parts to read, and the rows of a part.

A source is small and is pickled to the workers. The job asks it for a plan at the start, and for the blocks of a unit
wherever that unit is read; a sample reads the first blocks of some units.

The log formats of ingest and check stand in FORMS: a new one is a file that defines its source, and an entry there.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pkgutil import resolve_name
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
import pyarrow as pa

from clicktower.beam_jobs.sources.log_rows import Values, WrongValues
from clicktower.beam_jobs.sources.mapping import UTF8
from clicktower.beam_jobs.sources.mapping import Mapping as LogMapping
from clicktower.beam_jobs.sources.read_lines import BLANK, ReadingPlan, Unit, line_hashes, plan_reading, read_blocks
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.ledger import FATES

# (line hashes, the mapped columns by our names, the mapping) -> (rows in the order of the lines, the numbers of the
# rejected lines ascending, their reasons, the values of wrong kinds): the meaning of lines once their format has been
# parsed. Picklable.
RowsOf: TypeAlias = Callable[
    [pa.FixedSizeBinaryArray, Mapping[str, Values], Any], tuple[pa.RecordBatch, np.ndarray, Sequence[str], WrongValues]
]

ACTION = "action_line"  # of a bulk file


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsedBlock:
    """Some lines and their place: each is a row, a reject (its place), or only a count: a blank line, or an action line
    of a bulk file.
    """

    rows: pa.RecordBatch  # LOG_ROW, or the result of the source's `rows_of`
    reject_offsets: np.ndarray  # int64, ascending: in bytes of the file, in rows for Parquet
    reject_reasons: Sequence[str]  # fates (schemas.ledger)
    num_action_lines: int
    num_blank_lines: int
    wrong_values: WrongValues
    num_lines: int = 0  # counted independently of parsing, so that the ledger can detect a lost line
    offset: int = 0  # where the block starts: bytes of the uncompressed file, rows of a Parquet file
    stored_bytes: int = 0  # the bytes read from the stored file

    def placed(self, begin: int, *, num_lines: int, offset: int, stored_bytes: int) -> "ParsedBlock":
        """These lines, parsed as if a file began with them, with their real places. `begin`: the place of the first."""
        offsets = self.reject_offsets + begin
        return replace(self, reject_offsets=offsets, num_lines=num_lines, offset=offset, stored_bytes=stored_bytes)


def starts_of(lines: Sequence[bytes]) -> np.ndarray:
    """Where each line begins in the block that they make up, int64 [lines]."""
    sizes = np.fromiter(map(len, lines), np.int64, len(lines)) + 1
    return np.cumsum(sizes) - sizes


def rows_of_lines(
    lines: Sequence[bytes],
    numbers: Sequence[int],
    columns: Mapping[str, Values],
    rejects: dict[int, str],
    rows_of: RowsOf,
    mapping: Any,
) -> tuple[pa.RecordBatch, WrongValues]:
    """(the rows of those lines that have these numbers and columns, the values of wrong kinds).

    `rejects`: lines that are not rows are added to it, by number.
    """
    kept = lines if len(numbers) == len(lines) else [lines[number] for number in numbers]
    rows, bad, reasons, wrong = rows_of(line_hashes(kept), columns, mapping)
    rejects.update((numbers[place], reason) for place, reason in zip(bad.tolist(), reasons, strict=True))
    return rows, wrong


def parsed_lines(
    rows: pa.RecordBatch, starts: np.ndarray, rejects: Mapping[int, str], wrong_values: WrongValues
) -> ParsedBlock:
    """`rows` with the places of the rejected lines. `starts`: where each line begins. `rejects`: the fate by the line's
    number; blank lines and action lines are among them.
    """
    fates = Counter(rejects.values())
    numbers = sorted(number for number, fate in rejects.items() if fate not in (BLANK, ACTION))
    return ParsedBlock(
        rows=rows,
        reject_offsets=starts[numbers],
        reject_reasons=[rejects[number] for number in numbers],
        num_action_lines=fates[ACTION],
        num_blank_lines=fates[BLANK],
        wrong_values=wrong_values,
    )


@runtime_checkable  # Beam checks arguments against their annotations
class Source(Protocol):
    """A log format with its settings. Errors: plan raises UsageError and StageError, read StageError."""

    def plan(self, logs: Sequence[str]) -> ReadingPlan:
        """What to read under some paths, patterns, folders and URIs."""

    def read(self, unit: Unit) -> Iterator[ParsedBlock]:
        """The blocks of one unit, in the order of the file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LineSource:
    """A log with one event per line. `parse` gives the rows of whole lines in UTF-8; it must be picklable."""

    parse: Callable[[bytes], ParsedBlock]
    encoding: str = UTF8

    def plan(self, logs: Sequence[str]) -> ReadingPlan:
        return plan_reading(logs, encoding=self.encoding)

    def read(self, unit: Unit) -> Iterator[ParsedBlock]:
        for block in read_blocks(unit):
            yield self.parse(block.data).placed(
                block.offset, num_lines=block.num_lines, offset=block.offset, stored_bytes=block.stored_bytes
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class FileByFile:
    """A source that does not let a file go of which not one line can be read, however many lines the others have."""

    source: Source

    def plan(self, logs: Sequence[str]) -> ReadingPlan:
        return self.source.plan(logs)

    def read(self, unit: Unit) -> Iterator[ParsedBlock]:
        """Also raises StageError for the file, after the last block of the unit that it begins with."""
        unreadable: Counter[str] = Counter()
        num_rows = 0
        for block in self.source.read(unit):
            num_rows += block.rows.num_rows
            unreadable.update(reason for reason in block.reject_reasons if FATES[reason][0] == "unreadable")
            yield block
        if unit.start == 0 and unreadable and not num_rows:
            reason, count = unreadable.most_common(1)[0]
            raise StageError(
                f"Not one line of {unit.file} can be read: {count:,} {FATES[reason][1]}. Other files of the log may be"
                " fine.",
                "It probably has another form or encoding: write it as the others are, or leave it out.",
            )


def file_by_file(source: Source, plan: ReadingPlan, max_unreadable_share: float) -> Source:
    """The source, with its limit on unreadable lines; of a single file the limit of the whole log says more."""
    return FileByFile(source=source) if len(plan.files) > 1 and max_unreadable_share < 1 else source


@dataclass(frozen=True, kw_only=True, slots=True)
class LogForm:
    """A log format, as `--format` names it.

    `code`: "module:name" of the class or function that makes its source of a mapping. `mapping`: what a user specifies:
    the columns, or only the meaning of events. `is_text`: lines of text in an encoding, identified by their bytes.
    """

    name: str
    code: str
    mapping: Literal["columns", "events", "none"]
    takes_delimiter: bool = False
    is_text: bool = True

    def source(self, mapping: LogMapping) -> Source:
        """The source, whose code this imports; it opens nothing yet."""
        return resolve_name(self.code)(mapping=mapping)


_SOURCES = "clicktower.beam_jobs.sources"
FORMS = {
    form.name: form
    for form in (
        LogForm(name="ubi", code=f"{_SOURCES}.ubi:ubi_source", mapping="events"),
        LogForm(name="orcas", code=f"{_SOURCES}.delimited:orcas_source", mapping="none"),
        LogForm(
            name="delimited", code=f"{_SOURCES}.delimited:DelimitedSource", mapping="columns", takes_delimiter=True
        ),
        LogForm(name="jsonl", code=f"{_SOURCES}.jsonl:JsonSource", mapping="columns"),
        LogForm(name="parquet", code=f"{_SOURCES}.parquet:ParquetSource", mapping="columns", is_text=False),
    )
}


def form_of(name: str) -> LogForm:
    """The format with that name. Raises UsageError for an unknown name."""
    if name not in FORMS:
        raise UsageError(f"The format `{name}` of a log is unknown.", f"Use one of {', '.join(FORMS)}.")
    return FORMS[name]
