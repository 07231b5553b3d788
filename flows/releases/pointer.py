"""The live pointer of a release URI, swapped by compare-and-swap.

On a local disk (or a network file system with locks) the comparison and the replacement happen under a lock that the
system takes back from a process that dies, and the replacement is a rename.

On an object store nothing can be replaced "if unchanged", but an object can be created only if it is not there (S3 and
compatible stores, Google Cloud Storage and Azure: fsspec's mode "create"). So each swap has a number, and is made by
creating URI/swaps/NUMBER.json with the next one: of two publishers that saw the same pointer one creates it. Then
pointer.json is written, for readers to begin at; they look for later swaps from there (schemas.release). Where a file
system's create is only "look, then write", as in fsspec's default, one of two swaps in the same milliseconds is lost.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from schemas import storage
from schemas.errors import StageError
from schemas.manifest import to_bytes
from schemas.release import POINTER, RELEASE, Pointer, read_pointer, release_folder, swap_name

_LOCK = ".pointer.lock"


def swap(uri: str, *, expected: Pointer | None, release: str) -> Pointer:
    """The live pointer, now naming `release`, if it was still `expected`, or names that release already.

    Raises StageError if it moved elsewhere: somebody else published in the meantime; and where the release is not
    there (any more).
    """
    with pointer_lock(uri):
        found = read_pointer(uri)
        if found and found.release == release:
            return found
        if found != expected:
            raise _moved(uri, release, found)
        if not storage.exists(storage.join(release_folder(uri, release), RELEASE)):
            raise StageError(
                asked=f"the pointer of {uri} was to be moved to the release {release}",
                found="it is not there: another publisher may have removed it as one of the oldest",
                follows="there would be nothing to serve, so what is live stays",
                do="publish it again",
            )
        pointer = Pointer(
            release=release,
            previous=found.release if found else None,
            swapped=datetime.now(UTC).isoformat(timespec="microseconds"),
            number=found.number + 1 if found else 1,
        )
        if not storage.is_local(uri):
            created = storage.write_new(storage.join(uri, swap_name(pointer.number)), to_bytes(pointer.to_json()))
            if not created:
                raise _moved(uri, release, read_pointer(uri))
        storage.write_atomic(storage.join(uri, POINTER), to_bytes(pointer.to_json()))
    return pointer


def _moved(uri: str, release: str, found: Pointer | None) -> StageError:
    return StageError(
        asked=f"the pointer of {uri} was to be moved to the release {release}",
        found=f"another publisher moved it to {found.release if found else 'nothing'} in the meantime",
        follows="swapping now would silently undo that publication",
        do="look at what is live, and publish again if yours is to replace it: its files are kept",
    )


@contextmanager
def pointer_lock(uri: str) -> Iterator[None]:
    """The only one on this file system who moves the URI's pointer or removes releases; waits for others.

    Without effect on an object store.
    """
    if not storage.is_local(uri):
        yield
        return
    storage.make_folder(uri)
    lock = os.open(storage.filesystem(storage.join(uri, _LOCK))[1], os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)  # which releases the lock
