"""The days a window is built from: found, checked to be countable together, and read as Arrow tables."""

from collections.abc import Sequence

import pyarrow as pa

from schemas import day, manifest, storage
from schemas.errors import StageError, UsageError, require_major
from schemas.stage import StageResult, open_result


def open_days(days: Sequence[str]) -> list[StageResult]:
    """The finished ingests of a window, in the order of their digests, each once.

    `days`: ingest folders, or stores whose finished ingests are all taken. Raises UsageError (none there, another
    stage's folder) and StageError (a damaged day, other person keys, a log file that two days hold).
    """
    opened = {}
    for uri in days:
        for folder in _folders(uri):
            result = open_result(folder)
            if result.manifest.request.stage != "ingest":
                raise UsageError(
                    asked=f"days were to be read from {folder}",
                    found=f"it is the output of {result.manifest.request.stage}",
                    do="give folders of `clicktower ingest`, or their store",
                )
            opened[result.manifest.digest] = result
    found = [opened[digest] for digest in sorted(opened)]
    if not found:
        raise UsageError(
            asked=f"days were to be read from {', '.join(days) or 'nowhere'}",
            found="there is no finished ingest",
            follows="there is nothing to build from",
            do="run `clicktower ingest` into that store first, or give the path that it printed",
        )
    for result in found:
        _require_whole(result)
    _require_one_person_key(found)
    _require_disjoint_logs(found)
    return found


def day_files(days: Sequence[StageResult], kind: str) -> list[str]:
    """The URIs of all files of a kind, `queries` or `exposures`."""
    return [
        storage.join(result.folder, file.path)
        for result in days
        for file in result.manifest.files
        if file.path.rsplit("/", 1)[-1].startswith(f"{kind}-")
    ]


def read_day_file(uri: str) -> pa.Table:
    """The rows of one day file. Raises UnknownVersionError for another major version."""
    with storage.open_read(uri) as file:
        table = pa.ipc.open_file(file).read_all()
    require_major(uri, (table.schema.metadata or {}).get(day.VERSION_KEY, b"none").decode(), day.SCHEMA_VERSION)
    return table


def inherited_labels(days: Sequence[StageResult]) -> dict:
    """The labels of all days together; what one of them is labelled, the whole is (`simulated` above all)."""
    return {name: value for result in days for name, value in result.manifest.outcome.labels.items() if value}


def _folders(uri: str) -> list[str]:
    if storage.exists(storage.join(uri, manifest.FILE_NAME)):
        return [uri]
    store = storage.join(uri, "ingest")
    fs, root = storage.filesystem(store)
    if not fs.exists(root):
        return []
    names = sorted(path.rstrip("/").rsplit("/", 1)[-1] for path in fs.ls(root, detail=False))
    return [
        storage.join(store, name) for name in names if storage.exists(storage.join(store, name, manifest.FILE_NAME))
    ]


def _require_whole(result: StageResult) -> None:
    damage = manifest.damage(result.folder, result.manifest)
    if damage:
        raise StageError(
            asked=f"the day {result.folder} was to be read",
            found="; ".join(damage[:3]),
            follows="its people and clicks could not be counted",
            do="run `clicktower ingest` for that log again; the damaged output is then made anew",
        )


def _require_one_person_key(days: Sequence[StageResult]) -> None:
    keys = {result.manifest.request.inputs.get("person_key") for result in days}
    if len(keys) > 1:
        raise StageError(
            asked=f"{len(days)} days were to be united",
            found=f"their people are hashed under {len(keys)} different keys",
            follows="one person would count as several, and queries that fewer than k people typed would pass",
            do="ingest all days of a window with the same key",
        )


def _require_disjoint_logs(days: Sequence[StageResult]) -> None:
    holder: dict[str, str] = {}
    for result in days:
        for fingerprint in result.manifest.request.inputs.get("logs", ()):
            other = holder.setdefault(fingerprint, result.folder)
            if other != result.folder:
                raise StageError(
                    asked=f"{len(days)} days were to be united",
                    found=f"{other} and {result.folder} were made from the same log file"
                    f" (fingerprint {fingerprint[:12]})",
                    follows="its clicks would count twice",
                    do="name the days that belong to the window one by one, each log once",
                )
