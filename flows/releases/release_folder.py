"""The folder of a release: built under a temporary name, renamed in one step, removed when it is old.

On a local disk the folder is built beside its final place and renamed, so URI/releases/DIGEST is complete or absent. An
object store cannot rename folders: the release is built on this machine, its files are uploaded, and release.json,
without which no reader accepts a folder, is created last. A publisher that dies in between leaves objects that no
pointer names; publishing the same request again removes them.
"""

import os
import re
import tempfile
import time
import uuid
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from clicktower.schemas import release as contract
from clicktower.schemas import storage
from clicktower.schemas.errors import LaterVersionError, StageError
from clicktower.schemas.manifest import damaged_files, to_bytes
from clicktower.schemas.section import DEFAULT_LANGUAGE, Count, Language, Natural, Seed, Unnamed, section
from clicktower.schemas.stage import claimed, silent

_UNFIT = re.compile(r"[.`]|^_row|^$")  # LanceDB's rules for names, in whose form a release can be exported


def _additional(columns: tuple[str, ...]) -> tuple[str, ...]:
    if len({*columns, "id", "title", "vector"}) < len(columns) + 3:
        raise ValueError("they must differ from each other and from id, title and vector, which every release has")
    unfit = next(filter(_UNFIT.search, columns), None)
    if unfit is not None:
        raise ValueError(
            f"a release's table cannot have the column {unfit!r}: a name must not be empty, have a dot or a backtick,"
            " or begin with _row; give the column another name in the documents"
        )
    return columns


@section
class PublishConfig:
    """How a release is made, and how many are kept.

    Args:
        index: auto: partitions (IVF) above `index_above` documents, otherwise every document is compared (1 ms a query
            at 50,000).
        index_above: The documents above which auto makes an index.
        recall_at: The results of a query that recall is measured on.
        min_recall: The smallest recall of a usable index, against exact search.
        num_recall_queries: The queries of that measurement: two words each of titles drawn by a keyed hash.
        seed: The seed of the index and of these queries.
        columns: The columns of the documents to return with each hit and to filter by.
        language: The language of the titles' terms (BM25) (docs/model.md).
        keep: The earlier releases to keep, besides the live one and its predecessor.
    """

    index: Literal["auto", "none", "ivf"] = "auto"
    index_above: Natural = 20_000
    recall_at: Count = 10
    min_recall: Annotated[float, Field(gt=0, le=1)] = 0.98
    num_recall_queries: Count = 200
    seed: Seed = 0
    columns: Annotated[tuple[str, ...], Unnamed(at=()), AfterValidator(_additional)] = ()
    language: Annotated[Language, Unnamed(at=DEFAULT_LANGUAGE)] = DEFAULT_LANGUAGE
    keep: Annotated[Natural, Unnamed()] = 7


def building(folder: str) -> AbstractContextManager[str]:
    """The name of a local folder to build a release in; removed at the end of the context.

    The caller holds the claim on the digest, so the remains of a killed publisher are removed first.
    """
    if storage.is_local(folder):
        return storage.building(folder, abandoned_seconds=0)
    return tempfile.TemporaryDirectory(ignore_cleanup_errors=True)


def place(built: str, release: contract.Release, folder: str) -> None:
    """Rename a built folder to its final name. If another publisher of the same release was first, theirs stays.

    A damaged release at that place is renamed, not deleted; a part of one, which a cut-off upload left, is removed.
    Raises StageError if the uploaded files differ from those built.
    """
    content = to_bytes(release.to_json())
    if find(folder)[1]:
        aside = f"{folder}.damaged-{uuid.uuid4().hex[:8]}"
        if storage.is_local(folder):
            storage.move(folder, aside)
        elif not storage.exists(storage.join(folder, contract.RELEASE)):
            storage.remove(folder)
        else:
            for name in storage.list_files(folder):
                storage.move(storage.join(folder, name), storage.join(aside, name))
    if storage.is_local(folder):
        storage.write_atomic(os.path.join(built, contract.RELEASE), content)
        try:
            storage.place(built, folder)
        except OSError:
            if find(folder)[0] is None:
                raise
    else:
        fs, root = storage.filesystem(folder)
        for file in release.files:
            fs.put_file(os.path.join(built, file.path), f"{root}/{file.path}")
        if wrong := damaged_files(folder, release.files, hashes=True):
            raise StageError(
                f"The release uploaded to {folder} is damaged: {'; '.join(wrong[:5])}. What is live stays as it is.",
                "Publish again.",
            )
        storage.write_new(storage.join(folder, contract.RELEASE), content)


