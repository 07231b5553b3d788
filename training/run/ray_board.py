"""How far a run on Ray is: its first worker posts it, the process that started the run reads it.

Free of torch, which the board's own process would take seconds to load.
"""

import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

import ray

from schemas.stage import Progress
from training.run.ray_cluster import on_this_node

POLL_SECONDS = 0.5


class _Board:
    """Where the first worker posts its progress for the process that started the run."""

    _progress: tuple | None = None

    def post(self, *progress: Any) -> None:
        self._progress = progress

    def read(self) -> tuple | None:
        return self._progress


@contextmanager
def board_of(checkpoints: str, progress: Progress) -> Iterator[Any]:
    """The run's board, whose name the cluster gives once: of two runs with one output the second waits for the first.

    Where a run's own process was killed, that is until Ray has ended all that belonged to it, so that its workers do
    not write checkpoints beside those of the next.
    """
    made = cast(Any, ray.remote(**on_this_node())(_Board))
    name = f"clicktower-train-{hashlib.sha256(checkpoints.encode()).hexdigest()[:24]}"
    board = None
    while board is None:
        try:
            board = made.options(name=name, namespace="clicktower").remote()
        except ValueError:  # the name is taken
            progress("the workers of a run that was killed are being ended: waiting", 0, None)
            time.sleep(POLL_SECONDS)
    try:
        yield board
    finally:
        with suppress(ray.exceptions.RayError):  # the head is gone, and with it the board
            ray.kill(board)


@contextmanager
def relayed(board: Any, progress: Progress) -> Iterator[None]:
    """Within, a thread passes on what is posted."""
    stop, last = threading.Event(), None

    def relay() -> None:
        nonlocal last
        with suppress(ray.exceptions.RayError):
            posted = ray.get(board.read.remote())
            if posted and posted != last:
                last = posted
                progress(*posted)

    def relay_all() -> None:
        while not stop.wait(POLL_SECONDS):
            relay()
        relay()

    thread = threading.Thread(target=relay_all, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
