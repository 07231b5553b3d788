"""Threads that each compute a whole micro-batch or batch of texts alone, instead of sharing every single operation.

Operations here take 10 to 100 microseconds. Shared out by OpenMP, each ends with all threads spinning at a barrier, and
where another process holds a core for a moment they all wait: on two cores that others used as well (load 5), two
threads made 140 pairs/s where one made 2,400. Whole micro-batches need no barrier, and no result depends on the number
of threads.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch


def compute_threads(num_threads: int) -> ThreadPoolExecutor:
    """A pool of threads, each of which computes with itself only."""
    return ThreadPoolExecutor(num_threads, "compute", initializer=torch.set_num_threads, initargs=(1,))


Item = TypeVar("Item")


def share_out(do: Callable[[Item], object], items: Iterable[Item], threads: Executor, num_threads: int) -> None:
    """do(item) for each item: this thread and others, `num_threads` in all, take one after the other.

    For items of a fraction of a millisecond: a thread is woken once and not for every item, and this one does not wait
    for a core to wake another.
    """
    queue = iter(list(items))  # the interpreter gives each of them out once

    def take() -> None:
        for item in queue:
            do(item)

    others = [threads.submit(take) for _ in range(num_threads - 1)]
    try:
        take()
    finally:
        for other in others:
            other.result()


@contextmanager
def alone() -> Iterator[None]:
    """Within, this thread computes with itself only: a short query took 0.3 ms so, 12 ms without at load 4."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
