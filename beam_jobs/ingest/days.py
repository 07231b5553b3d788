"""The days of a window: selected, checked to be countable together, and read as Arrow tables.

A store stands for the newest version of every date (schemas.day_version), and for all ingests without a date. A window
selects dates only. The ingests of an older version stay readable: by the folder of an ingest, or by the version's file.
"""

import datetime
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clicktower.beam_jobs.ingest.day_versions import data_date, finished_ingests, follow, is_committing, read_sample
from clicktower.beam_jobs.ingest.person_key import current_date, valid_keys
from clicktower.schemas import manifest, storage
from clicktower.schemas.day_version import DayVersion, is_version_file, list_dates, newest_version, read_version
from clicktower.schemas.errors import StageError, UsageError, require_major
from clicktower.schemas.search_log import CLICK_WEIGHT, EXPOSURES, QUERIES, SCHEMA_VERSION, VERSION_KEY
from clicktower.schemas.stage import StageResult, open_result

NUM_EXAMPLES = 10


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
        for value in (self.first, self.until):
            if value is not None:
                parse_date(value)
        if self.last is not None and self.last < 1:
            raise UsageError(
                f"A window of the last {self.last} dates is empty: it holds at least one.", "Set --last to 1 or more."
            )
        if self.allow_missing < 0:
            raise UsageError(
                f"{self.allow_missing} dates may be missing: there is no such window.",
                "Set --allow-missing-days to 0 or more, or give it without a number.",
            )
        if self.first and self.last:
            raise UsageError(
                f"Both --from {self.first} and --last {self.last} say where the window begins.",
                "Give one of them; --to may stand beside either.",
            )
        if self.first and self.until and self.first > self.until:
            raise UsageError(
                f"The window from {self.first} to {self.until} ends before it begins.", "Swap the two dates."
            )

    @property
    def is_all(self) -> bool:
        return self.first is None and self.until is None and self.last is None

    def span(self, held: Sequence[str]) -> tuple[str, str]:
        """The first and last date of the window among the store's dates. Raises UsageError for a window without one."""
        until = self.until or max(held, default="")
        first = self.first or min(held, default="")
        if self.last and until:
            first = (parse_date(until) - datetime.timedelta(days=self.last - 1)).isoformat()
        if not any(first <= day <= until for day in held):
            raise UsageError(
                f"The store holds {'no dated day' if not held else f'days from {min(held)} to {max(held)}'}, and none"
                f" from {first or '...'} to {until or '...'}.",
                "Run `clicktower ingest LOG --date DATE --into STORE` for them, or choose another window.",
            )
        return first, until


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
    versions: dict[str, int]  # date -> its version here
    missing: list[str]  # missing dates between the first and the last
    first: str | None = None
    until: str | None = None
    begins: str | None = None  # the first date that was read
    num_other_key: int = 0  # dates before that, under another key alone
    num_undated: int = 0
    num_undated_left_out: int = 0

    def request_key(self) -> dict[str, Any]:
        """What identifies a build beside the digests of the ingests: the window, and its missing dates."""
        return {"from": self.first, "to": self.until, "missing": self.missing}

    def to_json(self) -> dict[str, Any]:
        """What a manifest records about them."""
        return {
            **self.request_key(),
            **({"begins": self.begins} if self.begins != self.first else {}),
            **({"other_key": self.num_other_key} if self.num_other_key else {}),
            "versions": self.versions,
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
    while True:
        held = _days_held(days)
        try:
            return _open_window(days, window or Window())
        except StageError:
            if _days_held(days) == held:
                raise  # otherwise days were removed meanwhile: the rest is opened


def _days_held(days: Sequence[str]) -> list[list[str]]:
    return [list_dates(uri) for uri in days]


def _open_window(days: Sequence[str], window: Window) -> OpenDays:
    singles = {uri: _parts_of(uri) for uri in days}
    stores = [uri for uri, parts in singles.items() if not parts]
    held: dict[str, list[tuple[str, DayVersion]]] = {}  # date -> its newest version in each store
    for store in stores:
        for date in list_dates(store):
            if version := newest_version(store, date):
                held.setdefault(date, []).append((store, version))
    first, until = (min(held), max(held)) if held else (None, None)
    if not window.is_all:
        if any(singles.values()):
            raise UsageError(
                "A window chooses among a store's dates, and single days are given.", "Give the store with --days."
            )
        first, until = window.span(sorted(held))
    taken = {date: held[date] for date in sorted(held) if first and until and first <= date <= until}
    undated = [
        result
        for store in stores
        for result in finished_ingests(store)
        if not data_date(result.manifest.request) and not is_committing(result.folder)
    ]
    choices = [_choice(map(_open, folders)) for folders in singles.values() if folders]
    choices += [_choice(results) for results in _by_log(undated if window.is_all else [])]
    for date, versions in taken.items():
        for store, version in versions:
            parts = [(part.person_key, storage.join(store, "ingest", part.ingest)) for part in version.parts]
            choices.append(Choice(date=date, folders=_grouped(parts)))
    if not any(choice.folders for choice in choices):
        raise UsageError(
            f"There is no finished ingest in {', '.join(days) or 'nowhere'}.",
            "Run `clicktower ingest` into that store first, or give the path that it printed.",
        )
    since = dict[str, str]()  # key: its first date in the stores
    for date in sorted(held):
        for key in {key for _, version in held[date] for key in version.person_keys}:
            since.setdefault(key, date)
    key = _key_of(choices, since, window)
    read = [choice for choice in choices if key in choice.folders]
    begins = min(choice.date for choice in read) if window.last else first
    other_key = [choice for choice in choices if key not in choice.folders]
    if other_key and not window.last:
        raise _different_keys(choices)
    read_dates = {choice.date for choice in read}
    missing = [date for date in dates(first, until) if date not in read_dates] if first and until else []
    if not window.is_all:
        _require_few([date for date in missing if begins and (date > begins or not window.last)], window, begins, until)
    results = {
        result.manifest.digest: result
        for choice in read
        for folder in choice.folders[key]
        for result in [_open(follow(folder))]
    }
    ingests = [results[digest] for digest in sorted(results)]
    for result in ingests:
        _require_whole(result)
    _require_disjoint_logs(ingests)
    _require_disjoint_lines(ingests)
    return OpenDays(
        ingests=ingests,
        versions={
            date: version.version for date, versions in taken.items() for _, version in versions if date in read_dates
        },
        missing=missing,
        first=first,
        until=until,
        begins=begins,
        num_other_key=len({choice.date for choice in other_key}),
        num_undated=len([result for result in ingests if not data_date(result.manifest.request)]),
        num_undated_left_out=0 if window.is_all else len(undated),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """A date of a store, or a log without a date: its folders under each key of people, of which a window reads one."""

    date: str  # "" for none
    folders: Mapping[str, Sequence[str]]


def _choice(results: Iterable[StageResult]) -> Choice:
    opened = list(results)
    keys = [str(result.manifest.request.inputs.get("person_key")) for result in opened]
    return Choice(
        date=data_date(opened[0].manifest.request) or "",
        folders=_grouped(zip(keys, (result.folder for result in opened), strict=True)),
    )


def _by_log(results: Iterable[StageResult]) -> Iterable[list[StageResult]]:
    of_log: dict[tuple[str, ...], list[StageResult]] = {}
    for result in results:
        of_log.setdefault(tuple(result.manifest.request.inputs.get("logs", ())), []).append(result)
    return of_log.values()


def _grouped(folders: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """{key: its folders}"""
    of_key: dict[str, list[str]] = {}
    for key, folder in folders:
        of_key.setdefault(key, []).append(folder)
    return of_key


def _key_of(choices: Sequence[Choice], since: Mapping[str, str], window: Window) -> str:
    """The key under which most of the choices can be read, and of several such keys the newest (`since`: its first
    date). The last dates of a store include its newest, so theirs is a key of that date.
    """
    newest = max(choice.date for choice in choices)
    num_of = Counter(key for choice in choices for key in choice.folders)
    keys = {key for choice in choices for key in choice.folders if not window.last or choice.date == newest}
    return max(keys, key=lambda key: (num_of[key], since.get(key, ""), key))


def _open(folder: str) -> StageResult:
    return open_result(folder, "ingest", fix="Give folders of `clicktower ingest`, or their store.")


def _require_few(holes: Sequence[str], window: Window, first: str | None, until: str | None) -> None:
    """Raise StageError if the window allows fewer dates to be missing."""
    if window.allow_missing is True or len(holes) <= window.allow_missing:
        return
    more = f" and {len(holes) - NUM_EXAMPLES:,} more" if len(holes) > NUM_EXAMPLES else ""
    allowed = f"; {int(window.allow_missing):,} may be missing" if window.allow_missing else ""
    raise StageError(
        f"The store has nothing for {', '.join(holes[:NUM_EXAMPLES])}{more}, within the days {first} to"
        f" {until}{allowed}.",
        "Ingest them (`clicktower backfill pipeline.toml --missing` reads all whose logs are there, `clicktower ingest"
        " LOG --date DATE --into STORE` one); or say how many may be missing: --allow-missing-days, or [window]"
        f" allow_missing_days = {len(holes)}.",
    )


def list_holes(store: str, today: datetime.date | None = None) -> list[str]:
    """The dates that a store has nothing for, from its first to yesterday, and those that lack a key of people that was
    there by then: an ingest was cut off between two keys. Raises StageError.
    """
    today = today or current_date()
    keys_of = {date: version.person_keys for date in list_dates(store) if (version := newest_version(store, date))}
    if not keys_of:
        return []
    until = max(*keys_of, (today - datetime.timedelta(days=1)).isoformat())
    begins = {key.id: key.begins.isoformat() for _, key in valid_keys(store, today)}
    return [
        date
        for date in dates(min(keys_of), until)
        if date not in keys_of or any(date >= begin and key not in keys_of[date] for key, begin in begins.items())
    ]


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


def dates(first: str, until: str) -> list[str]:
    """Every date from the first to the last, ISO 8601; none if the first is later. Raises UsageError."""
    begin, end = parse_date(first), parse_date(until)
    return [(begin + datetime.timedelta(days=number)).isoformat() for number in range((end - begin).days + 1)]


def _parts_of(uri: str) -> list[str]:
    """The folders of this ingest, or of this version of a day; none for a store."""
    if is_version_file(uri):
        store = uri.rsplit("/", 3)[0]
        return [follow(storage.join(store, "ingest", part.ingest)) for part in read_version(uri).parts]
    folder = follow(uri)
    return [folder] if folder != uri or storage.exists(storage.join(uri, manifest.FILE_NAME)) else []


def _require_whole(result: StageResult) -> None:
    if is_committing(result.folder):
        raise StageError(f"The ingest {result.folder} did not finish.", "Run `clicktower ingest` for that log again.")
    damage = manifest.damaged_files(result.folder, result.manifest.files)
    if damage:
        raise StageError(
            f"The day {result.folder} is damaged: {'; '.join(damage[:3])}.",
            "Run `clicktower ingest` for that log again, which makes the damaged output anew.",
        )


def _different_keys(choices: Sequence[Choice]) -> StageError:
    under: dict[str, list[str]] = {}
    for choice in choices:
        for key in choice.folders:
            under.setdefault(key, []).append(choice.date or "without a date")
    latest, dates = max(under.items(), key=lambda item: max(item[1]) if "without a date" not in item[1] else "")
    spans = sorted((min(of_key), max(of_key), key) for key, of_key in under.items())
    named = "; ".join(f"{first}{f' to {last}' * (first != last)} under {key}" for first, last, key in spans)
    fix = "Ingest all days of a window with the same key."
    if "without a date" not in dates:
        begins = min(dates)
        fix = (
            f"Build from days under one key: --from {begins} (or --last {len(set(dates))}); or ingest the logs of the"
            f" other dates again, which makes those days anew under {latest}."
        )
    return StageError(
        f"The people of the {len(choices)} days are hashed under {len(under)} different keys ({named}): one person"
        " would count as several, and queries of fewer than k people would pass.",
        fix,
    )


def _require_disjoint_logs(days: Sequence[StageResult]) -> None:
    holder: dict[str, str] = {}
    for result in days:
        for fingerprint in result.manifest.request.inputs.get("logs", ()):
            holder_folder = holder.setdefault(fingerprint, result.folder)
            if holder_folder != result.folder:
                raise StageError(
                    f"{holder_folder} and {result.folder} come from the same log file (fingerprint {fingerprint[:12]}),"
                    " whose clicks would count twice.",
                    "Name the days that belong to the window one by one, each log once.",
                )


def _require_disjoint_lines(days: Sequence[StageResult]) -> None:
    """Raises StageError if two days were made from the same lines, even from different files.

    Lines without a time may legitimately be equal on two dates.
    """
    samples = [(result, sample) for result in days if (sample := read_sample(result))]
    if not samples:
        return
    lines = np.sort(np.concatenate([sample.lines for _, sample in samples]))
    if not (lines[1:] == lines[:-1]).any():
        return
    for (first, mine), (second, theirs) in combinations(samples, 2):
        may_repeat = data_date(first.manifest.request) and data_date(second.manifest.request) and not (
            first.manifest.outcome.metrics["first_time"] and second.manifest.outcome.metrics["first_time"]
        )  # fmt: skip
        if not may_repeat and mine.overlaps(theirs):
            raise StageError(
                f"{first.folder} and {second.folder} hold the same lines in different files: their clicks would"
                " count twice.",
                "Ingest both logs together, or keep one of the two folders and remove the other.",
            )
