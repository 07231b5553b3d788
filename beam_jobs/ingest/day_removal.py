"""Removal of days from a store: of a date's versions, and of every ingest with its data, older and replaced ones too.

With an ingest go its people's hashes, which is why days have a retention. The key, and the list of erased people, stay
(person_key, erased_people).
"""

from collections.abc import Callable, Collection, Iterator

from clicktower.beam_jobs.ingest import day_versions
from clicktower.schemas import storage
from clicktower.schemas.day_version import list_dates, remove_versions
from clicktower.schemas.removal import Claims, is_hidden, remove_outputs


def ingests_of_dates(store: str) -> Iterator[tuple[str, str, str]]:
    """(date, digest, folder) of every finished ingest, whether it counts or not; of an undated one the date on which
    it was made.
    """
    for folder in _folders(store):
        if result := day_versions.open_finished(folder):
            record = result.manifest
            yield day_versions.data_date(record.request) or record.created[:10], record.digest, folder


def remove_days(store: str, dates: Collection[str], look: Callable[[], Claims]) -> list[str]:
    """Remove everything of these dates; returns the folders of the ingests that went.

    The dates are hidden first, so that no window finds them any more. An ingest that a stage reads (`look`: the claims
    on the store now) stays until the next removal, and no window finds it.
    """
    for date in sorted(set(list_dates(store)) & set(dates)):
        remove_versions(store, date)
    folders = [folder for date, _, folder in ingests_of_dates(store) if date in dates]
    hidden = [folder for folder in _folders(store) if is_hidden(folder)]
    removed = remove_outputs([*folders, *hidden], look)
    _remove_marks(store)
    return removed


def _remove_marks(store: str) -> None:
    """Remove the marks of erasures whose remainder is gone. That of an erasure without a list of people stays: the log,
    ingested once more, would bring them back.
    """
    for folder in _folders(store):
        last, is_mark = day_versions.follow(folder), storage.list_files(folder) == [day_versions.FILE_NAME]
        if is_mark and not storage.list_files(last) and day_versions.may_be_made_again(folder):
            storage.remove(folder)


def _folders(store: str) -> list[str]:
    ingests = storage.join(store, "ingest")
    return [storage.join(ingests, name) for name in storage.list_folders(ingests)]
