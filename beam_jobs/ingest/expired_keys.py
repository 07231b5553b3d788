"""The end of a key of people: the key goes, and with it everything in the store that is hashed under it.

By then every window has another key that covers all of its days (person_key), so nothing is removed that a build could
still take. What goes: the parts of days under the key, with their versions; their ingests, undated ones too; the hashes
under it in the list of erased people; the remains of killed jobs, which may hold people. The file of the key goes last,
so that whatever is cut off is finished by the next ingest. Shards, models and releases hold nobody, and stay.

Days are removed from a store (`remove_days`) with a date's versions and every ingest with its data, older and replaced
ones too.

With an ingest go its people's hashes, which is why days have a retention. The key, and the list of erased people, stay
(person_key, erased_people).
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from datetime import date, timedelta

from clicktower.beam_jobs.ingest import dated_days, erased_list, erased_people, remainders
from clicktower.beam_jobs.ingest.days import data_date
from clicktower.beam_jobs.ingest.person_key import FOLDER, PersonKey, current_date, key_paths, read_key
from clicktower.schemas import manifest, storage
from clicktower.schemas.day_version import list_dates, remove_versions
from clicktower.schemas.errors import StageError
from clicktower.schemas.removal import Claims, is_hidden, remove_outputs
from clicktower.schemas.stage import Progress, claimed, clear_others, open_result, silent


def ingests_of_dates(store: str) -> Iterator[tuple[str, str, str]]:
    """(date, digest, folder) of every finished ingest, whether it counts or not; of an undated one the date on which
    it was made.
    """
    for folder in remainders.ingest_folders(store):
        if result := remainders.open_finished(folder):
            record = result.manifest
            yield data_date(record.request) or record.created[:10], record.digest, folder


def remove_days(store: str, dates: Collection[str], look: Callable[[], Claims]) -> list[str]:
    """Remove everything of these dates; returns the folders of the ingests that went.

    The dates are hidden first, so that no window finds them any more. An ingest that a stage reads (`look`: the claims
    on the store now) stays until the next removal, and no window finds it.
    """
    for day in sorted(set(list_dates(store)) & set(dates)):
        remove_versions(store, day)
    folders = [folder for day, _, folder in ingests_of_dates(store) if day in dates]
    hidden = [folder for folder in remainders.ingest_folders(store) if is_hidden(folder)]
    removed = remove_outputs([*folders, *hidden], look)
    _remove_marks(store)
    return removed


def _remove_marks(store: str) -> None:
    """Remove the marks of erasures whose remainder is gone. That of an erasure without a list of people stays: the log,
    ingested once more, would bring them back.
    """
    for folder in remainders.ingest_folders(store):
        last, is_mark = erased_people.follow(folder), storage.list_files(folder) == [erased_people.FILE_NAME]
        if is_mark and not storage.list_files(last) and remainders.may_be_made_again(folder):
            storage.remove(folder)


LAST_DAY = timedelta(days=1)  # a job that began before midnight ends in peace
STAGES_WITH_PEOPLE = ("ingest", "build", "judgments")  # in their days or in the scratch files of their jobs


def remove_expired_keys(store: str, today: date | None = None, progress: Progress = silent) -> None:
    """Remove the store's keys that have expired the day before or earlier, and what is hashed under them.

    A key stays that alone recognises people who were erased. Raises StageError (a damaged file).
    """
    last = (today or current_date()) - LAST_DAY
    if not any(read_key(path).expires < last for path in key_paths(store)):
        return
    with claimed(storage.join(store, FOLDER), progress):
        for path in key_paths(store):
            if (key := read_key(path)).expires < last:
                _remove(store, path, key, progress)


def _remove(store: str, path: str, key: PersonKey, progress: Progress) -> None:
    dates = list_dates(store)
    for number, day in enumerate(dates):
        progress("removing an expired key: days", number, len(dates))
        dated_days.remove_key(store, day, key.id)
    for stage in STAGES_WITH_PEOPLE:
        for name in storage.list_folders(storage.join(store, stage)):
            folder = storage.join(store, stage, name)
            if not manifest.is_finished(folder):
                _clear_killed(folder, progress)
                continue
            if stage != "ingest":
                with suppress(StageError):  # a damaged build ends no ingest
                    clear_others(open_result(folder))
                continue
            result = open_result(folder)
            clear_others(result)
            if result.manifest.request.inputs.get("person_key") == key.id:
                for inside in storage.list_folders(folder):  # the manifest goes last: it says whose hashes these are
                    storage.remove(storage.join(folder, inside))
                storage.remove(folder)
    if erased_list.remove_key(store, key.id):
        storage.remove(path)


def _clear_killed(folder: str, progress: Progress) -> None:
    """Remove what a killed job left; one that goes on is waited for."""
    if not storage.list_folders(folder):
        return
    with claimed(folder, progress):
        if not manifest.is_finished(folder):
            for name in storage.list_folders(folder):
                storage.remove(storage.join(folder, name))
