"""The index of a release's vectors, and the recall of its searches against those that compare every document."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pkgutil import resolve_name
from typing import Any

import numpy as np

from clicktower.flows.releases.release_documents import CANDIDATES, EarlierRows, IndexSearch, Rows
from clicktower.flows.releases.release_folder import PublishConfig
from clicktower.schemas.errors import StageError
from clicktower.schemas.release import Similarity
from clicktower.schemas.stage import Progress
from clicktower.training.model.embedding import keys_at_once, scores_one_by_one
from clicktower.training.ranking.measure import score_blocks, top_k

DEEP = 10  # an index is also measured, and used, at this multiple of `recall_at` results

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
        build_ivf = resolve_name("clicktower.flows.releases.ivf_index:build_ivf")
        if built := build_ivf(
            folder, rows, vectors_ND, queries, config, list(zip(depths, limits_QK.T, strict=True)), facts, tried,
            similarity=similarity, progress=progress, earlier=earlier,
        ):  # fmt: skip
            return built
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
