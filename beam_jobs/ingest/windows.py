"""Which days of a store are read together: the dates of a window, and only days that are countable together.

A store stands for the newest version of every date (schemas.day_version), and for all ingests without a date. A window
selects dates only. The ingests of an older version stay readable: by the folder of an ingest, or by the version's file.
"""

import datetime
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from clicktower.beam_jobs.ingest.days import (
    OpenDays,
    Window,
    data_date,
    finished_folder,
    open_ingest,
    parse_date,
    require_whole,
)
from clicktower.beam_jobs.ingest.erased_people import follow, is_committing
from clicktower.beam_jobs.ingest.line_samples import require_disjoint_lines
from clicktower.beam_jobs.ingest.person_key import current_date, valid_keys
from clicktower.beam_jobs.ingest.remainders import finished_ingests
from clicktower.schemas import storage
from clicktower.schemas.day_version import DayVersion, is_version_file, list_dates, newest_version, read_version
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.stage import StageResult


def require_possible(window: Window) -> None:
    """Raise UsageError for a window that holds no date, or that two settings begin."""
    for value in (window.first, window.until):
        if value is not None:
            parse_date(value)
    if window.last is not None and window.last < 1:
        raise UsageError(
            f"A window of the last {window.last} dates is empty: it holds at least one.", "Set --last to 1 or more."
        )
    if window.allow_missing < 0:
        raise UsageError(
            f"{window.allow_missing} dates may be missing: there is no such window.",
            "Set --allow-missing-days to 0 or more, or give it without a number.",
        )
    if window.first and window.last:
        raise UsageError(
            f"Both --from {window.first} and --last {window.last} say where the window begins.",
            "Give one of them; --to may stand beside either.",
        )
    if window.first and window.until and window.first > window.until:
        raise UsageError(
            f"The window from {window.first} to {window.until} ends before it begins.", "Swap the two dates."
        )


def _span(window: Window, held: Sequence[str]) -> tuple[str, str]:
    """The first and last date of the window among the store's dates. Raises UsageError for a window without one."""
    until = window.until or max(held, default="")
    first = window.first or min(held, default="")
    if window.last and until:
        first = (parse_date(until) - datetime.timedelta(days=window.last - 1)).isoformat()
    if not any(first <= day <= until for day in held):
        raise UsageError(
            f"The store holds {'no dated day' if not held else f'days from {min(held)} to {max(held)}'}, and none"
            f" from {first or '...'} to {until or '...'}.",
            "Run `clicktower ingest LOG --date DATE --into STORE` for them, or choose another window.",
        )
    return first, until


NUM_EXAMPLES = 10


def open_days(days: Sequence[str], window: Window) -> OpenDays:
    """As days.open_window, for any days."""
    while True:
        held = _days_held(days)
        try:
            return _open_days(days, window)
        except StageError:
            if _days_held(days) == held:
                raise  # otherwise days were removed meanwhile: the rest is opened


def _days_held(days: Sequence[str]) -> list[list[str]]:
    return [list_dates(uri) for uri in days]


def _open_days(days: Sequence[str], window: Window) -> OpenDays:
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
        first, until = _span(window, sorted(held))
    taken = {date: held[date] for date in sorted(held) if first and until and first <= date <= until}
    undated = [
        result
        for store in stores
        for result in finished_ingests(store)
        if not data_date(result.manifest.request) and not is_committing(result.folder)
    ]
    choices = [_choice(map(open_ingest, folders)) for folders in singles.values() if folders]
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
        for result in [open_ingest(follow(folder))]
    }
    ingests = [results[digest] for digest in sorted(results)]
    for result in ingests:
        require_whole(result)
    _require_disjoint_logs(ingests)
    require_disjoint_lines(ingests)
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


def dates(first: str, until: str) -> list[str]:
    """Every date from the first to the last, ISO 8601; none if the first is later. Raises UsageError."""
    begin, end = parse_date(first), parse_date(until)
    return [(begin + datetime.timedelta(days=number)).isoformat() for number in range((end - begin).days + 1)]


def _parts_of(uri: str) -> list[str]:
    """The folders of this ingest, or of this version of a day; none for a store."""
    if is_version_file(uri):
        store = uri.rsplit("/", 3)[0]
        return [follow(storage.join(store, "ingest", part.ingest)) for part in read_version(uri).parts]
    return [folder] if (folder := finished_folder(uri)) else []


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
