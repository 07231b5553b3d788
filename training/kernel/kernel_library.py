"""Loads the compiled path once, plain C++ called through ctypes, or says why it is not available.

training.model.kernel_towers turns texts into words and trigrams (tokenise.cpp), indexes a batch (batch.cpp,
prefixes.cpp) and encodes texts (encode_text.cpp). training.trainer.kernel_path computes a minibatch's gradient and the
update (gradient.cpp, click_loss.h). Here are vectors in eight bits (nearest.cpp) and titles by word (postings.cpp).

The package's own build makes one shared library of the C++ files here (pyproject.toml), without Python's or torch's
headers; it is optional, so that an install without a compiler succeeds. All compiled code has a reference in Python.

Of 8-bit vectors the kernel finds the few that may be nearest to a query.

Vector v is kept as v̂ = scale * code: codes from -127 to 127, a scale of its own, and an upper bound of |v - v̂|. A query
q is rounded to q̂, its own unit times whole numbers of up to sixteen bits, so their dot product is a whole number and is
exact. By Cauchy-Schwarz

    |q·v - q̂·v̂| <= |q| |v - v̂| + |v̂| |q - q̂|

which, together with the rounding of float32, decides which vectors cannot be among the k nearest. For the others the
dot product is computed from the vectors themselves, so the answer equals that of comparing with every one (nearest).

By distance, the nearest vector has the largest q·v - |v|²/2 (embedding): a number per vector is subtracted from the
same product, and the bound is the same. Distances do not change under a translation, so vectors and query are taken
relative to the vectors' mean: a common part would make every copy coarser.

Suffixes: N vectors, D dimensions.
"""

import ctypes
import weakref
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from clicktower.schemas.process import load_compiled
from clicktower.schemas.release import Similarity

# Incremented with every change of the C++ interface: an older library is not called.
INTERFACE = 13
_NAME = "clicktower.training.kernel._kernel"

