"""How far a running Beam job is, for whoever watches it from the same process.

A worker knows no Progress, only a token. Where runner and client share a process (FnApiRunner in memory), `advance`
finds the listener by it; on other workers it finds none and nothing happens.
"""

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from schemas.stage import Progress

_listeners: dict[str, "_Listener"] = {}


class _Listener:
    def __init__(self, progress: Progress, what: str, total: int | None) -> None:
        self._progress, self._what, self._total = progress, what, total
        self._done, self._lock = 0, threading.Lock()

    def advance(self, by: int) -> None:
        with self._lock:
            self._done += by
            self._progress(self._what, self._done, self._total)


@contextmanager
def listening(progress: Progress, what: str, total: int | None) -> Iterator[str]:
    """The token under which `advance` reaches `progress` while the block runs."""
    token = uuid.uuid4().hex
    _listeners[token] = _Listener(progress, what, total)
    progress(what, 0, total)
    try:
        yield token
    finally:
        del _listeners[token]


def advance(token: str, by: int) -> None:
    """Tell the listener of `token`, if it is in this process, that `by` more are done."""
    listener = _listeners.get(token)
    if listener:
        listener.advance(by)
