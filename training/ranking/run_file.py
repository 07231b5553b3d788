"""A ranking that somebody brings as a TREC run, measured like a system of ours.

The run is taken as it is, by trec_eval's rules: its scores make the order, as 32-bit floats, ties by descending
document id. Over the collection the run's best k results count; among the judged documents those that it returned, in
its order: a judged document that it lacks has no rank and gains nothing. So a run of ten results a query can stand
below a system that orders all judged documents, and the notes say how much was missing.
"""

import math
from collections.abc import Mapping
from itertools import islice

import numpy as np

from schemas.errors import StageError
from schemas.judgments import Run
from training.ranking.judged_collection import JudgedCollection
from training.ranking.measure import DEFAULT_RULES, Measured, Rules, measured


def measure_run(run: Run, collection: JudgedCollection, rules: Rules = DEFAULT_RULES) -> tuple[Measured, list[str]]:
    """What the run is worth, and what there is to know about it, one sentence each.

    Raises StageError for a score that is not finite, and where no judged query has a result.
    """
    _refuse_scores(run)
    ranked = {query_id: _best_first(run.get(query_id, {})) for query_id in collection.qrels}
    if not any(ranked.values()):
        raise StageError(
            asked=f"a run of {len(run):,} queries was to be measured on {len(collection.qrels):,} judged queries",
            found="it has results for none of them",
            follows="it would score 0 everywhere",
            do="check that the run and the judgments have the same query ids",
        )
    judged = {
        query_id: {d: score for d, score in results.items() if d in collection.qrels[query_id]}
        for query_id, results in ranked.items()
    }
    retrieved = {query_id: dict(islice(results.items(), rules.top_k)) for query_id, results in ranked.items()}
    found = measured(judged, retrieved, collection, rules)
    return found, _notes(run, ranked, judged, collection)


def _best_first(results: Mapping[str, float]) -> dict[str, float]:
    with np.errstate(over="ignore"):  # beyond the range of 32 bits is infinite in trec_eval too
        keys = {document_id: (float(np.float32(score)), document_id) for document_id, score in results.items()}
    return {document_id: results[document_id] for document_id in sorted(results, key=keys.__getitem__, reverse=True)}


def _refuse_scores(run: Run) -> None:
    for query_id, results in run.items():
        for document_id, score in results.items():
            if not math.isfinite(score):
                raise StageError(
                    asked="each result of a run must have a finite score",
                    found=f"query {query_id} has document {document_id} with the score {score}",
                    follows="such a score has no place in a ranking",
                    do="mend the run, or leave that result out",
                )


def _notes(run: Run, ranked: Run, judged: Run, collection: JudgedCollection) -> list[str]:
    num_silent = sum(not results for results in ranked.values())
    num_judged = sum(len(grades) for grades in collection.qrels.values())
    num_returned = sum(len(results) for results in judged.values())
    num_outside = sum(d not in collection.row_of for results in ranked.values() for d in results)
    num_others = sum(query_id not in collection.qrels for query_id in run)
    told = [
        (num_silent, "judged queries have no results in the run: they count 0"),
        (num_judged - num_returned, "judged documents are not in the run: they have no rank and gain nothing"),
        (num_outside, "results are outside the collection: they keep their places and their grades, as in trec_eval"),
        (num_others, "queries of the run are not among the judged ones: they were not looked at"),
    ]
    return [f"{count:,} {sentence}" for count, sentence in told if count]