# A function's result and arguments, a letter each: p a pointer, s bytes, i and q integers of 32 and 64 bits, Q an
# unsigned one, f and d floats of 32 and 64 bits.
_LETTERS: dict[str, Any] = {
    "p": ctypes.c_void_p, "s": ctypes.c_char_p, "i": ctypes.c_int32, "q": ctypes.c_int64, "Q": ctypes.c_uint64,
    "f": ctypes.c_float, "d": ctypes.c_double,
}  # fmt: skip
_FUNCTIONS = {
    "kernel_instructions": ("s", ""),
    "kernel_choose": ("i", "s"),
    "kernel_fma_peak": ("d", "d"),
    "find_not_ascii": ("q", "ppqp"),
    "tokens_new": ("p", "ppqpppqQ"),
    "tokens_free": ("", "p"),
    "tokens_array": ("p", "pip"),
    "batch_new": ("p", "pqpiiip"),
    "batch_free": ("", "p"),
    "batch_array": ("p", "pip"),
    "weights_new": ("p", "pippp"),
    "weights_free": ("", "p"),
    "tower_encode": ("i", "ppp"),
    "text_encode": ("i", "psqiqiip"),
    "workspace_new": ("p", ""),
    "workspace_free": ("", "p"),
    "workspace_addend": ("", "pip"),
    "crew_new": ("p", "i"),
    "crew_free": ("", "p"),
    "pair_gradients": ("i", "pppqp"),
    "rows_make": ("i", "ppqi"),
    "nearest_candidates": ("q", "ppppqqppp"),
    "postings_best": ("q", "ppqppp"),
    "postings_scores": ("", "pppqp"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Status:
    """The status of the compiled path in this process: its instruction set, or why it is not available."""

    available: bool
    instructions: str  # avx512, avx2, generic, or "" if it is not available
    reason: str  # a sentence


@cache
def status() -> Status:
    kernel, reason = _loaded()
    instructions = kernel.kernel_instructions().decode() if kernel else ""
    return Status(available=kernel is not None, instructions=instructions, reason=reason)


def library() -> ctypes.CDLL:
    """The shared library. Raises RuntimeError, with `status().reason`, if it is not available."""
    kernel, reason = _loaded()
    if kernel is None:
        raise RuntimeError(reason)
    return kernel


@cache
def _loaded() -> tuple[ctypes.CDLL | None, str]:
    kernel, reason = load_compiled(_NAME, "kernel_interface", INTERFACE)
    if kernel is None:
        return None, reason
    for name, (gives, takes) in _FUNCTIONS.items():
        function = getattr(kernel, name)
        function.restype = _LETTERS[gives] if gives else None
        function.argtypes = [_LETTERS[letter] for letter in takes]
    if not (instructions := kernel.kernel_instructions().decode()):
        return None, (
            "this processor has neither AVX-512 nor AVX2 with fused multiply-add, "
            "or not what CLICKTOWER_INSTRUCTIONS names"
        )
    return kernel, f"compiled with the package, running with {instructions}"


def fields(**letters: str) -> Any:
    """The fields of a struct, from a letter for the type of each."""
    return tuple((name, _LETTERS[letter]) for name, letter in letters.items())


class Owned:
    """An object in the kernels' own memory, which is freed with this object (KIND_free)."""

    __slots__ = ("__weakref__", "_kind", "handle")

    def __init__(self, kind: str, handle: int | None, content: str) -> None:
        """Raises MemoryError if there is no memory for `content`."""
        require_memory(bool(handle), content)
        self._kind, self.handle = kind, handle
        weakref.finalize(self, getattr(library(), f"{kind}_free"), handle).atexit = False

    def numbers(self, which: int, dtype: Any) -> np.ndarray:
        """One of its arrays (KIND_array), read-only and without a copy; it keeps this object alive."""
        length = ctypes.c_int64()
        address = getattr(library(), f"{self._kind}_array")(self.handle, which, ctypes.byref(length))
        return np.asarray(_Numbers(self, address, length.value, dtype)) if length.value else np.empty(0, dtype)


class _Numbers:
    """Numbers in another object's memory, for NumPy: six times faster than a ctypes array of that length."""

    __slots__ = ("__array_interface__", "_owner")

    def __init__(self, owner: Owned, address: int, length: int, dtype: Any) -> None:
        self._owner = owner
        self.__array_interface__ = {
            "version": 3, "data": (address, True), "shape": (length,), "typestr": np.dtype(dtype).str,
        }  # fmt: skip


def require_memory(is_there: bool, purpose: str) -> None:
    """Raise MemoryError if a kernel ran out of memory."""
    if not is_there:
        raise MemoryError(f"there is no memory for {purpose}")


_LEVELS = 127  # of a component, either side of 0
_QUERY_LEVELS = 32_767
_BLOCK = 1_024  # vectors made into codes at once
_TINY = 1e-30  # a vector without a larger component has codes of 0
_LEAST_SHARE = 1e-12
_UNIT_ROUNDOFF = 2.0**-24  # of float32


class _Rows(ctypes.Structure):
    _fields_ = fields(codes="p", scales="p", errors="p", half_squares="p", dimensions="q")


class _Query(ctypes.Structure):
    _fields_ = fields(codes="p", per_error="f", always="f", per_half_square="f")


class Int8Rows:
    """Vectors in slightly more than a byte per component; by cosine, of length 1 or 0. Safe for many threads."""

    def __init__(self, vectors_ND: np.ndarray, similarity: Similarity = "cosine") -> None:
        """vectors_ND: float32, which is read and not kept. Raises RuntimeError without a kernel."""
        self._candidates = library().nearest_candidates
        dimensions = vectors_ND.shape[1]
        self._by_distance = similarity == "euclidean"
        self._middle_D = vectors_ND.mean(axis=0, dtype=np.float64) if self._by_distance else np.zeros(dimensions)
        # Vectors minus the centre as codes, with scales and bounds of |v - v̂|, and |v|²/2.
        codes_ND = np.empty(vectors_ND.shape, np.int8)
        scale_N, error_N, half_square_N = np.empty((3, len(vectors_ND)), np.float32)
        self._longest = 0.0  # no |v| or |v̂| is larger
        for start in range(0, len(vectors_ND), _BLOCK):
            block = slice(start, start + _BLOCK)
            vectors_BD = vectors_ND[block] - self._middle_D
            largest_B = np.abs(vectors_BD).max(axis=1)
            scale_N[block] = np.where(largest_B > _TINY, largest_B / _LEVELS, 1)
            whole_BD = np.rint(vectors_BD / scale_N[block, None])
            codes_ND[block] = whole_BD
            error_B = np.linalg.norm(vectors_BD - whole_BD * scale_N[block, None], axis=1)
            error_N[block] = np.nextafter(error_B.astype(np.float32), np.float32(np.inf))
            length_B = np.linalg.norm(vectors_BD, axis=1)
            half_square_N[block] = length_B**2 / 2
            self._longest = max(self._longest, float((length_B + error_B).max()))
        self._kept = codes_ND, scale_N, error_N, half_square_N  # C++ reads them
        addresses = [array.ctypes.data for array in self._kept]
        self._rows = _Rows(*addresses[:3], addresses[3] if self._by_distance else None, dimensions)
        # A sum of products must fit into 32 bits.
        self._query_levels = min(_QUERY_LEVELS, (2**31 - 1) // (_LEVELS * dimensions))
        # Twice the rounding of float32 here in parts of |q| |v|: D for a sum of D products in any order, 8 for the
        # bounds themselves.
        self._rounding = 2 * (dimensions + 8) * _UNIT_ROUNDOFF

    def candidates(self, query_D: np.ndarray, k: int, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Places (int32, ascending) that include the k nearest of starts[i] to ends[i] for all i, and few others.

        query_D: float32, by cosine of length 1 or 0. All places that tie for the k-th are included. starts, ends:
        int64; ranges that come first should hold the nearest, for speed.
        """
        codes, *bounds = self._rounded(query_D)
        query = _Query(codes.ctypes.data, *bounds)
        starts, ends = np.ascontiguousarray(starts, np.int64), np.ascontiguousarray(ends, np.int64)
        num_rows = int((ends - starts).sum())
        k = min(k, num_rows)
        lows, highs, places = np.empty(k, np.float32), np.empty(num_rows, np.float32), np.empty(num_rows, np.int32)
        num_candidates = self._candidates(
            ctypes.byref(self._rows), ctypes.byref(query), starts.ctypes.data, ends.ctypes.data, len(starts), k,
            lows.ctypes.data, highs.ctypes.data, places.ctypes.data,
        )  # fmt: skip
        return np.sort(places[:num_candidates])

    def _rounded(self, query_D: np.ndarray) -> tuple[np.ndarray, float, float, float]:
        """(q̂ in its unit, int16 [D]; in that unit, the maximum error of its product with a v̂ for each part of the
        vector's error, and always; and 1).
        """
        exact_D = query_D.astype(np.float64) - self._middle_D
        longest = self._longest
        # A query of 0, or nearly the vectors' centre, must not make the others too large for floats.
        largest = max(float(np.abs(exact_D).max()), _LEAST_SHARE * longest, _TINY)
        unit = largest / self._query_levels
        whole_D = np.rint(exact_D / unit)
        length, error = float(np.linalg.norm(exact_D)), float(np.linalg.norm(exact_D - unit * whole_D))
        always = longest * (error + self._rounding * length)
        if self._by_distance:  # rounding is in parts of |q - v|², and of |v|²/2
            always += self._rounding * (length + longest) ** 2
        return whole_D.astype(np.int16), length / unit, always / unit, 1 / unit


class _Postings(ctypes.Structure):
    _fields_ = fields(titles="p", parts="p")


class _QueryWords(ctypes.Structure):
    _fields_ = fields(starts="p", ends="p", largest="p", num_words="q")


class Postings:
    """Entries by word: a title, and the word's contribution to its score. Safe for many threads.

    Word w has the entries starts[w]:starts[w + 1]; a query is the numbers of its words.
    """

    def __init__(self, starts: np.ndarray, titles: np.ndarray, parts: np.ndarray, largest: np.ndarray) -> None:
        """starts: int64, from 0 to the number of entries; titles: int32, ascending for each word; parts: float32,
        above 0; largest: each word's largest part, float32. Entries are kept without a copy.

        Raises RuntimeError without a kernel.
        """
        self._best, self._scores = library().postings_best, library().postings_scores
        self._starts, self._largest = starts, largest
        self._entries = titles, parts = np.ascontiguousarray(titles, np.int32), np.ascontiguousarray(parts, np.float32)
        self._postings = _Postings(titles.ctypes.data, parts.ctypes.data)

    def best(self, words: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """(titles, scores) of the k best by the sum of their entries, int32 and float32, unordered.

        There are more than k where several have the k-th score, fewer where fewer have any.
        """
        starts, ends, largest = self._starts[words], self._starts[words + 1], self._largest[words]
        num_entries = int((ends - starts).sum())
        k = min(k, num_entries)
        heap, scores = np.empty(k, np.float32), np.empty(num_entries, np.float32)
        titles = np.empty(num_entries, np.int32)
        query = _QueryWords(starts.ctypes.data, ends.ctypes.data, largest.ctypes.data, len(words))
        num_titles = self._best(
            ctypes.byref(self._postings), ctypes.byref(query), k, heap.ctypes.data, titles.ctypes.data,
            scores.ctypes.data,
        )  # fmt: skip
        require_memory(num_titles >= 0, f"the titles of {len(words):,} words")
        return titles[:num_titles].copy(), scores[:num_titles].copy()

    def scores_of(self, words: np.ndarray, titles: np.ndarray) -> np.ndarray:
        """The sums of some titles' entries, float32; fastest if the titles ascend."""
        starts, ends, largest = self._starts[words], self._starts[words + 1], self._largest[words]
        titles, scores = np.ascontiguousarray(titles, np.int32), np.empty(len(titles), np.float32)
        query = _QueryWords(starts.ctypes.data, ends.ctypes.data, largest.ctypes.data, len(words))
        self._scores(
            ctypes.byref(self._postings), ctypes.byref(query), titles.ctypes.data, len(titles), scores.ctypes.data
        )
        return scores
