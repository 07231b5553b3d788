"""Nearest-neighbour search in memory: over all vectors, or over the partitions nearest to the query (IVF).

The metric is the cosine of vectors of length 1, or the distance (schemas.release). A search compares the query with
every centre of partitions (ivf_index) and then with all vectors of the nearest ones. Equal vectors are always in one
partition, so documents with the same title are found together.

Comparing takes two steps: a scan over all vectors of those partitions selects the few that may be among the k nearest,
and their scores are computed one by one. The kernel scans 8-bit copies (kernel_library), NumPy the vectors themselves;
the result is the same.

Suffixes: N vectors, D dimensions, P partitions, K results.
"""

from dataclasses import dataclass

import numpy as np

from clicktower.schemas.release import Similarity
from clicktower.training.kernel.kernel_library import Int8Rows, status
from clicktower.training.model.embedding import half_squares, scores_one_by_one

# Rows of a matrix product may round differently, so equal vectors get equal scores only if the few best are computed
# again, each alike. In parts of |q| |v|:
_ROUNDING = np.float32(1e-5)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Partitions:
    """Partitions of vectors: the centre of each partition, and the partition of each vector."""

    centres_PD: np.ndarray  # float32, by cosine of length 1
    of_N: np.ndarray  # int32

    def require_of(self, vectors_ND: np.ndarray) -> None:
        """Raises ValueError if they are not of these vectors."""
        (num_partitions, dimensions), of_N = self.centres_PD.shape, self.of_N
        fits = of_N.shape == vectors_ND.shape[:1] and dimensions == vectors_ND.shape[1]
        if not fits or of_N.min() < 0 or of_N.max() >= num_partitions:
            raise ValueError("the partitions are not of these vectors")


class Nearest:
    """A search over vectors in memory. Safe for many threads."""

    def __init__(
        self,
        vectors_ND: np.ndarray,
        partitions: Partitions | None = None,
        *,
        similarity: Similarity = "cosine",
        compiled: bool | None = None,
    ) -> None:
        """The vectors are copied if there are partitions. Raises ValueError for partitions of other vectors.

        compiled: whether the kernel scans, or NumPy; by default the kernel, if there is one.
        """
        self._partitions, self._similarity = partitions, similarity
        self._vectors_ND = np.ascontiguousarray(vectors_ND, np.float32)
        if partitions is not None:
            partitions.require_of(vectors_ND)
            of_N, num_partitions = partitions.of_N, len(partitions.centres_PD)
            self._row_at = np.argsort(of_N, kind="stable").astype(np.int32)  # one partition's vectors are contiguous
            self._place_of = np.empty(len(of_N), np.int32)
            self._place_of[self._row_at] = np.arange(len(of_N), dtype=np.int32)
            self._vectors_ND = self._vectors_ND[self._row_at]
            self._starts = np.concatenate([[0], np.cumsum(np.bincount(of_N, minlength=num_partitions))])
            self._centre_scan = _Float32Rows(partitions.centres_PD, similarity)
        if compiled is None:
            compiled = status().available
        self._scan = (Int8Rows if compiled else _Float32Rows)(self._vectors_ND, similarity)

    def __len__(self) -> int:
        return len(self._vectors_ND)

    def best(
        self, query_D: np.ndarray, k: int, num_probes: int | None = None, among: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """(rows, scores) of the k nearest vectors, int64 and float32, unordered; more if several tie for place k.

        num_probes: the number of partitions to visit; all vectors are compared without it, or if those partitions hold
        fewer than k. among: the rows to compare, all of them; None: any.
        """
        starts, ends = np.array([0]), np.array([len(self)])
        if among is not None:
            places = among if self._partitions is None else np.sort(self._place_of[among])
            gaps = np.flatnonzero(np.diff(places) > 1)
            starts, ends = places[np.append(0, gaps + 1)], places[np.append(gaps, len(places) - 1)] + 1
        elif self._partitions is not None and num_probes is not None:
            nearest = self._nearest_partitions(query_D, num_probes)
            if (self._starts[nearest + 1] - self._starts[nearest]).sum() >= k:
                starts, ends = self._starts[nearest], self._starts[nearest + 1]
        places = self._scan.candidates(query_D, k, starts, ends)
        scores = scores_one_by_one(self._similarity, self._vectors_ND[places], query_D)
        if k < len(scores):
            kept = scores >= _kth(scores, k)
            places, scores = places[kept], scores[kept]
        rows = places if self._partitions is None else self._row_at[places]
        return rows.astype(np.int64, copy=False), scores

    def vectors_of(self, rows: np.ndarray) -> np.ndarray:
        """Some vectors, float32 [rows, D]."""
        return self._vectors_ND[rows if self._partitions is None else self._place_of[rows]]

    def scores_of(self, query_D: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """The scores of some vectors, float32 [rows], as in `best`."""
        return scores_one_by_one(self._similarity, self.vectors_of(rows), query_D)

    def _nearest_partitions(self, query_D: np.ndarray, num_probes: int) -> np.ndarray:
        """The numbers of the partitions to visit, nearest first."""
        to_centres = self._centre_scan.keys(query_D, slice(None))
        num_probes = min(num_probes, len(to_centres))
        nearest = np.argpartition(to_centres, len(to_centres) - num_probes)[len(to_centres) - num_probes :]
        return nearest[np.argsort(-to_centres[nearest])]


class _Float32Rows:
    """A scan of the vectors as they are, by NumPy."""

    def __init__(self, vectors_ND: np.ndarray, similarity: Similarity) -> None:
        self._vectors_ND = vectors_ND
        self._half_square_N = half_squares(vectors_ND) if similarity == "euclidean" else None
        self._longest = 1.0 if self._half_square_N is None else float(np.sqrt(2 * self._half_square_N.max()))

    def candidates(self, query_D: np.ndarray, k: int, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """As Int8Rows.candidates."""
        ranges = [slice(start, end) for start, end in sorted(zip(starts.tolist(), ends.tolist(), strict=True))]
        places = np.concatenate([np.arange(part.start, part.stop) for part in ranges])
        keys = np.concatenate([self.keys(query_D, part) for part in ranges])
        if k >= len(keys):
            return places
        rounding = _ROUNDING
        if self._half_square_N is not None:  # all terms are below (|q| + |v|)²
            rounding = np.float32(_ROUNDING * (np.linalg.norm(query_D) + self._longest) ** 2)
        return places[keys >= _kth(keys, k) - rounding]

    def keys(self, query_D: np.ndarray, part: slice) -> np.ndarray:
        """Sort keys of vectors: the order of the scores up to rounding."""
        products = self._vectors_ND[part] @ query_D
        return products if self._half_square_N is None else products - self._half_square_N[part]


def _kth(values: np.ndarray, k: int) -> np.float32:
    """The k-th largest."""
    return np.partition(values, len(values) - k)[len(values) - k]
