"""What becomes of a date when something is ingested for it: its first version, a late part, or a day made anew.

Decided twice: before the job, so that nobody waits for what will be refused, and when its day is committed, by what
is the newest version then. Two late files that are ingested side by side both end up in the day, in either order.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

from beam_jobs.erased_days import follow, is_erased
from schemas import day_version, storage
from schemas.day_version import ANEW, ERASED, FIRST, LATE, DayPart, DayVersion
from schemas.errors import StageError
from schemas.manifest import Request

# Of an ingest's inputs: what is not a setting.
_NOT_SETTINGS = ("logs", "person_key", "erased_from", "erased_people", "erasure")


def part_of(request: Request) -> DayPart:
    """An ingest as the part of a day."""
    settings = {name: value for name, value in request.inputs.items() if name not in _NOT_SETTINGS}
    asked = Request(
        stage="ingest", stage_version=request.stage_version, config=request.config, inputs=settings, seed=request.seed
    )
    return DayPart(
        ingest=request.digest,
        logs=tuple(sorted(request.inputs.get("logs", ()))),
        person_key=str(request.inputs.get("person_key")),
        settings=asked.digest,
    )


def data_date(request: Request) -> str | None:
    """The date of an ingest's data, or None for an undated one."""
    return request.config.get("date")


def find_held(store: str, request: Request) -> str | None:
    """The folder of an ingest that already stands for this one, or None where there is something to ingest.

    That is the one an erasure left of it; or, where its log files are all part of the date's newest version, the part
    that holds the first of them. Raises StageError where the date cannot take these files (see `_next_parts`).
    """
    own = storage.join(store, "ingest", request.digest)
    if is_erased(own):
        return follow(own)
    date = data_date(request)
    newest = day_version.newest(store, date) if date else None
    if newest is None:
        return None
    part = part_of(request)
    if any(other.ingest == part.ingest for other in newest.parts) or _next_parts(newest, part):
        return None
    holder = next(other for other in newest.parts if part.logs[0] in other.logs)
    return follow(storage.join(store, "ingest", holder.ingest))


def register(store: str, request: Request) -> DayVersion | None:
    """The version of its date that a finished ingest is in, written if need be; None for an undated one.

    May run again at any time: what is in already stays as it is. Raises StageError (see `_next_parts`).
    """
    date = data_date(request)
    if date is None:
        return None
    part = part_of(request)
    while True:
        newest = day_version.newest(store, date)
        if newest and (
            any(other.ingest == part.ingest for other in newest.parts)
            or is_erased(storage.join(store, "ingest", part.ingest))
        ):
            return newest
        next_parts = _next_parts(newest, part) if newest else ((part,), FIRST)
        if next_parts is None:
            return newest
        version = _following(date, newest, *next_parts)
        if day_version.write(store, version):
            return version


def replace_erased(store: str, date: str) -> DayVersion | None:
    """The newest version of a date, in which every part that was erased has given way to what the erasure left."""
    while True:
        newest = day_version.newest(store, date)
        if newest is None:
            return None
        ends = [follow(storage.join(store, "ingest", part.ingest)).rsplit("/", 1)[-1] for part in newest.parts]
        if ends == [part.ingest for part in newest.parts]:
            return newest
        parts = [
            DayPart(ingest=end, logs=part.logs, person_key=part.person_key, settings=part.settings)
            for end, part in zip(ends, newest.parts, strict=True)
        ]
        version = _following(date, newest, parts, ERASED)
        if day_version.write(store, version):
            return version


def _next_parts(newest: DayVersion, part: DayPart) -> tuple[Iterable[DayPart], str] | None:
    """What the date consists of once this part is there, and why; None where its files are in it already.

    All files of the date again: the day is made anew from them. Only files that it does not have: a late part. Raises
    StageError for some of both, and for a late part under another person key.
    """
    files, held = set(part.logs), newest.logs
    if files >= held:
        return (part,), ANEW
    asked = f"{len(files)} log files were to be ingested for {newest.date}"
    if not files & held:
        keys = {other.person_key for other in newest.parts}
        if keys != {part.person_key}:
            raise StageError(
                asked=asked,
                found=f"that date is there already, with its people hashed under another key"
                f" ({', '.join(sorted(keys))}; now {part.person_key})",
                follows="one person would count as several, and queries that fewer than k people typed would pass",
                do="give all log files of that date together, which makes the day anew; or leave the late file out",
            )
        return (*newest.parts, part), LATE
    if files <= held:
        settings = {other.settings for other in newest.parts if files & set(other.logs)}
        if settings == {part.settings} and {other.person_key for other in newest.parts} == {part.person_key}:
            return None
    raise StageError(
        asked=asked,
        found=f"{len(files & held)} of them are in version {newest.version} of that day already,"
        + (" read with other settings" if files <= held else f" and {len(files - held)} are not"),
        follows="lines would count twice",
        do="give only files that are new, which are added to the day;"
        f" or all {len(held | files)} of that date, and it is made anew from them",
    )


def _following(date: str, before: DayVersion | None, parts: Iterable[DayPart], because: str) -> DayVersion:
    return DayVersion(
        date=date,
        version=before.version + 1 if before else 1,
        parts=tuple(sorted(parts, key=lambda part: part.ingest)),
        because=because,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )
