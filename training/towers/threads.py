"""How threads compute, each alone, in which blocks, and memory that they use again and again."""

import math
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock

import numpy as np
import torch


@contextmanager
def alone() -> Iterator[None]:
    """Make this thread's operations single-threaded: a short query then takes 0.3 ms instead of 12 ms at load 4."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def compute_threads(num_threads: int) -> ThreadPoolExecutor:
    """A pool of threads that each compute a whole micro-batch or batch of texts, by single-threaded operations.

    Operations here take 10 to 100 microseconds. When OpenMP shares them out, each ends with all threads spinning at a
    barrier, and if another process holds a core for a moment they all wait. No result depends on the number of threads.
    """
    return ThreadPoolExecutor(num_threads, "compute", initializer=torch.set_num_threads, initargs=(1,))


# On a CPU: numbers whose norm is computed at once, which fixes the order of its sum, and how many such blocks a thread
# takes at once. One by one, the calls alone take a fifth of an update of 50 million numbers.
BLOCK, BLOCKS_AT_ONCE = 1 << 17, 8


def in_blocks(values: torch.Tensor, at_once: int | None = None) -> Sequence[torch.Tensor]:
    """A vector, or rows of a matrix, in pieces of `at_once` blocks, by default a thread's; on a GPU in one piece."""
    if values.device.type != "cpu":
        return (values,)
    return values.split((at_once or BLOCKS_AT_ONCE) * max(1, BLOCK // math.prod(values.shape[1:])))


_LEAST = 1 << 18  # bytes: the C library keeps smaller blocks
_MOST_FREE = 8  # blocks

_free: list[np.ndarray] = []
_lock = Lock()


def empty(shape: Sequence[int], like: torch.Tensor) -> torch.Tensor:
    """An uninitialised tensor of this shape, with another tensor's dtype and device.

    Its memory is reused once nothing refers to it. The C library returns blocks of megabytes to the system and requests
    them again, so each page is fetched and zeroed again at its first write: a seventh of a minibatch's processor time
    on the reference path. The memory kept is NumPy's, which uses large pages if the system has them.
    """
    size = math.prod(shape) * like.element_size()
    if like.device.type != "cpu" or size < _LEAST:
        return like.new_empty(shape)
    block = _block(size)
    taken = block[:size]  # it lives as long as a tensor of this memory
    weakref.finalize(taken, _free.append, block).atexit = False
    return torch.from_numpy(taken).view(like.dtype).view(tuple(shape))


def _block(size: int) -> np.ndarray:
    """The smallest free block that is large enough, or a new one with some room to spare."""
    with _lock:  # against other threads that take one; blocks are returned at any moment, at the end
        large = [(len(block), place) for place, block in enumerate(_free) if len(block) >= size]
        if large:
            return _free.pop(min(large)[1])
        del _free[_MOST_FREE:]
    return np.empty(size * 5 // 4, np.uint8)
