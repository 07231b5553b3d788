"""Removal of outputs that nobody needs any more, beside stages that run.

    STORE/STAGE/DIGEST/removed.json     the manifest of an output that is being removed

An output first loses its name: its manifest becomes `removed.json`, and no stage finds it. Then the claims are read
(schemas.stage). A stage that opened the output before holds a claim that names it; the output gets its manifest back.
Otherwise its files go, `removed.json` last. So a removal that is killed is finished by the next one, and a stage that
asks for the output meanwhile makes it again.

A stage that had opened an output and only then makes its claim looks once more (stage.require_present): either it sees
that the output has lost its name, or the removal sees the claim.
"""

import fcntl
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from clicktower.schemas import manifest as manifests
from clicktower.schemas import storage
from clicktower.schemas.manifest import DIGEST, from_bytes
from clicktower.schemas.object_store import claims, read_claim
from clicktower.schemas.stage import CLAIM_FILE as CLAIM
from clicktower.schemas.stage import NO_LOCKS_HERE, claimed, silent

FILE_NAME = "removed.json"
ABANDONED_SECONDS = 7 * 24 * 3600  # after which nobody goes on with a half-made output
KEPT_NAMES = frozenset({"erased.json"})  # where people were erased (erased_people), it outlives its ingest
FORGOTTEN_SECONDS = 24 * 3600  # after its last beat, by any clock, no holder is taken to live
BEGUN_SECONDS = 2.0  # in which a process that has just taken a claim says what it reads


def output_folders(store: str) -> Iterator[tuple[str, str, str]]:
    """(stage, digest, folder) of every output of a store, finished or not."""
    for stage in storage.list_folders(store):
        for digest in storage.list_folders(storage.join(store, stage)):
            if DIGEST.fullmatch(digest):
                yield stage, digest, storage.join(store, stage, digest)


class Claims:
    """The claims that processes hold on outputs of a store, and on releases that they make, at one moment."""

    def __init__(self, folders: Collection[str]) -> None:
        self.reads = set[str]()  # digests
        self.read_all = False  # by a process that does not say what it reads
        self.folders = set[str]()
        for folder in folders:
            holder = _told(folder)
            if holder is not None:
                self.folders.add(folder)
                self.reads.update(holder.get("reads", ()))
                self.read_all |= "reads" not in holder

    def are_reading(self, digest: str) -> bool:
        return self.read_all or digest in self.reads


def remove_outputs(folders: Sequence[str], look: Callable[[], Claims]) -> list[str]:
    """Remove finished outputs, in this order, and what an earlier removal left of others; returns those removed.

    `look`: the claims of the store now. An output that is read, or made again, stays.
    """
    for folder in folders:
        if read_holder(folder) is None:
            with claimed(folder, silent):
                _hide(folder)
    claims, removed = look(), []
    for folder in folders:
        digest = folder.rsplit("/", 1)[-1]
        if folder in claims.folders or not storage.exists(storage.join(folder, FILE_NAME)):
            continue
        with claimed(folder, silent):
            if claims.are_reading(digest):
                _show_again(folder)
            elif not manifests.is_finished(folder):
                clear(folder)
                removed.append(folder)
    return removed


def is_hidden(folder: str) -> bool:
    """Whether an output is being removed: it has no manifest any more."""
    return storage.exists(storage.join(folder, FILE_NAME)) and not manifests.is_finished(folder)


def clear(folder: str) -> None:
    """Remove everything in the folder of an output, the mark of a removal last."""
    for inside in storage.list_folders(folder):
        storage.remove(storage.join(folder, inside))
    for name in sorted(filter(_goes, storage.list_names(folder)), key=lambda name: name == FILE_NAME):
        storage.remove(storage.join(folder, name))


