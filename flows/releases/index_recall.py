"""The index of a release's vectors, and the recall of its searches against those that compare every document."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import safetensors.numpy

from clicktower.flows.releases.release_documents import CANDIDATES, IVF, EarlierRows, IndexSearch, Rows, read_ivf
from clicktower.flows.releases.release_folder import PublishConfig
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError
from clicktower.schemas.release import Similarity
from clicktower.schemas.stage import Progress
from clicktower.training.model.embedding import keys_at_once, scores_one_by_one
from clicktower.training.ranking.measure import score_blocks, top_k
from clicktower.training.ranking.nearest import Partitions, nearest_centre, num_partitions_of, partition

DEEP = 10  # an index is also measured, and used, at this multiple of `recall_at` results
# Partitions to visit, in steps, until the recall is good enough.
_NUM_PROBES = (4, 8, 12, 16, 20, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 256, 320, 384, 512, 640, 768, 1024)
_MOST_SHARE = 0.5  # of all partitions: visiting more would save nothing
_MOST_NEW = (
    0.2  # of the texts may be new, and the number of partitions be off by so much, before the centres are made anew
)

# (the number of a query, the rows nearest to it, how near rows are) -> the scores by which a search ranks documents.
Rank = Callable[[int, np.ndarray, Callable[[np.ndarray], np.ndarray]], np.ndarray]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RecallQueries:
    """Queries on which searches are measured. `rank`: of a model whose words or terms have a share of a score."""

    vectors_QD: np.ndarray
    rank: Rank | None = None

    def __len__(self) -> int:
        return len(self.vectors_QD)

    @property
    def num_nearest(self) -> int:
        """How many documents a search ranks at least."""
        return CANDIDATES if self.rank else 1

    def scores(self, search: IndexSearch, k: int, num_probes: int | None = None) -> list[np.ndarray]:
        """The scores of each query's k best documents, and of some others."""
        depth = max(k, self.num_nearest)
        ranked = []
        for number, query_D in enumerate(self.vectors_QD):
            rows, nearness = search.best(query_D, depth, num_probes, results=k)
            ranked.append(self.rank(number, rows, partial(search.scores_of, query_D)) if self.rank else nearness)
        return ranked


def build_index(
    folder: str,
    rows: Rows,
    vectors_ND: np.ndarray,
    queries: RecallQueries,
    config: PublishConfig,
    *,
    similarity: Similarity,
    progress: Progress,
    earlier: EarlierRows | None = None,
) -> tuple[dict[str, Any], IndexSearch]:
    """(the index as recorded in a release, the search that a release has).

    The index visits as few partitions as reach `min_recall` against exact search, at `recall_at` results and at ten
    times as many; if no number of partitions does, the search is exact, and `note` says so. Recall is measured on the
    given queries. vectors_ND: of the documents, as `write_rows` read them. earlier: a release whose partitions are
    continued while few texts are new (`new_texts` of the record counts them since the centres were made).

    Raises StageError if even the exact search misses documents, which means that the vectors are not those that were
    encoded.
    """
    depths = sorted({min(depth, len(rows)) for depth in (config.recall_at, DEEP * config.recall_at)})
    limits_QK = _kth_scores(rows, queries, depths, similarity)
    facts: dict[str, Any] = {"min_recall": config.min_recall, "num_queries": len(queries)}
    if queries.rank:
        facts["candidates"] = CANDIDATES
    tried: list[dict[str, Any]] = []
    if config.index == "ivf" or (config.index == "auto" and len(rows) > config.index_above):
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
            for depth, limits_Q in zip(depths, limits_QK.T, strict=True):
                progress(f"measure recall@{depth}", 0, None)
                least = steps[-1]["num_probes"] if steps else 1  # more results need no fewer partitions
                step = _fewest_partitions(
                    search, queries, limits_Q, depth, config.min_recall, num_partitions, least, tried
                )
                if step is None:
                    break
                steps.append(step)
            if len(steps) == len(depths):
                search.steps = steps
                record = {"kind": "ivf", "file": IVF, "num_partitions": num_partitions, "seed": config.seed}
                record |= {**steps[0], "steps": steps, "new_texts": num_new, **facts, "tried": tried}
                return record, search
        storage.remove(storage.join(folder, IVF))
    exact = IndexSearch(vectors_ND, similarity=similarity)
    reached = recall(queries.scores(exact, depths[0]), limits_QK[:, 0], depths[0])
    if reached < config.min_recall:
        raise StageError(
            f"Even exact search has a recall@{depths[0]} of only {reached:.3f}, below {config.min_recall}. What is"
            " live stays as it is.",
            "Check the disk, and publish again.",
        )
    record = {"kind": "none", "recall": reached, "recall_at": config.recall_at, **facts, "tried": tried}
    if tried:
        best = max(attempt["recall"] for attempt in tried)
        record["note"] = f"the ivf index found at most {best:.3f} of the nearest: searches are exact, and slower"
    return record, exact


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


def _kth_scores(rows: Rows, queries: RecallQueries, depths: Sequence[int], similarity: Similarity) -> np.ndarray:
    """The exact score of each query's k-th best document, for each k of `depths`, float32 [queries, depths].

    All documents are compared at once, with rounding; the scores of the nearest are then recomputed as searches do.
    """
    of_texts, limits = keys_at_once(similarity, rows.vectors_TD), []
    num_ranked = [max(depth, queries.num_nearest) for depth in depths]

    def keys(block: slice) -> np.ndarray:
        return of_texts(queries.vectors_QD[block])[:, rows.text_of_N]

    for start, key_BN in score_blocks(len(queries), len(rows), keys):
        nearest_BK, _ = top_k(key_BN, min(max(num_ranked), len(rows)))
        for number, nearest_K in enumerate(nearest_BK, start):
            near = partial(_nearness, rows, similarity, queries.vectors_QD[number])
            rank = partial(queries.rank, number) if queries.rank else lambda rows_K, near: near(rows_K)
            scores = {size: rank(nearest_K[:size], near) for size in set(num_ranked)}
            limits.append([np.sort(scores[size])[-depth] for size, depth in zip(num_ranked, depths, strict=True)])
    return np.array(limits)


def _nearness(rows: Rows, similarity: Similarity, query_D: np.ndarray, rows_K: np.ndarray) -> np.ndarray:
    return scores_one_by_one(similarity, rows.vectors_TD[rows.text_of_N[rows_K]], query_D)


def recall(scores: Sequence[np.ndarray], limits_Q: np.ndarray, k: int) -> float:
    """The share of the k nearest that searches found. Any document as near as the k-th counts, since titles repeat."""
    hits = [min(k, int((hits >= limit).sum())) for hits, limit in zip(scores, limits_Q, strict=True)]
    return sum(hits) / (k * len(hits))
