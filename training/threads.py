"""Threads that each compute a whole micro-batch or batch of texts alone, instead of sharing every single operation.

Operations here take 10 to 100 microseconds. Shared out by OpenMP, each ends with all threads spinning at a barrier, and
where another process holds a core for a moment they all wait: on two cores that others used as well (load 5), two
threads made 140 pairs/s where one made 2,400. Whole micro-batches need no barrier, and no result depends on the number
of threads.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch


def compute_threads(num_threads: int) -> ThreadPoolExecutor:
    """A pool of threads, each of which computes with itself only."""
    return ThreadPoolExecutor(num_threads, "compute", initializer=torch.set_num_threads, initargs=(1,))


@contextmanager
def alone() -> Iterator[None]:
    """Within, this thread computes with itself only: a short query took 0.3 ms so, 12 ms without at load 4."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
