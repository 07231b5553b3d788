"""Partitions of vectors by k-means on a sample, spherical for the cosine (nearest searches them)."""

import numpy as np

from clicktower.schemas.release import Similarity
from clicktower.schemas.stage import Progress, silent
from clicktower.training.model.embedding import half_squares
from clicktower.training.ranking.nearest import Partitions

_SAMPLE_OF_PARTITION = 64
_ROUNDS = 10


_BLOCK = 1_024  # vectors compared with all centres at once


def num_partitions_of(num_vectors: int) -> int:
    """2 √N."""
    return max(1, round(2 * num_vectors**0.5))


def partition(
    vectors_ND: np.ndarray, *, similarity: Similarity = "cosine", seed: int = 0, progress: Progress = silent
) -> Partitions:
    """Partitions of vectors, deterministic for the same vectors and seed (on one kind of processor)."""
    num_partitions = num_partitions_of(len(vectors_ND))
    rng = np.random.default_rng(seed)
    sample = np.sort(rng.permutation(len(vectors_ND))[: num_partitions * _SAMPLE_OF_PARTITION])
    sample_SD = np.ascontiguousarray(vectors_ND[sample], np.float32)
    centres_PD = sample_SD[np.sort(rng.permutation(len(sample_SD))[:num_partitions])]
    steps = _ROUNDS + 1
    for round_number in range(_ROUNDS):
        progress("make the index", round_number, steps)
        centres_PD = _move_centres(centres_PD, sample_SD, nearest_centre(sample_SD, centres_PD, similarity), similarity)
    progress("make the index", _ROUNDS, steps)
    of_N = nearest_centre(vectors_ND, centres_PD, similarity)
    progress("make the index", steps, steps)
    return Partitions(centres_PD=centres_PD, of_N=of_N)


def _move_centres(
    centres_PD: np.ndarray, sample_SD: np.ndarray, of_S: np.ndarray, similarity: Similarity
) -> np.ndarray:
    """Each centre at the mean of its vectors, by cosine in its direction; one without any stays."""
    order = np.argsort(of_S, kind="stable")
    present, starts, counts = np.unique(of_S[order], return_index=True, return_counts=True)
    sums = np.add.reduceat(sample_SD[order], starts, axis=0)
    moved_PD = centres_PD.copy()
    if similarity == "euclidean":
        moved_PD[present] = sums / counts[:, None].astype(np.float32)
    else:
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        moved_PD[present] = np.divide(sums, lengths, out=centres_PD[present].copy(), where=lengths > 0)
    return moved_PD


def nearest_centre(vectors_ND: np.ndarray, centres_PD: np.ndarray, similarity: Similarity) -> np.ndarray:
    """The number of the centre that is nearest to each vector, int32 [N]."""
    of_N = np.empty(len(vectors_ND), np.int32)
    turned_DP = np.ascontiguousarray(centres_PD.T)
    half_square_P = half_squares(centres_PD) if similarity == "euclidean" else None
    for start in range(0, len(vectors_ND), _BLOCK):
        block = slice(start, start + _BLOCK)
        key_BP = vectors_ND[block] @ turned_DP
        if half_square_P is not None:
            key_BP -= half_square_P
        of_N[block] = key_BP.argmax(axis=1)
    return of_N
