"""Memory for large arrays that come and go with every micro-batch: kept, and used again.

The C library gives blocks of megabytes back to the system and asks for them anew, so that each of their pages is
fetched and zeroed again when it is first written: a seventh of a minibatch's processor time on the reference path. What
is kept is NumPy's, which lies in large pages where the system has them.
"""

import math
import weakref
from collections.abc import Sequence
from threading import Lock

import numpy as np
import torch

_LEAST = 1 << 18  # bytes: the C library keeps what is smaller
_MOST_FREE = 8  # blocks

_free: list[np.ndarray] = []
_lock = Lock()


def empty(shape: Sequence[int], like: torch.Tensor) -> torch.Tensor:
    """A tensor of this shape, of the kind of another one and on its device; whatever was in its memory before."""
    size = math.prod(shape) * like.element_size()
    if like.device.type != "cpu" or size < _LEAST:
        return like.new_empty(shape)
    block = _block(size)
    taken = block[:size]  # lives as long as a tensor of this memory does
    weakref.finalize(taken, _free.append, block).atexit = False
    return torch.from_numpy(taken).view(like.dtype).view(tuple(shape))


def _block(size: int) -> np.ndarray:
    """The smallest free block that is large enough, or a new one with some room to spare."""
    with _lock:  # against other threads that take one; one is given back at any moment, behind the others
        large = [(len(block), place) for place, block in enumerate(_free) if len(block) >= size]
        if large:
            return _free.pop(min(large)[1])
        del _free[_MOST_FREE:]
    return np.empty(size * 5 // 4, np.uint8)
