"""One process at a time makes an output: a claim on STORE/STAGE/DIGEST, taken before any work and given back after it.

    with claimed(folder, progress):
        ...                        # whoever asks for the same meanwhile waits, and then finds it made

The claim is a lock of the operating system on a small file in the folder. The kernel gives it back when the process
that took it ends, also by kill -9, so nothing has to expire and no clock has to be right. The processes that it starts
do not hold it: what they write after its end lies under the name of an attempt that nobody commits, so they are no
reason to keep the next one waiting. The file says who holds it, for people.

A stage waits only for others of the same digest, and a digest is of all that a stage reads, so no circle of waiting
processes can arise: what a stage starts itself (the trainings of a sweep) never has its own digest.

**Not covered**: an object store has no such lock, and neither has a network file system that is mounted without one.
There two processes may do the same work at once; the first to write the manifest wins (schemas.stage).
"""

import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from schemas import storage

FILE_NAME = "claim.json"
WAIT_SECONDS = 0.5
_NO_LOCKS_HERE = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}


@contextmanager
def claimed(folder: str, progress: Callable[[str, int, int | None], None]) -> Iterator[None]:
    """The only one on this file system to hold the claim on a folder; waits for it and tells for whom."""
    if not storage.is_local(folder):
        yield
        return
    storage.make_folder(folder)
    path = storage.filesystem(storage.join(folder, FILE_NAME))[1]
    claim = _wait_for(path, progress)
    try:
        if claim is not None:
            _sign(claim)
        yield
    finally:
        if claim is not None:
            with suppress(FileNotFoundError):
                os.unlink(
                    path
                )  # while it is held: whoever waits for this file sees that it is gone, and takes a new one
            _close(claim)


def _wait_for(path: str, progress: Callable[[str, int, int | None], None]) -> int | None:
    """The descriptor of the locked file; None where the file system knows no locks."""
    while True:
        claim = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)  # closed in whatever is executed from here
        _held.add(claim)
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still(claim, path):
                return claim
            _close(claim)
        except BlockingIOError:
            _close(claim)
            progress(f"another process is making this: waiting ({_holder(path)})", 0, None)
            time.sleep(WAIT_SECONDS)
        except OSError as error:
            _close(claim)
            if error.errno not in _NO_LOCKS_HERE:
                raise
            return None


def _is_still(claim: int, path: str) -> bool:
    """Whether the path still leads to the file that is locked: its last holder removed it, and another may be there."""
    try:
        return os.path.samestat(os.fstat(claim), os.stat(path))
    except FileNotFoundError:
        return False


def _sign(claim: int) -> None:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    signature = {"process": os.getpid(), "machine": socket.gethostname(), "since": now}
    with suppress(OSError):  # it is for people: a full disk is met by the stage, which says so
        os.ftruncate(claim, 0)
        os.pwrite(claim, json.dumps(signature).encode(), 0)


def _holder(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        return f"process {found['process']} on {found['machine']}, since {found['since']}"
    except (OSError, ValueError, KeyError, TypeError):  # it is just being signed, or given back
        return "it has only begun"


# What a fork takes along. A lock belongs to the open file, so a forked child would hold it for as long as it lives.
_held: set[int] = set()


def _close(claim: int) -> None:
    _held.discard(claim)
    os.close(claim)


def _let_go_of_all() -> None:
    for claim in list(_held):
        with suppress(OSError):
            os.close(claim)
    _held.clear()


os.register_at_fork(after_in_child=_let_go_of_all)
