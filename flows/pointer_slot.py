"""One publisher of a release URI at a time: a concurrency slot of the Prefect server that runs share.

The pointer itself is swapped by compare-and-swap (flows.releases.pointer): the second of two publishers would work on a
release that loses. The slot spares it that, for all runs of one server. Without a server there is nobody to share a
slot with, and one that is restarted meanwhile ends no run: it is waited for before the release, and not needed after.
"""

import hashlib
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import httpx
from prefect.client.orchestration import get_client
from prefect.concurrency.asyncio import ConcurrencySlotAcquisitionError
from prefect.concurrency.sync import concurrency
from prefect.exceptions import ObjectAlreadyExists
from prefect.settings import get_current_settings

from flows.submit import tell
from schemas import storage

LEASE_SECONDS = 60.0  # after a holder was killed the slot is free again in so long; the least that Prefect takes
SERVER_SECONDS = 600.0  # a server that is away for longer ends the run
LOOK_SECONDS = 2.0


@contextmanager
def pointer_slot(uri: str) -> Iterator[None]:
    """The only run of the Prefect server that is set up here to hold the slot of a release URI; waits for it."""
    if not get_current_settings().api.url:
        yield
        return
    name = slot_name(uri)
    tell(f"publish: takes the slot {name}, and waits where another run has it")
    slot = _acquired(name)
    try:
        yield
    finally:
        with suppress(httpx.TransportError):  # the lease ends by itself
            slot.close()


def _acquired(name: str) -> ExitStack:
    """The slot, to be closed. A client of Prefect waits for a server that it has reached before, and these are new."""
    until = time.monotonic() + SERVER_SECONDS
    while True:
        try:
            with get_client(sync_client=True) as client, suppress(ObjectAlreadyExists):
                client.upsert_global_concurrency_limit_by_name(name, 1)  # one that does not exist would limit nothing
            with ExitStack() as slot:
                slot.enter_context(
                    concurrency(name, lease_duration=LEASE_SECONDS, strict=True, raise_on_lease_renewal_failure=False)
                )
                return slot.pop_all()
        except (httpx.TransportError, ConcurrencySlotAcquisitionError) as error:
            away = isinstance(error, httpx.TransportError) or isinstance(error.__cause__, httpx.TransportError)
            if not away or time.monotonic() > until:
                raise
            time.sleep(LOOK_SECONDS)


def slot_name(uri: str) -> str:
    """The name of a URI's limit: readable, and without the characters that Prefect refuses in names."""
    where = storage.absolute(uri).rstrip("/")
    readable = "-".join(re.findall(r"[\w.]+", where)[-2:])
    return f"clicktower-pointer-{readable}-{hashlib.sha256(where.encode()).hexdigest()[:8]}"
