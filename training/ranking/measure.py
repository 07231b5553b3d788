"""Evaluation of a system on a judged collection: re-ranking of judged documents, and search over the whole
collection.

Ranking only judged documents hides failures of retrieval, so recall, reciprocal rank and NDCG@10 over the full
collection are measured as well (docs/model.md section 7).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Protocol

import numpy as np

from clicktower.schemas.content_filters import ADULT_ENGLISH, adult_list, by_first_run, content_fate, shipped_list
from clicktower.schemas.documents import Documents, UnfitRows, read_documents
from clicktower.schemas.errors import StageError
from clicktower.schemas.judgments import Judged, Qrels, Run, read_qrels, read_queries
from clicktower.schemas.stage import Progress, silent
from clicktower.schemas.text_contract import keyed_digest, normalise, words
from clicktower.training.ranking.ndcg import CUTOFFS, Gain, descending_order, ndcg

LEFT_OUT = {"query_adult": "adult", "query_spam": "spam"}  # fates in a log. Nobody asked judged queries: none are bots


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class JudgedCollection:
    """A judged collection. Every query of `qrels` has a text in `queries`; `counts`: what was excluded."""

    document_ids: Sequence[str]
    titles: Sequence[str]
    row_of: Mapping[str, int]  # document id -> row
    tie_order: np.ndarray  # int64 [documents]: descending id
    queries: Mapping[str, str]
    qrels: Qrels
    counts: Mapping[str, int]
    unfit: Sequence[UnfitRows] = ()  # rows of the documents file that are no documents

    @property
    def searchable(self) -> list[str]:
        """The ids of the queries that have a word; the others have no results and count 0."""
        return [query_id for query_id in self.qrels if words(self.queries[query_id])]


def judged_qrels(
    queries: Mapping[str, str], qrels: Qrels, *, min_judged: int = 1, adult_terms: tuple[str, ...] | None = None
) -> tuple[Qrels, dict[str, int]]:
    """(the qrels of the queries to measure, counts of what was left out or united).

    Left out: queries without a text; those that are adult or spam, as they leave a log (content_filters, with
    `adult_terms` in place of the built-in list); then those with fewer than `min_judged` judgments. Queries of one
    normalised text are one, under the first id, with the judgments of all; of different grades of a document the lower
    median counts. Raises StageError if nothing is left to evaluate.
    """
    with_text = {query_id: grades for query_id, grades in qrels.items() if query_id in queries}
    if not with_text:
        raise StageError(
            f"None of the query ids of the {len(qrels):,} judged queries is in the queries file.",
            "Check that the queries and the qrels belong together.",
        )
    texts = [normalise(queries[query_id]) for query_id in with_text]
    # One after the other, since they are few: all at once would load pandas, by way of Arrow.
    adult = by_first_run(adult_terms or shipped_list(ADULT_ENGLISH).terms)
    fates = [content_fate(text, adult) for text in texts]
    fit = {query_id: text for query_id, text, fate in zip(with_text, texts, fates, strict=True) if fate not in LEFT_OUT}
    if not fit:
        raise StageError(
            f"All {len(with_text):,} judged queries are adult or spam, which leave the log too.",
            "Give other queries, or a list of adult words of your own (--adult-list).",
        )
    united, num_different = _unite(fit, with_text)
    kept = {query_id: grades for query_id, grades in united.items() if len(grades) >= min_judged}
    if not kept:
        most = max(len(grades) for grades in united.values())
        raise StageError(
            f"No query has min_judged = {min_judged} judgments; the most is {most}.",
            f"Set min_judged to {most} or below.",
        )
    if not any(words(queries[query_id]) for query_id in kept):
        raise StageError(
            f"None of the {len(kept):,} judged queries has a word: no system could find anything.",
            "Check that the queries file holds id<TAB>text lines.",
        )
    if not any(grade > 0 for grades in kept.values() for grade in grades.values()):
        raise StageError(
            f"None of the {sum(map(len, kept.values())):,} judgments of {len(kept):,} queries has a grade above 0, so"
            " every ranking would be worth 0.",
            "Give qrels with grades above 0 for relevant documents.",
        )
    return kept, {
        "queries_left_out_without_text": len(qrels) - len(with_text),
        **{f"queries_left_out_{what}": fates.count(fate) for fate, what in LEFT_OUT.items()},
        "queries_of_equal_text": len(fit) - len(united),
        "queries_left_out_below_min_judged": len(united) - len(kept),
        "judgments_of_several_grades": getattr(qrels, "several_grades", 0) + num_different,
    }


def _unite(texts: Mapping[str, str], qrels: Qrels) -> tuple[Qrels, int]:
    """(qrels with one query for each text, the number of judgments that differ within one)."""
    ids_of_text: dict[tuple[str, str], list[str]] = {}
    for query_id, text in texts.items():
        ids_of_text.setdefault((text, "" if text else query_id), []).append(query_id)  # blank texts are not equal
    united, num_different = {}, 0
    for query_ids in ids_of_text.values():
        first = query_ids[0]
        united[first] = qrels[first]
        if len(query_ids) > 1:
            grades: dict[str, list[int]] = {}
            for query_id in query_ids:
                for document_id, grade in qrels[query_id].items():
                    grades.setdefault(document_id, []).append(grade)
            united[first] = {document_id: median_low(of_pair) for document_id, of_pair in grades.items()}
            num_different += sum(len(set(of_pair)) > 1 for of_pair in grades.values())
    return united, num_different


def judged_collection(
    documents: Documents,
    queries: Mapping[str, str],
    qrels: Qrels,
    *,
    min_judged: int = 1,
    relevant_grade: int = 1,
    adult_terms: tuple[str, ...] | None = None,
) -> JudgedCollection:
    """The part of the judgments that can be evaluated on these documents.

    Excluded: what `judged_qrels` leaves out. Judged documents outside the collection stay in the qrels: a system cannot
    return them, and that counts against it. Raises StageError if nothing is left to evaluate.
    """
    kept, counts = judged_qrels(queries, qrels, min_judged=min_judged, adult_terms=adult_terms)
    row_of = {document_id: row for row, document_id in enumerate(documents.ids)}
    num_judgments = sum(len(grades) for grades in kept.values())
    num_unknown = sum(document_id not in row_of for grades in kept.values() for document_id in grades)
    if num_unknown == num_judgments:
        raise StageError(
            f"None of the {num_judgments:,} judged documents is among the {len(documents):,} documents.",
            "Check that the documents and the qrels belong together.",
        )
    return JudgedCollection(
        document_ids=documents.ids,
        titles=documents.titles,
        row_of=row_of,
        tie_order=descending_order(documents.ids),
        queries={query_id: queries[query_id] for query_id in kept},
        qrels=kept,
        unfit=documents.unfit,
        counts={
            "queries": len(kept),
            "judgments": num_judgments,
            "documents": len(documents),
            "documents_without_title": documents.num_untitled,
            **({"documents_skipped": sum(rows.count for rows in documents.unfit)} if documents.unfit else {}),
            "queries_of_one_grade": sum(len(set(grades.values())) == 1 for grades in kept.values()),
            "queries_without_relevant": sum(max(g.values()) < relevant_grade for g in kept.values()),
            "queries_without_words": sum(not words(queries[query_id]) for query_id in kept),
            "judgments_of_unknown_documents": num_unknown,
            **counts,
        },
    )


def collection_of(files: Judged, *, min_judged: int = 1) -> JudgedCollection:
    """The judged collection in three files. Raises UsageError, and StageError for files that do not join."""
    queries, qrels = read_queries(files.queries), read_qrels(files.qrels)
    documents, adult_terms = read_documents(files.documents), adult_list(files.adult_list).terms
    return judged_collection(documents, queries, qrels, min_judged=min_judged, adult_terms=adult_terms)


class System(Protocol):
    """A protocol for anything that scores every document of a collection for a query."""

    def scores(self, queries: Sequence[str]) -> np.ndarray:
        """float32 [queries, documents]; higher is better. Every query has at least one word."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """The evaluation protocol: NDCG at `cutoffs` of the judged documents, and the `top_k` best of the collection.

    A document of `relevant_grade` or more is relevant, for recall and reciprocal rank.
    """

    cutoffs: Sequence[int] = CUTOFFS
    gain: Gain = "exponential"
    relevant_grade: int = 1
    top_k: int = 100

    @property
    def measures(self) -> list[str]:
        """The names of the measures, as in `measure_runs`."""
        recall = [f"collection_recall@{at}" for at in sorted({min(10, self.top_k), self.top_k})]
        of_judged = [f"ndcg@{cutoff}" for cutoff in self.cutoffs]
        return [*of_judged, *recall, f"collection_mrr@{self.top_k}", "collection_ndcg@10"]


DEFAULT_RULES = Rules()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Measured:
    """A system's two runs and its per-query measures, float64 in the order of the qrels."""

    judged: Run  # the judged documents of each query
    retrieved: Run  # the best of the whole collection
    per_query: Mapping[str, np.ndarray]

    @property
    def values_QM(self) -> np.ndarray:
        return np.stack(list(self.per_query.values()), axis=1)


