"""Search over the documents of a release: exact, or through partitions whose recall was measured (IVF).

An index that reached the required recall in `publish` is used for as many results as it was measured at (`recall_at`
and ten times that); any other request compares the query with every document. Indices that earlier versions made in
the table itself (kinds ivf-flat and hnsw) are ignored: all vectors are compared, which is exact, and up to 100,000
documents faster than those indices were.

ivf.safetensors   centres: float32 [partitions, dimensions]; partition_of: int32 [documents], in the table's order
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import safetensors
import safetensors.numpy

from flows.releases.release_table import Rows
from schemas import storage
from schemas.errors import StageError
from schemas.release import Similarity
from schemas.stage import Progress, silent
from training.ranking.embedding import keys_at_once, scores_one_by_one
from training.ranking.measure import score_blocks, top_k
from training.ranking.nearest import Nearest, Partitions, partition

IndexKind = Literal["none", "ivf"]

FILE = "ivf.safetensors"
DEEP = 10  # an index is also measured, and used, at so many times `recall_at` results
# Partitions looked into, step by step, until the recall is good enough.
_NUM_PROBES = (4, 8, 12, 16, 20, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 256, 320, 384, 512)
_MOST_SHARE = 0.5  # of all partitions: looking into more would save nothing


class IndexSearch:
    """A search over the documents of a release in memory, as recorded in the release."""

    def __init__(
        self, vectors_ND: np.ndarray, index: Mapping[str, Any], partitions: Partitions | None, similarity: Similarity
    ) -> None:
        """Raises ValueError for partitions of other vectors."""
        self._nearest = Nearest(vectors_ND, partitions, similarity=similarity)
        self._steps = [(step["recall_at"], step["num_probes"]) for step in index.get("steps", ())]

    def best(self, query_D: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """(rows, scores) of the k nearest documents to a query's vector, in no order; more where several are k-th."""
        return self._nearest.best(query_D, k, next((probes for at, probes in self._steps if k <= at), None))

    def exact(self, query_D: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """As `best`, with every document compared."""
        return self._nearest.best(query_D, k)

    def scores_of(self, query_D: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """float32 [rows], exact."""
        return self._nearest.scores_of(query_D, rows)

    def vectors_of(self, rows: np.ndarray) -> np.ndarray:
        """float32 [rows, dimensions]."""
        return self._nearest.vectors_of(rows)


def open_search(folder: str, index: Mapping[str, Any], vectors_ND: np.ndarray, similarity: Similarity) -> IndexSearch:
    """The search of a release, from its table's vectors. Raises StageError where its index cannot be read."""
    try:
        return IndexSearch(vectors_ND, index, _read(folder) if index["kind"] == "ivf" else None, similarity)
    except (OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError):
        raise StageError(
            asked=f"the index of {folder} was to be opened",
            found=f"its {FILE} is missing, damaged or of other documents",
            follows="its answers could not be trusted",
            do="run `clicktower verify` on it, and publish again",
        ) from None


def build_index(
    folder: str,
    rows: Rows,
    kind: IndexKind,
    queries_QD: np.ndarray,
    *,
    similarity: Similarity,
    recall_at: int,
    min_recall: float,
    seed: int = 0,
    progress: Progress = silent,
) -> tuple[dict[str, Any], IndexSearch]:
    """(the index as recorded in a release, the search as `open_search` will open it).

    The index looks into as few partitions as reach `min_recall` against exact search, at `recall_at` results and at ten
    times as many; if no number of them does, it is left aside, the search is exact, and `note` says so. The recall is
    measured on the given queries. Raises StageError if even the exact search misses, which means that
    the vectors are not what was encoded.
    """
    vectors_ND = rows.vectors_TD[rows.text_of_N]
    depths = sorted({min(depth, len(rows)) for depth in (recall_at, DEEP * recall_at)})
    limits_QK = kth_scores(rows, queries_QD, depths, similarity)
    facts = {"min_recall": min_recall, "num_queries": len(queries_QD)}
    tried: list[dict[str, Any]] = []
    if kind == "ivf":
        made = partition(rows.vectors_TD, similarity=similarity, seed=seed, progress=progress)
        _write(folder, Partitions(centres_PD=made.centres_PD, of_N=made.of_N[rows.text_of_N]))
        partitions = _read(folder)
        nearest = Nearest(vectors_ND, partitions, similarity=similarity)
        steps = []
        for depth, limits_Q in zip(depths, limits_QK.T, strict=True):
            progress(f"measure recall@{depth}", 0, None)
            found = _least(nearest, queries_QD, limits_Q, depth, min_recall, len(partitions.centres_PD), tried)
            steps += [found] if found else []
        if len(steps) == len(depths):
            record = {"kind": "ivf", "file": FILE, "num_partitions": len(partitions.centres_PD), **steps[0],
                      "steps": steps, **facts, "tried": tried}  # fmt: skip
            return record, IndexSearch(vectors_ND, record, partitions, similarity)
        storage.remove(storage.join(folder, FILE))
    exact = IndexSearch(vectors_ND, {}, None, similarity)
    reached = recall([exact.best(query, depths[0])[1] for query in queries_QD], limits_QK[:, 0], depths[0])
    if reached < min_recall:
        raise StageError(asked=f"recall@{depths[0]} of the search was to be at least {min_recall}",
                         found=f"even exact search found only {reached:.3f} of the nearest documents",
                         follows="what is live stays as it is", do="check the disk, and publish again")  # fmt: skip
    record = {"kind": "none", "recall": reached, "recall_at": recall_at, **facts, "tried": tried}
    if tried:
        best = max(attempt["recall"] for attempt in tried)
        record["note"] = f"the {kind} index found at most {best:.3f} of the nearest: searches are exact, and slower"
    return record, exact


def _least(
    nearest: Nearest,
    queries_QD: np.ndarray,
    limits_Q: np.ndarray,
    k: int,
    min_recall: float,
    num_partitions: int,
    tried: list[dict[str, Any]],
) -> dict[str, Any] | None:
    """The fewest partitions that reach the recall at k results, or None; every attempt is added to `tried`."""
    for num_probes in _NUM_PROBES:
        if num_probes > max(1.0, num_partitions * _MOST_SHARE):
            break
        scores = [nearest.best(query, k, num_probes)[1] for query in queries_QD]
        attempt = {"recall_at": k, "num_probes": num_probes, "recall": recall(scores, limits_Q, k)}
        tried.append(attempt)
        if attempt["recall"] >= min_recall:
            return attempt
    return None


def _write(folder: str, partitions: Partitions) -> None:
    tensors = {"centres": partitions.centres_PD, "partition_of": np.ascontiguousarray(partitions.of_N)}
    storage.write_atomic(storage.join(folder, FILE), safetensors.numpy.save(tensors))


def _read(folder: str) -> Partitions:
    tensors = safetensors.numpy.load(storage.read_bytes(storage.join(folder, FILE)))
    return Partitions(centres_PD=tensors["centres"], of_N=tensors["partition_of"])


def kth_scores(rows: Rows, queries_QD: np.ndarray, depths: Sequence[int], similarity: Similarity) -> np.ndarray:
    """The exact score of each query's k-th nearest document, for each k of `depths`, float32 [queries, depths].

    All documents are compared at once, which rounds; the scores of the nearest are then computed as searches do it.
    """
    of_texts, limits = keys_at_once(similarity, rows.vectors_TD), []

    def keys(block: slice) -> np.ndarray:
        return of_texts(queries_QD[block])[:, rows.text_of_N]

    for start, key_BN in score_blocks(len(queries_QD), len(rows), keys):
        nearest_BK, _ = top_k(key_BN, max(depths))
        for query_D, nearest_K in zip(queries_QD[start : start + len(key_BN)], nearest_BK, strict=True):
            score_K = scores_one_by_one(similarity, rows.vectors_TD[rows.text_of_N[nearest_K]], query_D)
            limits.append(np.sort(score_K)[::-1][[depth - 1 for depth in depths]])
    return np.stack(limits)


def recall(scores: Sequence[np.ndarray], limits_Q: np.ndarray, k: int) -> float:
    """The share of the k nearest that searches found. Any document as near as the k-th counts: titles repeat."""
    found = [min(k, int((found >= limit).sum())) for found, limit in zip(scores, limits_Q, strict=True)]
    return sum(found) / (k * len(found))
