"""Documents, queries and judgments put together: what can be measured, and how much had to be left out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from schemas.documents import Documents
from schemas.errors import StageError
from schemas.judgments import Qrels
from schemas.words import words
from training.ranking.ndcg import descending_order


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class JudgedCollection:
    """Every query of `qrels` has a text in `queries`; `counts` says what was left out or tells nothing."""

    document_ids: Sequence[str]
    titles: Sequence[str]
    row_of: Mapping[str, int]  # document id -> row
    tie_order: np.ndarray  # int64 [documents]: descending id
    queries: Mapping[str, str]
    qrels: Qrels
    counts: Mapping[str, int]

    @property
    def searchable(self) -> list[str]:
        """The ids of the queries that have a word; the others have no results and count 0."""
        return [query_id for query_id in self.qrels if words(self.queries[query_id])]


def judged_collection(
    documents: Documents, queries: Mapping[str, str], qrels: Qrels, *, min_judged: int = 1, relevant_grade: int = 1
) -> JudgedCollection:
    """The part of the judgments that can be measured on these documents.

    Left out: queries without a text, and queries with fewer than `min_judged` judgments. Judged documents
    that are not in the collection stay in the qrels: a system cannot return them, and that is counted
    against it. Raises StageError where nothing is left to measure.
    """
    asked = f"{len(qrels):,} judged queries were to be measured on {len(documents):,} documents"
    known = {query_id: grades for query_id, grades in qrels.items() if query_id in queries}
    if not known:
        raise StageError(asked=asked, found="none of the qrels' query ids is in the queries file",
                         follows="there would be nothing to measure",
                         do="check that the queries and the qrels belong together")  # fmt: skip
    kept = {query_id: grades for query_id, grades in known.items() if len(grades) >= min_judged}
    if not kept:
        most = max(len(grades) for grades in known.values())
        raise StageError(
            asked=asked,
            found=f"no query has min_judged = {min_judged} judgments; the most is {most}",
            follows="there would be nothing to measure",
            do=f"set min_judged to {most} or below",
        )
    if not any(words(queries[query_id]) for query_id in kept):
        raise StageError(asked=asked, found=f"none of the {len(kept):,} queries has a word",
                         follows="no system could find anything, and every one would score 0",
                         do="check that the queries file holds id<TAB>text lines")  # fmt: skip
    row_of = {document_id: row for row, document_id in enumerate(documents.ids)}
    num_judgments = sum(len(grades) for grades in kept.values())
    num_unknown = sum(document_id not in row_of for grades in kept.values() for document_id in grades)
    if num_unknown == num_judgments:
        raise StageError(asked=asked, found=f"none of the {num_judgments:,} judged documents is among them",
                         follows="every system would score 0",
                         do="check that the documents and the qrels belong together")  # fmt: skip
    return JudgedCollection(
        document_ids=documents.ids,
        titles=documents.titles,
        row_of=row_of,
        tie_order=descending_order(documents.ids),
        queries={query_id: queries[query_id] for query_id in kept},
        qrels=kept,
        counts={
            "queries": len(kept),
            "judgments": num_judgments,
            "documents": len(documents),
            "documents_without_title": documents.num_untitled,
            "queries_of_one_grade": sum(len(set(grades.values())) == 1 for grades in kept.values()),
            "queries_without_relevant": sum(max(g.values()) < relevant_grade for g in kept.values()),
            "queries_without_words": sum(not words(queries[query_id]) for query_id in kept),
            "queries_left_out_without_text": len(qrels) - len(known),
            "queries_left_out_below_min_judged": len(known) - len(kept),
            "judgments_of_unknown_documents": num_unknown,
            "judgments_of_several_grades": getattr(qrels, "several_grades", 0),
        },
    )
