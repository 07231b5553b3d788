"""Vectors in eight bits, from which the kernel finds the few that may be nearest to a query.

Vector v is kept as v̂ = scale * code: codes from -127 to 127, a scale of its own, and an upper bound of |v - v̂|. A query
q is rounded to q̂, its own unit times whole numbers of up to sixteen bits, so their dot product is a whole number and is
exact. By Cauchy-Schwarz

    |q·v - q̂·v̂| <= |q| |v - v̂| + |v̂| |q - q̂|

which, with what float32 may round, decides which vectors cannot be among the k nearest. For the others the dot product
is computed from the vectors themselves, so the answer is that of comparing with every one (training.ranking.nearest).

Suffixes: N vectors, D dimensions.
"""

import ctypes
from collections.abc import Callable
from functools import cache

import numpy as np

from training.kernel.library import library

_LEVELS = 127  # of a component, either side of 0
_QUERY_LEVELS = 32_767
_BLOCK = 1_024  # vectors made into codes at once
_TINY = 1e-30  # a vector without a larger component has codes of 0
_UNIT_ROUNDOFF = 2.0**-24  # of float32


class _Rows(ctypes.Structure):
    _fields_ = (
        ("codes", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("errors", ctypes.c_void_p),
        ("dimensions", ctypes.c_int64),
    )


class _Query(ctypes.Structure):
    _fields_ = (("codes", ctypes.c_void_p), ("per_error", ctypes.c_float), ("always", ctypes.c_float))


class Int8Rows:
    """Vectors of length 1 or 0, in a little more than a byte a component. Safe to ask from many threads."""

    def __init__(self, vectors_ND: np.ndarray) -> None:
        """vectors_ND: float32, which is read and not kept. Raises RuntimeError where there is no kernel."""
        self._candidates = _nearest_candidates()
        self._codes_ND, self._scale_N, self._error_N, self._longest = _quantised(vectors_ND)
        dimensions = vectors_ND.shape[1]
        arrays = (self._codes_ND, self._scale_N, self._error_N)
        self._rows = _Rows(*(array.ctypes.data for array in arrays), dimensions)
        # A sum of products must fit into 32 bits.
        self._query_levels = min(_QUERY_LEVELS, (2**31 - 1) // (_LEVELS * dimensions))
        # Twice what float32 can round here in parts of |q| |v|: D for a sum of D products in any order, 8 for the
        # bounds themselves.
        self._rounding = 2 * (dimensions + 8) * _UNIT_ROUNDOFF

    def candidates(self, query_D: np.ndarray, k: int, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Places (int32, ascending) that hold the k nearest of starts[i] to ends[i] for all i, and few besides.

        query_D: float32, length 1 or 0. Places of which several are k-th are all there. starts, ends: int64; ranges
        that come first should hold the nearest, for speed.
        """
        codes, per_error, always = self._rounded(query_D)
        query = _Query(codes.ctypes.data, per_error, always)
        starts, ends = np.ascontiguousarray(starts, np.int64), np.ascontiguousarray(ends, np.int64)
        num_rows = int((ends - starts).sum())
        k = min(k, num_rows)
        lows, highs, places = np.empty(k, np.float32), np.empty(num_rows, np.float32), np.empty(num_rows, np.int32)
        found = self._candidates(
            self._rows, query, starts.ctypes.data, ends.ctypes.data, len(starts), k,
            lows.ctypes.data, highs.ctypes.data, places.ctypes.data,
        )  # fmt: skip
        return np.sort(places[:found])

    def _rounded(self, query_D: np.ndarray) -> tuple[np.ndarray, float, float]:
        """(q̂ in its unit, int16 [D]; what its product with a v̂ can be off, in that unit: for each part of the vector's
        error, and always)."""
        exact_D = query_D.astype(np.float64)
        largest = float(np.abs(exact_D).max())
        unit = largest / self._query_levels if largest > _TINY else 1.0
        whole_D = np.rint(exact_D / unit)
        length, error = float(np.linalg.norm(exact_D)), float(np.linalg.norm(exact_D - unit * whole_D))
        always = self._longest * (error + self._rounding * length)
        return whole_D.astype(np.int16), length / unit, always / unit


def _quantised(vectors_ND: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """(codes, int8 [N, D]; scales, float32 [N]; bounds of |v - v̂|, float32 [N]; no |v| or |v̂| is larger than this)."""
    codes_ND = np.empty(vectors_ND.shape, np.int8)
    scale_N, error_N = np.empty((2, len(vectors_ND)), np.float32)
    longest = 0.0
    for start in range(0, len(vectors_ND), _BLOCK):
        block = slice(start, start + _BLOCK)
        vectors_BD = vectors_ND[block].astype(np.float64)
        largest_B = np.abs(vectors_BD).max(axis=1)
        scale_N[block] = np.where(largest_B > _TINY, largest_B / _LEVELS, 1)
        whole_BD = np.rint(vectors_BD / scale_N[block, None])
        codes_ND[block] = whole_BD
        error_B = np.linalg.norm(vectors_BD - whole_BD * scale_N[block, None], axis=1)
        error_N[block] = np.nextafter(error_B.astype(np.float32), np.float32(np.inf))
        longest = max(longest, float((np.linalg.norm(vectors_BD, axis=1) + error_B).max()))
    return codes_ND, scale_N, error_N, longest


@cache
def _nearest_candidates() -> Callable[..., int]:
    found = library().nearest_candidates
    found.restype = ctypes.c_int64
    found.argtypes = (
        ctypes.POINTER(_Rows), ctypes.POINTER(_Query), ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64,
        ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p,
    )  # fmt: skip
    return found