def measure(
    system: System,
    collection: JudgedCollection,
    rules: Rules = DEFAULT_RULES,
    *,
    what: str = "rank",
    progress: Progress = silent,
) -> Measured:
    """Both runs of a system and their measures, as in `measure_runs`."""
    searchable = collection.searchable
    judged: dict[str, dict[str, float]] = {query_id: {} for query_id in collection.qrels}
    retrieved: dict[str, dict[str, float]] = {query_id: {} for query_id in collection.qrels}
    texts = [collection.queries[query_id] for query_id in searchable]
    blocks = score_blocks(len(texts), len(collection.titles), lambda block: system.scores(texts[block]))
    for start, scores_BN in blocks:
        progress(what, start, len(texts))
        rows_BK, best_BK = top_k(scores_BN, rules.top_k, collection.tie_order)
        for i, query_id in enumerate(searchable[start : start + len(scores_BN)]):
            document_ids = [
                document_id for document_id in collection.qrels[query_id] if document_id in collection.row_of
            ]
            judged[query_id] = {d: float(scores_BN[i, collection.row_of[d]]) for d in document_ids}
            ids = [collection.document_ids[row] for row in rows_BK[i]]
            retrieved[query_id] = dict(zip(ids, best_BK[i].tolist(), strict=True))
    progress(what, len(texts), len(texts))
    return measure_runs(judged, retrieved, collection, rules)


