"""One publisher of a release URI at a time: a concurrency slot of the Prefect server that runs share.

The pointer itself is swapped by compare-and-swap (flows.releases.pointer): the second of two publishers would work on a
release that loses. The slot spares it that, for all runs of one server. Without a server there is nobody to share a
slot with.
"""

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from prefect.client.orchestration import get_client
from prefect.concurrency.sync import concurrency
from prefect.exceptions import ObjectAlreadyExists
from prefect.settings import get_current_settings

from flows.submit import tell
from schemas import storage

LEASE_SECONDS = 60.0  # after a holder was killed the slot is free again in so long; the least that Prefect takes


@contextmanager
def pointer_slot(uri: str) -> Iterator[None]:
    """The only run of the Prefect server that is set up here to hold the slot of a release URI; waits for it."""
    if not get_current_settings().api.url:
        yield
        return
    name = slot_name(uri)
    with get_client(sync_client=True) as client, suppress(ObjectAlreadyExists):
        client.upsert_global_concurrency_limit_by_name(name, 1)  # one that does not exist would limit nothing
    tell(f"publish: takes the slot {name}, and waits where another run has it")
    # A server that is restarted meanwhile is no reason to stop: the swap compares in any case.
    with concurrency(name, lease_duration=LEASE_SECONDS, strict=True, raise_on_lease_renewal_failure=False):
        yield


def slot_name(uri: str) -> str:
    """The name of a URI's limit: readable, and without the characters that Prefect refuses in names."""
    where = storage.absolute(uri).rstrip("/")
    readable = "-".join(re.findall(r"[\w.]+", where)[-2:])
    return f"clicktower-pointer-{readable}-{hashlib.sha256(where.encode()).hexdigest()[:8]}"