def remains(folder: str) -> list[str]:
    """What is left in the folder of an output, which nobody makes at the moment, of attempts that came to nothing:
    beside a finished output everything that is not of it, otherwise all, once it is a week old.
    """
    names, folders = storage.list_names(folder), storage.list_folders(folder)
    if manifests.FILE_NAME in names:
        try:
            attempt = manifests.read(folder).attempt
        except manifests.StageError:
            return []  # its stage sets it aside
        left = [name for name in folders if name != attempt]
        aside = (f"{manifests.FILE_NAME}.", FILE_NAME)  # damaged or half-written manifests
        return [storage.join(folder, name) for name in (*left, *(n for n in names if n.startswith(aside)))]
    left = [storage.join(folder, name) for name in (*folders, *names) if _goes(name)]
    return left if left and time.time() - _written(left) > ABANDONED_SECONDS else []


def is_bare(folder: str) -> bool:
    """Whether a folder has nothing but the claim of a process that was killed."""
    return not storage.list_folders(folder) and all(name.startswith("claim") for name in storage.list_names(folder))


def remove_remains(folder: str) -> None:
    """Remove what `remains` lists, and a dead process's claim, unless a process makes this output meanwhile."""
    if read_holder(folder) is not None:
        return
    with claimed(folder, silent):
        for path in remains(folder):
            storage.remove(path)


def _hide(folder: str) -> None:
    named, hidden = storage.join(folder, manifests.FILE_NAME), storage.join(folder, FILE_NAME)
    if storage.exists(named):
        with suppress(FileNotFoundError):
            storage.write_atomic(hidden, storage.read_bytes(named))
            storage.remove(named)


def _show_again(folder: str) -> None:
    named, hidden = storage.join(folder, manifests.FILE_NAME), storage.join(folder, FILE_NAME)
    storage.write_new(named, storage.read_bytes(hidden))
    storage.remove(hidden)


def _told(folder: str) -> dict | None:
    """As read_holder; waits a little for a holder that has only begun."""
    until = time.monotonic() + BEGUN_SECONDS
    while (holder := read_holder(folder)) == {} and time.monotonic() < until:
        time.sleep(BEGUN_SECONDS / 20)
    return holder


def _goes(name: str) -> bool:
    return name not in KEPT_NAMES and not name.startswith("claim")


def _written(paths: Sequence[str]) -> float:
    """When anything below some paths was last written, in seconds since the epoch; now, where it is written
    meanwhile.
    """
    try:
        files = [storage.join(path, name) if name else path for path in paths for name in storage.list_files(path)]
        return max(map(storage.modified, [*files, *filter(storage.is_local, paths)]), default=time.time())
    except FileNotFoundError:
        return time.time()


def read_holder(folder: str) -> dict[str, Any] | None:
    """What the claim on a folder says while a process holds it: {"process": ..., "reads": [digest, ...]}; empty if it
    has only begun. None if nobody holds it.
    """
    if not storage.is_local(folder):
        text = read_claim(storage.join(folder, newest)) if (newest := max(claims(folder), default="")) else None
        return _if_recent(_parse(text)) if text is not None else None
    try:
        file = os.open(storage.filesystem(storage.join(folder, CLAIM))[1], os.O_RDONLY)
    except FileNotFoundError:
        return None
    with open(file, "rb") as claim:
        try:
            fcntl.flock(claim, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None  # its holder is dead
        except BlockingIOError:
            return _parse(claim.read())
        except OSError as error:
            if error.errno not in NO_LOCKS_HERE:
                raise
            return _if_recent(_parse(claim.read()))


def _if_recent(holder: dict[str, Any]) -> dict[str, Any] | None:
    with suppress(KeyError, ValueError, TypeError):
        age = datetime.now(UTC) - datetime.fromisoformat(holder["at"])
        return None if age.total_seconds() > FORGOTTEN_SECONDS else holder
    return holder


def _parse(signature: bytes) -> dict[str, Any]:
    with suppress(ValueError):
        value = from_bytes(signature)
        return value if isinstance(value, dict) else {}
    return {}
