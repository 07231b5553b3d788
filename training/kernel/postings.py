"""The entries of an index by word, from which the kernel finds the best titles for the words of a query.

The scores are added up word by word in the query's order, in float32, so they are bit for bit those that NumPy adds up
(bm25); the kernel goes over the titles a block at a time, whose scores stay in the cache.
"""

import ctypes
from collections.abc import Callable
from functools import cache

import numpy as np

from training.kernel.kernel_library import library, require_memory


class _Postings(ctypes.Structure):
    _fields_ = (("titles", ctypes.c_void_p), ("parts", ctypes.c_void_p))


class Postings:
    """Entries: a title, and what a word adds to its score; a word's lie side by side. Safe to ask from many threads."""

    def __init__(self, titles: np.ndarray, parts: np.ndarray) -> None:
        """int32, ascending for each word, and float32 above 0; both are kept and not copied.

        Raises RuntimeError where there is no kernel.
        """
        self._best = _postings_best()
        self._arrays = titles, parts = np.ascontiguousarray(titles, np.int32), np.ascontiguousarray(parts, np.float32)
        self._postings = _Postings(titles.ctypes.data, parts.ctypes.data)

    def best(self, starts: np.ndarray, ends: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """(titles, scores) of the k best by the sum of their entries in starts[i] to ends[i] for all i, in no order.

        starts, ends: int64, one range a word. int32 and float32; more than k where several have the k-th score, fewer
        where fewer have any.
        """
        starts, ends = np.ascontiguousarray(starts, np.int64), np.ascontiguousarray(ends, np.int64)
        num_entries = int((ends - starts).sum())
        k = min(k, num_entries)
        heap, scores = np.empty(k, np.float32), np.empty(num_entries, np.float32)
        titles = np.empty(num_entries, np.int32)
        found = self._best(
            self._postings, starts.ctypes.data, ends.ctypes.data, len(starts), k,
            heap.ctypes.data, titles.ctypes.data, scores.ctypes.data,
        )  # fmt: skip
        require_memory(found >= 0, f"the titles of {len(starts):,} words")
        return titles[:found].copy(), scores[:found].copy()


@cache
def _postings_best() -> Callable[..., int]:
    found = library().postings_best
    found.restype = ctypes.c_int64
    found.argtypes = (
        ctypes.POINTER(_Postings), ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64,
        ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p,
    )  # fmt: skip
    return found
