"""Claims: one process at a time makes an output. A stage holds a claim on STORE/STAGE/DIGEST while it works; publishing
holds one on RELEASE/encoding/DIGEST while it makes a release, and one on RELEASE itself while it changes the pointer or
the releases.

    with claimed(folder, progress):
        ...                        # another process with the same request waits, and then finds the output

The claim is a lock of the operating system on a small file in the folder. The kernel releases it when its holder ends,
even by kill -9, so nothing has to expire and no clock has to be right. Child processes do not inherit it: what they
write after the holder's end is in an attempt that nobody commits, so the next process need not wait for them. The file
names the holder, for people, and the outputs that it reads, which nobody removes meanwhile (schemas.removal).

A stage waits only for others with the same digest. A digest covers everything that a stage reads, so processes cannot
wait for each other in a circle: a stage's own children (the trainings of a sweep) never have its digest.

An object store has no such lock. There a claim is an object that is created only if it does not exist
(`claim-000001.json`), and that its holder rewrites every BEAT_SECONDS while it works. A waiting process that sees no
rewrite for TAKE_OVER_SECONDS by its own clock takes over by creating the object with the next number; of several, one
succeeds. If the holder was only slow, both work and no harm is done: the first to write the manifest wins (stage). The
same is true of a network file system that is mounted without locks.
"""

import errno
import fcntl
import json
import os
import re
import socket
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from typing import Any

from filelock import BaseFileLock, FileLock, Timeout

from clicktower.schemas import storage
from clicktower.schemas.manifest import from_bytes

FILE_NAME = "claim.json"
WAIT_SECONDS = 0.5
# On an object store, where each beat and each check is a paid request.
BEAT_SECONDS = 10.0
TAKE_OVER_SECONDS = 60.0
LOOK_SECONDS = 2.0
FORGOTTEN_SECONDS = 24 * 3600  # after its last beat, by any clock, no holder is taken to live
_NUMBERED = re.compile(r"claim-\d{6}\.json")
_NO_LOCKS_HERE = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}


@contextmanager
def claimed(
    folder: str, progress: Callable[[str, int, int | None], None], reads: Collection[str] = ()
) -> Iterator[None]:
    """Hold the claim on a folder, exclusively on this file system. Waits for it and reports who holds it.

    `reads`: the digests of the outputs that are read meanwhile.
    """
    if not storage.is_local(folder):
        with _object_claim(folder, progress, reads):
            yield
        return
    path = storage.filesystem(storage.join(folder, FILE_NAME))[1]
    lock = FileLock(path, mode=0o600, thread_local=False, fallback_to_soft=False)
    _wait_for(lock, path, progress)
    try:
        with suppress(OSError):  # it informs people: a full disk is reported by the stage itself
            if lock.is_locked:
                Path(path).write_bytes(_signature(reads))
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
                holder = _holder(storage.read_bytes(path))
                progress(f"another process is making this: waiting ({holder})", 0, None)
        except FileNotFoundError:
            continue  # the last holder has just removed the folder
        except OSError as error:
            if error.errno not in _NO_LOCKS_HERE:
                raise
            return


def read_holder(folder: str) -> dict[str, Any] | None:
    """What the claim on a folder says while a process holds it: {"process": ..., "reads": [digest, ...]}; empty if it
    has only begun. None if nobody holds it.
    """
    if not storage.is_local(folder):
        text = _read(storage.join(folder, newest)) if (newest := max(_claims(folder), default="")) else None
        return _if_recent(_parse(text)) if text is not None else None
    try:
        file = os.open(storage.filesystem(storage.join(folder, FILE_NAME))[1], os.O_RDONLY)
    except FileNotFoundError:
        return None
    with open(file, "rb") as claim:
        try:
            fcntl.flock(claim, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None  # its holder is dead
        except BlockingIOError:
            return _parse(claim.read())
        except OSError as error:
            if error.errno not in _NO_LOCKS_HERE:
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


@contextmanager
def _object_claim(
    folder: str, progress: Callable[[str, int, int | None], None], reads: Collection[str]
) -> Iterator[None]:
    claim = _create(folder, progress, reads)
    ended = Event()

    def beat() -> None:
        while not ended.wait(BEAT_SECONDS):
            with suppress(Exception):  # the store is unreachable for a moment: one beat is missing
                storage.write_atomic(claim, _signature(reads))

    beating = Thread(target=beat, daemon=True)  # a daemon ends with a killed process
    beating.start()
    try:
        yield
    finally:
        ended.set()
        beating.join()
        with suppress(Exception):  # an error of the stage is more important; the next process takes over after a while
            storage.remove(claim)


def _create(folder: str, progress: Callable[[str, int, int | None], None], reads: Collection[str]) -> str:
    """Create this process's claim once no other exists, or once the newest is no longer renewed; returns its URI."""
    seen: tuple[str, bytes] = ("", b"")
    since = time.monotonic()
    while True:
        newest = max(_claims(folder), default="")
        signature = _read(storage.join(folder, newest)) if newest else b""
        if signature is None:
            continue  # released between the two checks
        if (newest, signature) != seen:
            seen, since = (newest, signature), time.monotonic()
        if newest and time.monotonic() - since < TAKE_OVER_SECONDS:
            progress(f"another process is making this: waiting ({_holder(signature)})", 0, None)
            time.sleep(LOOK_SECONDS)
            continue
        number = int(newest[len("claim-") : -len(".json")]) + 1 if newest else 1
        name_of_claim = f"claim-{number:06}.json"
        if not storage.write_new(storage.join(folder, name_of_claim), _signature(reads)):
            continue
        # Between the check and the claim others may have come and gone. It counts only if the sole other claim is the
        # one taken over, unchanged.
        signatures = {name: _read(storage.join(folder, name)) for name in _claims(folder) if name != name_of_claim}
        if all(sign in (None, signature) for sign in signatures.values()):
            for name in signatures:
                storage.remove(storage.join(folder, name))
            return storage.join(folder, name_of_claim)
        storage.remove(storage.join(folder, name_of_claim))


def _claims(folder: str) -> list[str]:
    return [name for name in storage.list_names(folder) if _NUMBERED.fullmatch(name)]


def _read(claim: str) -> bytes | None:
    """The content of a claim; None if its holder has released it meanwhile."""
    try:
        return storage.read_bytes(claim)
    except FileNotFoundError:
        return None


def _signature(reads: Collection[str]) -> bytes:
    """The holder, for people, what it reads, and a number that no other claim and no other beat has."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    holder = {"process": os.getpid(), "machine": socket.gethostname(), "at": now, "nonce": uuid.uuid4().hex}
    return json.dumps(holder | {"reads": sorted(reads)}).encode()


def _holder(signature: bytes) -> str:
    try:
        holder = from_bytes(signature)
        return f"process {holder['process']} on {holder['machine']}, {holder['at']}"
    except (ValueError, KeyError, TypeError):  # it is being written or released
        return "it has only begun"
