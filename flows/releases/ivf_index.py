"""An index of a release's vectors in partitions, of which a search visits as few as reach the required recall.

The partitions are by k-means on a sample, spherical for the cosine (nearest searches them).
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import safetensors.numpy

from clicktower.flows.config.guard_rules import PublishConfig
from clicktower.flows.releases.release_documents import (
    IVF,
    EarlierRows,
    IndexSearch,
    RecallQueries,
    Rows,
    read_ivf,
    recall,
)
from clicktower.schemas import storage
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


# Partitions to visit, in steps, until the recall is good enough.
_NUM_PROBES = (4, 8, 12, 16, 20, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 256, 320, 384, 512, 640, 768, 1024)
_MOST_SHARE = 0.5  # of all partitions: visiting more would save nothing
# Of the texts may be new, and the number of partitions be off by so much, before the centres are made anew.
_MOST_NEW = 0.2


def build_ivf(
    folder: str,
    rows: Rows,
    vectors_ND: np.ndarray,
    queries: RecallQueries,
    config: PublishConfig,
    limits: Sequence[tuple[int, np.ndarray]],
    facts: dict[str, Any],
    tried: list[dict[str, Any]],
    *,
    similarity: Similarity,
    progress: Progress,
    earlier: EarlierRows | None,
) -> tuple[dict[str, Any], IndexSearch] | None:
    """As make_release.build_index; None, and no file, if no number of partitions reaches the recall.

    `limits`: (a number of results, the exact score of each query's last one). `tried` gets every attempt.
    """
    for partitions, num_new in _partitions(rows, config, similarity, earlier, progress):
        tensors = {
            "centres": partitions.centres_PD,
            "partition_of": np.ascontiguousarray(partitions.of_N[rows.text_of_N]),
        }
        storage.write_atomic(storage.join(folder, IVF), safetensors.numpy.save(tensors))
        search = IndexSearch(vectors_ND, read_ivf(folder), similarity=similarity)
        num_partitions = len(partitions.centres_PD)
        steps: list[dict[str, Any]] = []
        tried.clear()
        for depth, limits_Q in limits:
            progress(f"measure recall@{depth}", 0, None)
            least = steps[-1]["num_probes"] if steps else 1  # more results need no fewer partitions
            step = _fewest_partitions(search, queries, limits_Q, depth, config.min_recall, num_partitions, least, tried)
            if step is None:
                break
            steps.append(step)
        if len(steps) == len(limits):
            search.steps = steps
            record = {"kind": "ivf", "file": IVF, "num_partitions": num_partitions, "seed": config.seed}
            record |= {**steps[0], "steps": steps, "new_texts": num_new, **facts, "tried": tried}
            return record, search
    storage.remove(storage.join(folder, IVF))
    return None


def _partitions(
    rows: Rows, config: PublishConfig, similarity: Similarity, earlier: EarlierRows | None, progress: Progress
) -> Iterator[tuple[Partitions, int]]:
    """(partitions of the texts, the number of texts that are new since their centres were made): first those of the
    earlier release, if they fit, with each new text in that of its nearest centre; then new ones.
    """
    num_texts = len(rows.vectors_TD)
    if earlier and earlier.index["kind"] == "ivf" and earlier.index["seed"] == config.seed:
        partitions, is_new = read_ivf(earlier.folder), earlier.row_of_T < 0
        num_new = int(is_new.sum()) + earlier.index["new_texts"]
        size = len(partitions.centres_PD) / num_partitions_of(num_texts)
        if num_new <= _MOST_NEW * num_texts and 1 - _MOST_NEW <= size <= 1 + _MOST_NEW:
            progress("put new titles into the index", 0, None)
            of_T = partitions.of_N[earlier.row_of_T]
            of_T[is_new] = nearest_centre(rows.vectors_TD[is_new], partitions.centres_PD, similarity)
            yield Partitions(centres_PD=partitions.centres_PD, of_N=of_T), num_new
    yield partition(rows.vectors_TD, similarity=similarity, seed=config.seed, progress=progress), 0


def _fewest_partitions(
    search: IndexSearch,
    queries: RecallQueries,
    limits_Q: np.ndarray,
    k: int,
    min_recall: float,
    num_partitions: int,
    least: int,
    tried: list[dict[str, Any]],
) -> dict[str, Any] | None:
    """The fewest partitions, `least` or more, that reach the recall at k results, or None; every attempt is added to
    `tried`.
    """
    probes = [number for number in _NUM_PROBES if number <= max(1.0, num_partitions * _MOST_SHARE)]
    # A search whose partitions hold fewer documents than it ranks compares all.
    room = 2 * max(k, queries.num_nearest) * num_partitions / len(search)
    options = [number for number in probes if number >= max(least, room)] or probes[-1:]
    reached: dict[int, float] = {}

    def is_enough(num_probes: int) -> bool:
        reached[num_probes] = recall(queries.scores(search, k, num_probes), limits_Q, k)
        tried.append({"recall_at": k, "num_probes": num_probes, "recall": reached[num_probes]})
        return reached[num_probes] >= min_recall

    place = bisect_left(options, True, key=is_enough)  # more partitions find no less
    if place == len(options):
        return None
    return {"recall_at": k, "num_probes": options[place], "recall": reached[options[place]]}
