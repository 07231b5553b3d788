"""What an ingest does to a date: its first version, a late part, or a replaced day.

No line counts twice. Two ingests with the same lines are recognised by their files' content, and, for a file that was
delivered again longer, recompressed, split or joined, by samples of their lines.

The decision is made twice: before the job, so that nobody waits for a refusal, and when its day is committed, against
the newest version then. Two late files that are ingested concurrently both end up in the day, in either order.
"""

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

from clicktower.beam_jobs.ingest.days import data_date
from clicktower.beam_jobs.ingest.erased_people import follow
from clicktower.beam_jobs.ingest.line_samples import LineSample, read_sample
from clicktower.schemas import day_version as versions
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError
from clicktower.schemas.manifest import Request
from clicktower.schemas.stage import open_result

# The inputs of an ingest that are not settings.
_NOT_SETTINGS = ("logs", "person_key", "erased_from", "erased_people", "erasure")


def part_of(request: Request) -> versions.DayPart:
    """An ingest as a part of a day."""
    settings = {name: value for name, value in request.inputs.items() if name not in _NOT_SETTINGS}
    return versions.DayPart(
        ingest=request.digest,
        logs=tuple(sorted(request.inputs.get("logs", ()))),
        person_key=str(request.inputs.get("person_key")),
        settings=replace(request, inputs=settings).digest,
    )


def is_covered(store: str, request: Request, *, replace_day: bool = False) -> bool:
    """Whether these files, with those that a date already has under the request's key, are all of the date's."""
    newest = versions.newest_version(store, str(data_date(request)))
    return newest is None or replace_day or _is_covered(newest, part_of(request))


def find_held(store: str, request: Request, *, replace_day: bool = False) -> str | None:
    """The folder of an ingest that already covers this one, or None if there is something to ingest.

    If all its log files are part of the date's newest version, under the same key, it is the part that holds the first
    of them, unless they are to replace all others (`replace_day`). Raises StageError if the date certainly cannot take
    these files (see `_next_parts`).
    """
    newest = versions.newest_version(store, str(data_date(request)))
    if newest is None or replace_day:
        return None
    part = part_of(request)
    _require_covered(newest, part)
    newest = newest.under(part.person_key)
    if any(earlier.ingest == part.ingest for earlier in newest.parts) or set(part.logs) >= newest.logs:
        return None
    if holder := _holder(newest, part):
        return follow(storage.join(store, "ingest", holder.ingest))
    # Otherwise the lines can prove later what the files do not prove now.
    if not any(_sample(store, earlier) for earlier in newest.parts):
        _next_parts(store, newest, part)
    return None


def register(
    store: str, request: Request, *, replace_day: bool = False, keys: Collection[str] = ()
) -> versions.DayVersion | None:
    """The version of its date that contains a finished ingest, or what an erasure left of it, written if necessary.

    `replace_day`: the date consists of this ingest alone from now on. `keys`: the ids of the keys that its log is
    ingested under; the date's parts under them stay, those under others are of an earlier state of the date. It can run
    again at any time: a registered ingest stays as it is. Raises StageError (see `_next_parts`).
    """
    date = str(data_date(request))
    part = part_of(request)
    part = replace(part, ingest=_left_of(store, part.ingest))

    def decide(newest: versions.DayVersion | None) -> Parts | None:
        if newest is None:
            return (part,), versions.FIRST
        other_keys = [earlier for earlier in newest.parts if earlier.person_key in {*keys} - {part.person_key}]
        same_key = newest.under(part.person_key)
        held = [_left_of(store, earlier.ingest) for earlier in same_key.parts]
        if held == [part.ingest] or (part.ingest in held and not replace_day):
            return None
        if replace_day:
            decided: Parts | None = (part,), versions.REPLACED
        else:
            _require_covered(newest, part)
            decided = _next_parts(store, same_key, part)
        if decided is None:
            return None
        because = versions.SECOND_KEY if other_keys and not same_key.parts else decided[1]
        return (*other_keys, *decided[0]), because

    return _write_next(store, date, decide)


def remove_key(store: str, date: str, person_key: str) -> None:
    """Remove what a date has under a key: its parts, and every version that lists one."""

    def decide(newest: versions.DayVersion | None) -> Parts | None:
        parts = newest.parts if newest else ()
        kept = [part for part in parts if part.person_key != person_key]
        return (kept, versions.KEY_ENDED) if 0 < len(kept) < len(parts) else None

    _write_next(store, date, decide)
    versions.remove_versions_under(store, date, person_key)


def replace_erased(store: str, date: str) -> versions.DayVersion | None:
    """The newest version of a date, in which the remainder of an erasure replaces each erased part."""

    def decide(newest: versions.DayVersion | None) -> Parts | None:
        parts = newest.parts if newest else ()
        ends = [_left_of(store, part.ingest) for part in parts]
        if ends == [part.ingest for part in parts]:
            return None
        return [replace(part, ingest=end) for end, part in zip(ends, parts, strict=True)], versions.ERASED

    return _write_next(store, date, decide)


