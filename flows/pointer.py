"""The live pointer of a release URI, swapped by compare-and-swap.

On a local disk (or a network file system with locks) the swap is atomic: the comparison and the replacement happen
under a lock that the system takes back from a process that dies, and the replacement is a rename.

On an object store it is not quite. A reader still sees the old pointer or the new one, never a mixture, because an
object appears when its upload completes; but fsspec offers no "replace if unchanged", so between the last comparison
and the upload (milliseconds) another publisher's swap can be overwritten without a word. Let one publisher at a time
work on one URI there: the deployed flow holds one concurrency slot per URI.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from schemas import storage
from schemas.errors import StageError
from schemas.release import POINTER, Pointer, read_pointer

_LOCK = ".pointer.lock"


def swap(uri: str, *, expected: Pointer | None, release: str) -> Pointer:
    """The live pointer, now naming `release`, if it was still `expected`, or names that release already.

    Raises StageError if it moved elsewhere: somebody else published in the meantime.
    """
    with _locked(uri):
        found = read_pointer(uri)
        if found and found.release == release:
            return found
        if found != expected:
            raise StageError(
                asked=f"the pointer of {uri} was to be moved to the release {release}",
                found=f"another publisher moved it to {found.release if found else 'nothing'} in the meantime",
                follows="swapping now would silently undo that publication",
                do="look at what is live, and publish again if yours is to replace it: its files are kept",
            )
        pointer = Pointer(
            release=release,
            previous=found.release if found else None,
            swapped=datetime.now(UTC).isoformat(timespec="microseconds"),
        )
        storage.write_atomic(storage.join(uri, POINTER), json.dumps(pointer.to_json(), indent=1).encode())
    return pointer


@contextmanager
def _locked(uri: str) -> Iterator[None]:
    """The only one on this file system to hold the URI's lock; waits for it. Without effect on an object store."""
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
