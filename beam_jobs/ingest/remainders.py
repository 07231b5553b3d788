"""What erasures leave of ingests (erased_people): ingests of logs without the people on the list, and the end of those
whose place they take.
"""

from dataclasses import replace

from clicktower.beam_jobs.ingest.erased_list import is_listed_under
from clicktower.beam_jobs.ingest.erased_people import FILE_NAME, erased_mark, follow, has_missed_people, successor
from clicktower.beam_jobs.ingest.person_key import key_paths
from clicktower.schemas import manifest, storage
from clicktower.schemas.errors import StageError
from clicktower.schemas.manifest import Request
from clicktower.schemas.stage import (
    Progress,
    StageResult,
    WouldRun,
    claimed,
    find_and_clear_in,
    is_planning,
    open_result,
    stage_folder,
)

_INSTEAD = "instead-"  # and a digest: a file beside it while that ingest is made


def begin_remainder(
    store: str, request: Request, erasure: str, key_path: str, progress: Progress
) -> tuple[StageResult | None, Request, list[str]]:
    """(the ingest of a log without the people on the list, if it has finished; the request for it; the damage of the
    one that there was). `request`: for the whole log. `erasure`: the digest of the list.
    """
    whole = stage_folder(store, request)
    left = follow(whole)
    finished, wrong = find_and_clear_in(left)
    if not finished and not may_be_made_again(whole):
        finished = open_result(left)
    if finished and (can_erase(store, key_path, request) or not has_missed_people(store, finished, key_path)):
        return finished, request, wrong
    inputs = {**request.inputs, "erased_from": left.rsplit("/", 1)[-1], "erasure": erasure}
    remainder = replace(request, inputs=inputs)
    if is_planning():
        raise WouldRun(remainder, wrong)
    for folder in _note_attempt(left, remainder.digest):
        if _clear_attempts(folder, progress):  # it finished, and counts
            return begin_remainder(store, request, erasure, key_path, progress)
    return None, remainder, wrong


def may_be_made_again(folder: str) -> bool:
    """Whether the log of an ingest would bring back nobody: all who were erased from it are listed."""
    while value := erased_mark(folder):
        if not value.get("listed"):
            return False
        folder = storage.join(folder.rsplit("/", 1)[0], value["by"])
    return True


def clear_behind(result: StageResult) -> None:
    """Remove what is left of the ingests whose place an ingest took: these, or an erasure, may have been cut off."""
    while source := result.manifest.request.inputs.get("erased_from"):
        folder = storage.join(result.folder.rsplit("/", 1)[0], source)
        if storage.list_files(folder) == [FILE_NAME]:
            return
        before = open_result(folder) if manifest.is_finished(folder) else None
        clear(folder)
        if before is None:
            return
        result = before


def _note_attempt(folder: str, digest: str) -> list[str]:
    """Note that an ingest is made to take the place of another; returns the folders of those that were begun before,
    under other lists of erased people, and of the other one: a killed ingest may have left rows there.
    """
    names = [name.removeprefix(_INSTEAD) for name in storage.list_names(folder) if name.startswith(_INSTEAD)]
    storage.write_atomic(storage.join(folder, f"{_INSTEAD}{digest}"), b"")
    return [folder, *(storage.join(folder.rsplit("/", 1)[0], name) for name in names if name != digest)]


def clear(folder: str) -> None:
    """Remove everything of an erased ingest but the file that leads to what is left of it."""
    for inside in storage.list_folders(folder):
        storage.remove(storage.join(folder, inside))
    for name in storage.list_files(folder):
        if name != FILE_NAME:
            storage.remove(storage.join(folder, name))


def _is_current(result: StageResult) -> bool:
    """Whether an ingest's rows count: it was not erased, and if it is the remainder of an erasure, it is the one that
    won.
    """
    if successor(result.folder):
        return False
    source = result.manifest.request.inputs.get("erased_from")
    before = storage.join(result.folder.rsplit("/", 1)[0], str(source))
    return source is None or successor(before) == result.manifest.digest


def finished_ingests(store: str) -> list[StageResult]:
    """Every ingest of a store whose rows count, including older versions of a day."""
    opened = map(open_finished, ingest_folders(store))
    return [result for result in opened if result and _is_current(result)]


def ingest_folders(store: str) -> list[str]:
    """The folder of every ingest of a store, finished or not."""
    ingests = storage.join(store, "ingest")
    return [storage.join(ingests, name) for name in storage.list_folders(ingests)]


def open_finished(folder: str) -> StageResult | None:
    """A finished ingest by its folder; None for one that never finished, or was removed. Raises StageError for a
    damaged one.
    """
    try:
        return open_result(folder) if manifest.is_finished(folder) else None
    except StageError:
        if manifest.is_finished(folder):
            raise
        return None


def _clear_attempts(folder: str, progress: Progress) -> bool:
    """Remove the attempts of an ingest that no later request has; waits for one that goes on. Whether it has finished
    and counts.
    """
    if manifest.is_finished(folder) or not storage.list_folders(folder):
        return False
    with claimed(folder, progress):
        if manifest.is_finished(folder):
            return True
        for name in storage.list_folders(folder):
            storage.remove(storage.join(folder, name))
    return False


def can_erase(store: str, key_path: str, request: Request) -> bool:
    """Whether all listed people are known by an ingest's own key: it is the store's, and was there at each erasure."""
    return key_path in key_paths(store) and is_listed_under(store, request.inputs["person_key"])