def measure_runs(judged: Run, retrieved: Run, collection: JudgedCollection, rules: Rules = DEFAULT_RULES) -> Measured:
    """The measures of two runs: `judged` of judged documents, `retrieved` of the whole collection, best first.

    Measures: `ndcg@K` of the judged documents for each cutoff; over the full collection, from the k best documents,
    `collection_recall@10` and `@k`, `collection_mrr@k` (0 beyond rank k) and `collection_ndcg@10`.
    """
    k = rules.top_k
    of_judged = ndcg(collection.qrels, judged, rules.cutoffs, rules.gain)
    of_retrieved = ndcg(collection.qrels, retrieved, (10,), rules.gain)
    relevant_QK = np.zeros((len(collection.qrels), k), bool)  # whether the result at each rank is relevant
    num_relevant_Q = np.zeros(len(collection.qrels), np.int64)
    for row, (query_id, grades) in enumerate(collection.qrels.items()):
        relevant = {document_id for document_id, grade in grades.items() if grade >= rules.relevant_grade}
        num_relevant_Q[row] = len(relevant)
        for rank, document_id in enumerate(retrieved[query_id]):
            relevant_QK[row, rank] = document_id in relevant
    ranks = sorted({min(10, k), k})
    recalls = [relevant_QK[:, :rank].sum(axis=1) / np.maximum(num_relevant_Q, 1) for rank in ranks]
    reciprocal_rank = np.where(relevant_QK.any(axis=1), 1.0 / (relevant_QK.argmax(axis=1) + 1), 0.0)
    values = [*(of_judged[cutoff] for cutoff in rules.cutoffs), *recalls, reciprocal_rank, of_retrieved[10]]
    return Measured(judged=judged, retrieved=retrieved, per_query=dict(zip(rules.measures, values, strict=True)))


