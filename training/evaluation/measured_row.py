"""The rows of a comparison that are no baselines: towers, a tower with another lexical share, and runs from outside."""

import math
import time
from collections.abc import Mapping, Sequence
from itertools import islice

import numpy as np

from clicktower.schemas import storage
from clicktower.schemas.errors import StageError
from clicktower.schemas.judgments import Run, read_run
from clicktower.schemas.manifest import from_bytes
from clicktower.schemas.stage import Progress, StageResult
from clicktower.training.evaluation.row import (
    BASELINE,
    ComparisonInputs,
    MadeSystem,
    Row,
    make_baseline,
    measure_system,
)
from clicktower.training.model.model import load_encoder
from clicktower.training.ranking.bm25 import TitleBM25
from clicktower.training.ranking.hybrid import Hybrid, cross_fit, scores_of_pairs
from clicktower.training.ranking.measure import DEFAULT_RULES, JudgedCollection, Measured, Rules, measure_runs
from clicktower.training.ranking.ndcg import judged_pairs
from clicktower.training.ranking.title_ranking import TitleRanking


def evaluate_model(row: Row, trained: StageResult, inputs: ComparisonInputs, progress: Progress) -> MadeSystem:
    """The evaluation of a tower's model."""
    model = load_encoder(trained.data)
    began = time.perf_counter()
    system = TitleRanking(model, inputs.documents.titles, inputs.config.language, progress=progress)
    encoded_in = time.perf_counter() - began
    return MadeSystem(
        measured=measure_system(system, row.name, inputs, progress),
        parameters=model.num_parameters,
        dimensions=model.dimensions,
        train_seconds=_train_seconds(trained),
        texts_per_second=len(inputs.documents) / encoded_in,
        notes=_clipped(row, trained),
    )


def evaluate_baseline(row: Row, inputs: ComparisonInputs, progress: Progress) -> MadeSystem:
    """The evaluation of a baseline, or of a run that the user brings."""
    if row.make is None:
        assert row.source
        measured, notes = measure_run(read_run(row.source), inputs.collection, inputs.config.rules)
        return MadeSystem(measured=measured, notes=notes)
    return make_baseline(row, inputs, progress)


def evaluate_hybrid(
    row: Row, best: str, models: Sequence[StageResult], inputs: ComparisonInputs, progress: Progress
) -> list[MadeSystem]:
    """The evaluations of each model of the best row with the lexical share that judged queries choose."""
    collection, config = inputs.collection, inputs.config
    judged = judged_pairs(collection.qrels)
    bm25 = TitleBM25(inputs.documents.titles, config.language)
    lexical = RelativeBM25(bm25)
    second = scores_of_pairs(measure_system(lexical, BASELINE, inputs, progress).judged, judged)
    hybrids = []
    for trained in models:
        model = load_encoder(trained.data)
        tower = TitleRanking(model, inputs.documents.titles, config.language, lexical_share=0.0, progress=progress)
        first = scores_of_pairs(measure_system(tower, best, inputs, progress).judged, judged)
        weights = cross_fit(first, second, judged, collection.queries, gain=config.gain, seed=config.seed)
        shares = [weight / (1 + weight) for weight in weights.of_half]
        note = (
            f"{best} with another share for the terms that a query and a title have in common; the two halves of the"
            f" queries use {shares[0]:.2f} and {shares[1]:.2f}, each chosen on the other half"
        )
        hybrids.append(
            MadeSystem(
                measured=measure_system(Hybrid(tower, lexical, weights), row.name, inputs, progress),
                parameters=model.num_parameters,
                dimensions=model.dimensions,
                train_seconds=_train_seconds(trained),
                notes=(note,),
            )
        )
    return hybrids


def _train_seconds(trained: StageResult) -> float:
    """The training time of a model in seconds; for an ensemble, of all members together."""
    manifest = trained.manifest
    return manifest.outcome.metrics.get("train_seconds", manifest.duration_seconds)


def _clipped(row: Row, trained: StageResult) -> tuple[str, ...]:
    """How often training re-normalised a gradient, of a row whose recipe says so."""
    most = row.recipe.optimiser.clip_norm if row.recipe else 0
    if not most:
        return ()
    epochs = from_bytes(storage.read_bytes(storage.join(trained.data, "curves.json")))
    share = np.mean([epoch["clipped_share"] for epoch in epochs])
    return (f"gradients above th_G = {most:g} were scaled down to it in {share:.0%} of the updates",)


def measure_run(run: Run, collection: JudgedCollection, rules: Rules = DEFAULT_RULES) -> tuple[Measured, list[str]]:
    """The value of a ranking from outside, and what to know about it, one sentence each.

    The run is taken as it is, by trec_eval's rules: its scores determine the order, as 32-bit floats, ties by
    descending document id. Over the collection the run's best k results count; among the judged documents those that it
    returned, in its order: a judged document that it lacks has no rank and gains nothing. So a run of ten results per
    query can score below a system that orders all judged documents, and the notes say how much was missing.

    Raises StageError for a score that is not finite, and if no judged query has a result.
    """
    for query_id, results in run.items():
        for document_id, score in results.items():
            if not math.isfinite(score):
                raise StageError(
                    f"The query {query_id} of the run has the document {document_id} with the score {score}, which has"
                    " no place in a ranking.",
                    "Give that result a finite score, or leave it out.",
                )
    ranked = {query_id: rank_results(run.get(query_id, {})) for query_id in collection.qrels}
    if not any(ranked.values()):
        raise StageError(
            f"The run of {len(run):,} queries has results for none of the {len(collection.qrels):,} judged queries.",
            "Check that the run and the judgments have the same query ids.",
        )
    judged = {
        query_id: {d: score for d, score in results.items() if d in collection.qrels[query_id]}
        for query_id, results in ranked.items()
    }
    retrieved = {query_id: dict(islice(results.items(), rules.top_k)) for query_id, results in ranked.items()}
    num_judged = sum(len(grades) for grades in collection.qrels.values())
    notes = [
        (sum(not results for results in ranked.values()), "judged queries have no results in the run: they count 0"),
        (
            num_judged - sum(len(results) for results in judged.values()),
            "judged documents are not in the run: they have no rank and gain nothing",
        ),
        (
            sum(d not in collection.row_of for results in ranked.values() for d in results),
            "results are outside the collection: they keep their places and their grades, as in trec_eval",
        ),
        (
            sum(query_id not in collection.qrels for query_id in run),
            "queries of the run are not among the judged ones: they were not looked at",
        ),
    ]
    figures = measure_runs(judged, retrieved, collection, rules)
    return figures, [f"{count:,} {sentence}" for count, sentence in notes if count]


def rank_results(results: Mapping[str, float]) -> dict[str, float]:
    """The results in order: scores as 32-bit floats, ties by descending id, as in trec_eval."""
    with np.errstate(over="ignore"):  # beyond the range of 32 bits is infinite in trec_eval too
        keys = {document_id: (float(np.float32(score)), document_id) for document_id, score in results.items()}
    return {document_id: results[document_id] for document_id in sorted(results, key=keys.__getitem__, reverse=True)}


class RelativeBM25:
    """BM25(q, d) / BM25(q, q) as a system."""

    def __init__(self, bm25: TitleBM25) -> None:
        self._bm25 = bm25

    def scores(self, queries: Sequence[str]) -> np.ndarray:
        return self._bm25.relative_scores(queries)
