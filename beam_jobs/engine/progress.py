"""How far a running Beam job is, for whoever started it, on whatever runner: workers leave notes, the client adds up.

    with listening(progress, {"reading (bytes)": 1000, "writing (buckets)": 4}, folder) as told:
        ...                                    # the job, whose functions call advance(told, "reading (bytes)", 10)

A note is one small file for each worker process in a folder that all of them see, written at most once a second. What a
bundle that ran twice did counts twice, so a step never shows more than its total; the ledger counts for itself.
"""

import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache

from schemas import storage
from schemas.stage import Progress

NOTE_SECONDS = 1.0


@contextmanager
def listening(progress: Progress, steps: Mapping[str, int], folder: str) -> Iterator[str]:
    """What to hand to `advance`, while the block runs. `steps`: the total of each, in the order they come in.

    The last step that anything is done of is told. A folder that cannot be made or read only silences this.
    """
    progress(next(iter(steps)), 0, next(iter(steps.values())))
    with suppress(OSError):
        storage.make_folder(folder)
    ended = threading.Event()

    def tell() -> None:
        done = _add_up(folder)
        if begun := [step for step in steps if done[step]]:
            progress(begun[-1], min(done[begun[-1]], steps[begun[-1]]), steps[begun[-1]])

    def listen() -> None:
        while not ended.wait(NOTE_SECONDS):
            tell()

    listener = threading.Thread(target=listen, name="clicktower-progress", daemon=True)
    listener.start()
    try:
        yield folder
    finally:
        ended.set()
        listener.join()
        _note(folder).write()  # what a worker in this process has not written yet
        tell()


def advance(told: str, step: str, by: int) -> None:
    """Note that `by` more of a step are done. Without a folder nobody listens."""
    if told:
        _note(told).add(step, by)


class _Note:
    """What this process did for one job."""

    def __init__(self, folder: str) -> None:
        self._uri = storage.join(folder, f"{uuid.uuid4().hex}.json")
        self._done: Counter[str] = Counter()
        self._written, self._lock = 0.0, threading.Lock()

    def add(self, step: str, by: int) -> None:
        with self._lock:
            self._done[step] += by
            is_due = time.monotonic() - self._written >= NOTE_SECONDS
        if is_due:
            self.write()

    def write(self) -> None:
        with self._lock, suppress(OSError):  # no word about the progress is no reason to stop
            self._written = time.monotonic()
            folder = self._uri.rpartition("/")[0]
            if not storage.is_local(folder) or storage.exists(folder):  # or else the job is over
                with storage.open_new(self._uri) as note:
                    note.write(json.dumps(self._done).encode())


@lru_cache(maxsize=8)
def _note(folder: str) -> _Note:
    return _Note(folder)


def _add_up(folder: str) -> Counter[str]:
    done: Counter[str] = Counter()
    with suppress(OSError):
        for name in storage.list_files(folder):
            with suppress(ValueError):  # caught in the middle of a write
                done.update(json.loads(storage.read_bytes(storage.join(folder, name))))
    return done
