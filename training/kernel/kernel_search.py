"""8-bit vectors, in which the kernel finds the few that may be nearest to a query.

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

import numpy as np

from clicktower.schemas.release import Similarity
from clicktower.training.kernel.kernel_library import fields, library, require_memory

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
