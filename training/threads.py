"""Threads that each compute a whole micro-batch or batch of texts alone, instead of sharing every single operation.

Operations here take 10 to 100 microseconds. Shared out by OpenMP, each ends with all threads spinning at a barrier, and
where another process holds a core for a moment they wait for it: two threads on two cores that others used as well
made 140 pairs/s where one thread made 2,400 (seen on 2 cores at load 5). Whole micro-batches need no barrier, and no result
depends on the number of threads.
"""

from concurrent.futures import ThreadPoolExecutor

import torch


def compute_threads(num_threads: int) -> ThreadPoolExecutor:
    """A pool of threads, each of which computes with itself only."""
    return ThreadPoolExecutor(num_threads, "compute", initializer=torch.set_num_threads, initargs=(1,))