Parts = tuple[Iterable[versions.DayPart], str]  # what a date consists of, and why


def _write_next(
    store: str, date: str, decide: Callable[[versions.DayVersion | None], Parts | None]
) -> versions.DayVersion | None:
    """The newest version of a date: what `decide` makes of the version before, written, or that version if `decide`
    makes nothing. If another process wrote first, it decides again.
    """
    while True:
        newest = versions.newest_version(store, date)
        decided = decide(newest)
        if decided is None:
            return newest
        parts, because = decided
        version = versions.DayVersion(
            date=date,
            version=newest.version + 1 if newest else 1,
            parts=tuple(sorted(parts, key=lambda part: part.ingest)),
            because=because,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        if versions.write_version(store, version):
            return version


def _next_parts(store: str, newest: versions.DayVersion, part: versions.DayPart) -> Parts | None:
    """What the date consists of with this part, and why; None if it already has its files. `newest`: the version under
    the key of the part.

    Raises StageError if lines would count twice.
    """
    if set(part.logs) >= newest.logs:
        return (part,), versions.ANEW
    if _holder(newest, part):
        return None
    samples = {read.ingest: _sample(store, read) for read in (part, *newest.parts)}

    def overlap(earlier: versions.DayPart) -> bool:
        """Whether both read the same files, or other files with the same lines."""
        sample, theirs = samples[part.ingest], samples[earlier.ingest]
        return bool(set(part.logs) & set(earlier.logs)) or bool(sample and theirs and sample.overlaps(theirs))

    def holds(larger: versions.DayPart, earlier: versions.DayPart) -> bool:
        """Whether the first part holds everything that the second read."""
        sample, theirs = samples[larger.ingest], samples[earlier.ingest]
        return set(earlier.logs) <= set(larger.logs) or bool(sample and theirs and sample.holds(theirs))

    again = [earlier for earlier in newest.parts if overlap(earlier)]
    kept = [earlier for earlier in newest.parts if earlier not in again]
    if not again:
        return (*kept, part), versions.LATE
    if all(holds(part, earlier) for earlier in again):
        return (*kept, part), versions.AGAIN
    is_nothing_new = len(again) == 1 and holds(again[0], part)
    raise StageError(
        f"Lines of the {len(part.logs)} log files are in version {newest.version} of {newest.date} already"
        + (
            "; they hold no other."
            if is_nothing_new
            else ", and each has lines that the other has not. They would count twice, so the day stays as it is."
        ),
        "Leave them out."
        if is_nothing_new
        else f"Give all log files of {newest.date} together with --replace-day: the day is then made of these alone.",
    )


def _holder(newest: versions.DayVersion, part: versions.DayPart) -> versions.DayPart | None:
    """The part of the date that holds the first of these files, if all of them are in it. Raises StageError if they
    are, but were read with other settings: part of a day cannot be replaced.
    """
    files = set(part.logs)
    holders = [earlier for earlier in newest.parts if files & set(earlier.logs)]
    if not files <= newest.logs:
        return None
    if {(earlier.settings, earlier.person_key) for earlier in holders} == {(part.settings, part.person_key)}:
        return next(earlier for earlier in holders if part.logs[0] in earlier.logs)
    raise StageError(
        f"The {len(files)} log files are in version {newest.version} of {newest.date} already, read with other"
        " settings. Lines would count twice.",
        f"Give all {len(newest.logs)} log files of that date, and it is made anew from them.",
    )


def _is_covered(newest: versions.DayVersion, part: versions.DayPart) -> bool:
    return part.person_key in newest.person_keys or set(part.logs) >= newest.logs


def _require_covered(newest: versions.DayVersion, part: versions.DayPart) -> None:
    if _is_covered(newest, part):
        return
    keys = ", ".join(sorted(newest.person_keys))
    raise StageError(
        f"The people of {newest.date} are hashed under another key ({keys}; now {part.person_key}): one person would"
        " count as several, and queries of fewer than k people would pass.",
        "Give all log files of that date together with --replace-day, which makes the day anew; or leave these"
        f" {len(part.logs)} out.",
    )


def _sample(store: str, part: versions.DayPart) -> LineSample | None:
    with suppress(StageError):  # its folder was removed: a build from the day reports it
        return read_sample(open_result(follow(storage.join(store, "ingest", part.ingest))))
    return None


def _left_of(store: str, ingest: str) -> str:
    """The digest of the ingest that `follow` leads to."""
    return follow(storage.join(store, "ingest", ingest)).rsplit("/", 1)[-1]