def find(folder: str) -> tuple[contract.Release | None, list[str]]:
    """The release in a folder if it is there and intact (by sizes), otherwise its damage. Raises LaterVersionError."""
    if not storage.exists(storage.join(folder, contract.RELEASE)):
        return None, [f"{contract.RELEASE} is missing"] if storage.list_files(folder) else []
    try:
        release = contract.read_folder(folder)
    except LaterVersionError:
        raise
    except StageError as error:
        return None, [error.problem]
    wrong = damaged_files(folder, release.files)
    return (None, wrong) if wrong else (release, [])


def prune(uri: str, keep: int, *, made: str = "") -> list[str]:
    """Remove all but the live release, its predecessor, the one just made and the `keep` newest others.

    Returns their digests. What publishers that were killed had half-written goes too, and after a day what they had
    built. Anything that cannot be removed stays: the new release is live regardless.
    """
    releases = storage.join(uri, "releases")
    with claimed(uri, silent):  # no release goes live meanwhile
        live = contract.read_pointer(uri)
        spared = {made, *((live.release, live.previous) if live else ())}
        removed, earlier, abandoned = [], [], []
        if storage.is_local(uri):
            encoding, decisions = storage.join(uri, contract.ENCODING), storage.join(uri, contract.DECISIONS)
            abandoned += [storage.join(encoding, name) for name in storage.list_files(encoding)]
            for folder in (uri, decisions):
                for name in storage.list_names(folder):
                    if name.endswith(".partial"):  # only the holder of this claim writes there
                        with suppress(OSError):
                            storage.remove(storage.join(folder, name))
        for name in storage.list_folders(releases):
            if name.startswith(storage.BUILDING):  # only a local publisher builds in the folder
                abandoned.append(storage.join(releases, name))
            elif name not in spared:
                with suppress(LaterVersionError):  # it stays
                    if release := find(storage.join(releases, name))[0]:
                        earlier.append((release.created, name))
        for _, name in sorted(earlier, reverse=True)[keep:]:
            with suppress(OSError):
                storage.remove(storage.join(releases, name))
                contract.remove_decision(uri, name)
                removed.append(name)
        for path in abandoned:
            with suppress(OSError):
                if time.time() - os.path.getmtime(storage.filesystem(path)[1]) > storage.ABANDONED_SECONDS:
                    storage.remove(path)
    return removed


def swap(uri: str, *, expected: contract.Pointer | None, release: str) -> contract.Pointer:
    """Swap the live pointer to `release` if it is still `expected`, or already names that release; returns it.

    The comparison and the replacement happen under the URI's claim (schemas.stage), as does the removal of old
    releases. On a local disk, or a network file system with locks, that is all it takes.

    On an object store a claim may be taken over, and no object can be replaced "if unchanged", but an object can be
    created only if it does not exist (S3 and compatible stores, Google Cloud Storage and Azure: fsspec's mode
    "create"). So each swap has a number, and creates URI/swaps/NUMBER.json with the next one: of two publishers that
    saw the same pointer one creates it. Then pointer.json is written as the starting point for readers; they look for
    later swaps from there (schemas.release). If a file system's create is only "check, then write", as in fsspec's
    default, one of two swaps within the same milliseconds is lost.

    Raises StageError if the pointer moved elsewhere because another publisher was first, or if the release no longer
    exists.
    """
    with claimed(uri, silent):
        current = contract.read_pointer(uri)
        if current and current.release == release:
            return current
        if current != expected:
            raise _pointer_moved(uri, release, current)
        if not storage.exists(storage.join(contract.release_folder(uri, release), contract.RELEASE)):
            raise StageError(
                f"The release {release} is no longer at {uri}: another publisher may have removed it among the oldest."
                " What is live stays.",
                "Publish it again.",
            )
        pointer = contract.Pointer(
            release=release,
            previous=current.release if current else None,
            swapped=datetime.now(UTC).isoformat(timespec="microseconds"),
            number=current.number + 1 if current else 1,
        )
        if not storage.is_local(uri):
            created = storage.write_new(
                storage.join(uri, contract.swap_name(pointer.number)), to_bytes(pointer.to_json())
            )
            if not created:
                raise _pointer_moved(uri, release, contract.read_pointer(uri))
        storage.write_atomic(storage.join(uri, contract.POINTER), to_bytes(pointer.to_json()))
    return pointer


def _pointer_moved(uri: str, release: str, current: contract.Pointer | None) -> StageError:
    return StageError(
        f"Another publisher moved the pointer of {uri} to {current.release if current else 'nothing'} in the meantime:"
        f" moving it to {release} would silently undo that publication.",
        "Look at what is live, and publish again if yours is to replace it: its files are kept.",
    )
