"""Claims on an object store, which has no locks.

A claim is an object that is created only if it does not exist (`claim-000001.json`), and that its holder rewrites every
BEAT_SECONDS while it works. A waiting process that sees no rewrite for TAKE_OVER_SECONDS by its own clock takes over by
creating the object with the next number; of several, one succeeds. If the holder was only slow, both work and no harm
is done: the first to write the manifest wins (stage).
"""

import re
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

from clicktower.schemas import storage
from clicktower.schemas.claim import holder_of, signature

# On an object store, where each beat and each check is a paid request.
BEAT_SECONDS = 10.0
TAKE_OVER_SECONDS = 60.0
LOOK_SECONDS = 2.0
_NUMBERED = re.compile(r"claim-\d{6}\.json")


@contextmanager
def object_claim(
    folder: str, progress: Callable[[str, int, int | None], None], reads: Collection[str]
) -> Iterator[None]:
    """As claim.claimed."""
    claim = _create(folder, progress, reads)
    ended = Event()

    def beat() -> None:
        while not ended.wait(BEAT_SECONDS):
            with suppress(Exception):  # the store is unreachable for a moment: one beat is missing
                storage.write_atomic(claim, signature(reads))

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
        newest = max(claims(folder), default="")
        sign = read_claim(storage.join(folder, newest)) if newest else b""
        if sign is None:
            continue  # released between the two checks
        if (newest, sign) != seen:
            seen, since = (newest, sign), time.monotonic()
        if newest and time.monotonic() - since < TAKE_OVER_SECONDS:
            progress(f"another process is making this: waiting ({holder_of(sign)})", 0, None)
            time.sleep(LOOK_SECONDS)
            continue
        number = int(newest[len("claim-") : -len(".json")]) + 1 if newest else 1
        name_of_claim = f"claim-{number:06}.json"
        if not storage.write_new(storage.join(folder, name_of_claim), signature(reads)):
            continue
        # Between the check and the claim others may have come and gone. It counts only if the sole other claim is the
        # one taken over, unchanged.
        signatures = {name: read_claim(storage.join(folder, name)) for name in claims(folder) if name != name_of_claim}
        if all(content in (None, sign) for content in signatures.values()):
            for name in signatures:
                storage.remove(storage.join(folder, name))
            return storage.join(folder, name_of_claim)
        storage.remove(storage.join(folder, name_of_claim))


def claims(folder: str) -> list[str]:
    return [name for name in storage.list_names(folder) if _NUMBERED.fullmatch(name)]


def read_claim(claim: str) -> bytes | None:
    """The content of a claim; None if its holder has released it meanwhile."""
    try:
        return storage.read_bytes(claim)
    except FileNotFoundError:
        return None
