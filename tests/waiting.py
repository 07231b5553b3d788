"""Waiting for a state instead of for seconds: on a slow or busy machine it comes later, not never."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import psutil

SECONDS = 600.0  # whoever waits so long waits in vain
LOOK_SECONDS = 0.05

State = TypeVar("State")


def wait_until(condition: Callable[[], State], what: Callable[[], object] | str = "") -> State:
    """What the condition returns once that is true. Raises AssertionError with `what` where it never is."""
    deadline = time.monotonic() + SECONDS
    while not (state := condition()):
        assert time.monotonic() < deadline, f"waited {SECONDS:.0f} s for {what() if callable(what) else what}"
        time.sleep(LOOK_SECONDS)
    return state


def runs(pid: int) -> bool:
    """Whether a process of that number does anything any more; one that only waits to be reaped does not."""
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False
