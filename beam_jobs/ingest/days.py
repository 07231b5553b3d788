"""The days of a window, checked to be countable together, and read as Arrow tables.

A single ingest, as a run without dates has it, is opened here; windows chooses among the days of a store.
"""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pkgutil import resolve_name
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from clicktower.beam_jobs.ingest.erased_people import follow, is_committing
from clicktower.schemas import manifest, storage
from clicktower.schemas.errors import StageError, UsageError, require_major
from clicktower.schemas.manifest import Request
from clicktower.schemas.search_log import CLICK_WEIGHT, EXPOSURES, QUERIES, SCHEMA_VERSION, VERSION_KEY
from clicktower.schemas.stage import StageResult, open_result

_WINDOWS = "clicktower.beam_jobs.ingest.windows"  # loaded for stores, versions, dates, and several ingests


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """The dates of a store to unite: `first` to `until` (ISO 8601, inclusive), or the `last` N up to `until`.

    By default `first` is the store's first date, and `until` its newest. With none of the three everything is used,
    undated ingests too. `allow_missing`: continue if the store has nothing for some dates in between: for so many, or
    True for any number. The `last` N of a store that has fewer begin with its first date, and those of a store whose
    keys of people do not overlap with the first date under the newest key. Raises UsageError.
    """

    first: str | None = None
    until: str | None = None
    last: int | None = None
    allow_missing: bool | int = False

    def __post_init__(self) -> None:
        if not self.is_all or self.allow_missing:
            resolve_name(f"{_WINDOWS}:require_possible")(self)

    @property
    def is_all(self) -> bool:
        return self.first is None and self.until is None and self.last is None


def parse_date(value: str) -> datetime.date:
    """The date in a text of the form 2026-09-01. Raises UsageError."""
    try:
        date = datetime.date.fromisoformat(value)
    except (TypeError, ValueError):
        date = None
    if date is None or date.isoformat() != value:
        raise UsageError(f"{value} is not a date of the form 2026-09-01.", "Write year, month and day with hyphens.")
    return date


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenDays:
    """`ingests`: what is read, in the order of the digests, each once. Their dates, if they have any."""

    ingests: list[StageResult]
    versions: Mapping[str, int] = field(default_factory=dict)  # date -> its version here
    missing: Sequence[str] = ()  # missing dates between the first and the last
    first: str | None = None
    until: str | None = None
    begins: str | None = None  # the first date that was read
    num_other_key: int = 0  # dates before that, under another key alone
    num_undated: int = 0
    num_undated_left_out: int = 0

    def request_key(self) -> dict[str, Any]:
        """What identifies a build beside the digests of the ingests: the window, and its missing dates."""
        return {"from": self.first, "to": self.until, "missing": list(self.missing)}

    def to_json(self) -> dict[str, Any]:
        """What a manifest records about them."""
        return {
            **self.request_key(),
            **({"begins": self.begins} if self.begins != self.first else {}),
            **({"other_key": self.num_other_key} if self.num_other_key else {}),
            "versions": dict(self.versions),
            "undated": self.num_undated,
            "undated_left_out": self.num_undated_left_out,
        }


def open_window(days: Sequence[str], window: Window | None = None) -> OpenDays:
    """The finished ingests behind some days, as one day or many.

    `days`: ingest folders, files of versions (STORE/days/DATE/version-N.json), or stores; of a store the dates of the
    window, or everything without a window. Raises UsageError (missing, another stage's folder, a window of something
    other than a store) and StageError (a damaged day, a missing date, different person keys, a log file that two days
    contain).
    """
    window = window or Window()
    folder = finished_folder(days[0]) if len(days) == 1 and window.is_all else None
    if folder is None:
        return resolve_name(f"{_WINDOWS}:open_days")(days, window)
    ingest = open_ingest(folder)
    require_whole(ingest)
    return OpenDays(ingests=[ingest], num_undated=int(data_date(ingest.manifest.request) is None))


def finished_folder(uri: str) -> str | None:
    """The folder that holds an ingest's rows now, by the ingest's own; None for a store or a version of a day."""
    folder = follow(uri)
    return folder if folder != uri or manifest.is_finished(uri) else None


def open_ingest(folder: str) -> StageResult:
    return open_result(folder, "ingest", fix="Give folders of `clicktower ingest`, or their store.")


@dataclass(frozen=True, slots=True)
class DayFile:
    """A file of a day, with its recorded hash."""

    uri: str
    sha256: str


def day_files(days: Sequence[StageResult], kind: str) -> list[DayFile]:
    """All files of a kind, `queries` or `exposures`."""
    return [
        DayFile(storage.join(result.folder, file.path), file.sha256)
        for result in days
        for file in result.manifest.files
        if file.path.rsplit("/", 1)[-1].startswith(f"{kind}-")
    ]


def read_day_file(file: DayFile) -> pa.Table:
    """The rows of a day file, with every byte checked: a disk may change some, and the size does not show it.

    In a file of version 1 nothing is a conversion and each click counts one. Raises StageError if it is damaged, and
    UnknownVersionError for another major version.
    """
    content = storage.read_bytes(file.uri)
    if sha256(content).hexdigest() != file.sha256:
        raise StageError(
            f"{file.uri} has other bytes than were written.",
            "Bring the file back from a copy; or ingest that log once more (above 64 MiB: remove the folder first).",
        )
    table = pa.ipc.open_file(pa.BufferReader(content)).read_all()
    version = (table.schema.metadata or {}).get(VERSION_KEY, b"none").decode()
    if version.startswith("1."):
        return _from_version_1(table)
    require_major(file.uri, version, SCHEMA_VERSION, stage="ingest")
    return table


def _from_version_1(table: pa.Table) -> pa.Table:
    if "clicks" not in table.schema.names:
        return table.cast(QUERIES)
    added = {"conversions": pc.multiply(table["clicks"], 0), "weight": pc.multiply(table["clicks"], CLICK_WEIGHT)}
    columns = {name: added[name] if name in added else table[name] for name in EXPOSURES.names}
    return pa.table(columns, schema=EXPOSURES)


def day_bytes(days: Sequence[StageResult]) -> int:
    return sum(file.size_bytes for day in days for file in day.manifest.files)


def inherited_labels(days: Sequence[StageResult]) -> dict:
    """The labels of all days together; a label of one day (`simulated` above all) applies to the whole."""
    return {name: value for result in days for name, value in result.manifest.outcome.labels.items() if value}


def require_whole(result: StageResult) -> None:
    """Raise StageError for an ingest that has not finished, or is damaged."""
    if is_committing(result.folder):
        raise StageError(f"The ingest {result.folder} did not finish.", "Run `clicktower ingest` for that log again.")
    damage = manifest.damaged_files(result.folder, result.manifest.files)
    if damage:
        raise StageError(
            f"The day {result.folder} is damaged: {'; '.join(damage[:3])}.",
            "Run `clicktower ingest` for that log again, which makes the damaged output anew.",
        )


def of_date(request: Request) -> Any:
    """The module dated_days for an ingest with a date; None for one without, which is no part of a day."""
    return resolve_name("clicktower.beam_jobs.ingest.dated_days") if data_date(request) else None


def data_date(request: Request) -> str | None:
    """The date of an ingest's data, or None for an undated one."""
    return request.config.get("date")