BLOCK_SCORES = 4_000_000  # scores held at once: 16 MB


def score_blocks(
    num_queries: int, num_documents: int, score: Callable[[slice], np.ndarray]
) -> Iterator[tuple[int, np.ndarray]]:
    """(first query, scores_BN) of consecutive blocks of queries against all documents, in constant memory.

    Suffixes: B queries of a block, Q all queries, N documents, K results of a query.
    """
    block = max(1, BLOCK_SCORES // max(1, num_documents))
    for start in range(0, num_queries, block):
        yield start, score(slice(start, min(start + block, num_queries)))


def top_k(scores_BN: np.ndarray, k: int, tie_order: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(rows, scores) of the k best documents of each query, best first: int64 and float32 [B, min(k, N)].

    Equal scores are ordered by `tie_order` (a place of its own for each document, smaller first; the row if
    not given), also at the edge of the k best. Raises ValueError for a NaN.
    """
    scores_BN = np.ascontiguousarray(scores_BN, np.float32) + np.float32(0)  # -0.0 becomes 0.0
    if np.isnan(scores_BN).any():
        raise ValueError("a score is not a number (NaN), so it has no place in a ranking")
    num_documents = scores_BN.shape[1]
    place = np.arange(num_documents) if tie_order is None else np.asarray(tie_order)
    rows_BK = np.empty((len(scores_BN), min(k, num_documents)), np.int64)
    for rows_K, scores_N in zip(rows_BK, scores_BN, strict=True):
        rows = _best_rows(scores_N, len(rows_K), place)
        rows_K[:] = rows[np.lexsort((place[rows], -scores_N[rows]))]
    return rows_BK, np.take_along_axis(scores_BN, rows_BK, axis=1)


def _best_rows(scores_N: np.ndarray, k: int, place: np.ndarray) -> np.ndarray:
    """The k best documents of a query, unordered."""
    kth = scores_N.min(initial=np.inf)
    above = scores_N[scores_N > kth]  # of a query by words few are, and partition is slow with equal numbers
    if len(above) >= k > 0:
        kth = np.partition(above, len(above) - k)[len(above) - k]
    better, equal = np.flatnonzero(scores_N > kth), np.flatnonzero(scores_N == kth)
    needed = k - len(better)
    if 0 < needed < len(equal):
        equal = equal[np.argpartition(place[equal], needed - 1)]
    return np.concatenate([better, equal[:needed]])


class RandomOrder:
    """Random scores that depend on the query, the document's id and the seed alone, so that runs are comparable."""

    def __init__(self, document_ids: Sequence[str], *, seed: int = 0) -> None:
        self._seed = seed
        self._documents_N = np.array([self._hash(i) for i in document_ids], np.uint64)

    def scores(self, queries: Sequence[str]) -> np.ndarray:
        """Uniform in [0, 1), float32 [queries, documents]."""
        queries_B = np.array([self._hash(query) for query in queries], np.uint64)
        mixed_BN = queries_B[:, None] ^ self._documents_N
        # The finaliser of SplitMix64: hashing each pair anew would take minutes.
        mixed_BN = (mixed_BN ^ (mixed_BN >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed_BN = (mixed_BN ^ (mixed_BN >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return ((mixed_BN ^ (mixed_BN >> np.uint64(31))) >> np.uint64(40)).astype(np.float32) / np.float32(1 << 24)

    def _hash(self, text: str) -> int:
        return int.from_bytes(keyed_digest(text, self._seed, b"random order"), "big")
