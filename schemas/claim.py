"""Claims: one process at a time makes an output. A stage holds a claim on STORE/STAGE/DIGEST while it works; publishing
holds one on RELEASE/encoding/DIGEST while it makes a release, and one on RELEASE itself while it changes the pointer or
the releases.

    with claimed(folder, progress):
        ...                        # another process with the same request waits, and then finds the output

The claim is a lock of the operating system on a small file in the folder. The kernel releases it when its holder ends,
even by kill -9, so nothing has to expire and no clock has to be right. Child processes do not inherit it: what they
write after the holder's end is in an attempt that nobody commits, so the next process need not wait for them. The file
names the holder, for people, and the outputs that it reads, which nobody removes meanwhile (schemas.removal).

An object store has no such lock: there a claim is an object that its holder rewrites (object_claim). On a network file
system without locks two processes may make the same, without harm: the first to write the manifest wins (stage).

A stage waits only for others with the same digest. A digest covers everything that a stage reads, so processes cannot
wait for each other in a circle: a stage's own children (the trainings of a sweep) never have its digest.
"""

import errno
import json
import os
import socket
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from pkgutil import resolve_name

from filelock import BaseFileLock, FileLock, Timeout

from clicktower.schemas import storage
from clicktower.schemas.manifest import from_bytes

FILE_NAME = "claim.json"
WAIT_SECONDS = 0.5
NO_LOCKS_HERE = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}


@contextmanager
def claimed(
    folder: str, progress: Callable[[str, int, int | None], None], reads: Collection[str] = ()
) -> Iterator[None]:
    """Hold the claim on a folder, exclusively on this file system. Waits for it and reports who holds it.

    `reads`: the digests of the outputs that are read meanwhile.
    """
    if not storage.is_local(folder):
        with resolve_name("clicktower.schemas.object_claim:object_claim")(folder, progress, reads):
            yield
        return
    path = storage.filesystem(storage.join(folder, FILE_NAME))[1]
    lock = FileLock(path, mode=0o600, thread_local=False, fallback_to_soft=False)
    _wait_for(lock, path, progress)
    try:
        with suppress(OSError):  # it informs people: a full disk is reported by the stage itself
            if lock.is_locked:
                Path(path).write_bytes(signature(reads))
        yield
    finally:
        if lock.is_locked:
            # Removed while locked: a waiting process sees that it is gone, and makes a new one.
            with suppress(FileNotFoundError):
                os.unlink(path)
            with suppress(OSError):  # the folder is not empty
                os.rmdir(os.path.dirname(path))
            lock.release()


def _wait_for(lock: BaseFileLock, path: str, progress: Callable[[str, int, int | None], None]) -> None:
    """Acquire the lock, or proceed without it if the file system has no locks."""
    while True:
        storage.make_folder(os.path.dirname(path))
        try:
            lock.acquire(timeout=WAIT_SECONDS)
            return
        except Timeout:
            with suppress(FileNotFoundError):
                holder = holder_of(storage.read_bytes(path))
                progress(f"another process is making this: waiting ({holder})", 0, None)
        except FileNotFoundError:
            continue  # the last holder has just removed the folder
        except OSError as error:
            if error.errno not in NO_LOCKS_HERE:
                raise
            return


def signature(reads: Collection[str]) -> bytes:
    """The holder, for people, what it reads, and a number that no other claim and no other beat has."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    holder = {"process": os.getpid(), "machine": socket.gethostname(), "at": now, "nonce": uuid.uuid4().hex}
    return json.dumps(holder | {"reads": sorted(reads)}).encode()


def holder_of(signature: bytes) -> str:
    try:
        holder = from_bytes(signature)
        return f"process {holder['process']} on {holder['machine']}, {holder['at']}"
    except (ValueError, KeyError, TypeError):  # it is being written or released
        return "it has only begun"
