"""One row, made and evaluated: a stage of its own, so that a finished row is never made again.

Writes to STORE/measure/DIGEST: per_query.json (each measure of each query), judged.run and collection.run in TREC's
form. `metrics` of its manifest: the means, and the cost of the row.
"""

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from clicktower.schemas import storage
from clicktower.schemas.errors import StageError
from clicktower.schemas.judgments import Run, read_run, run_lines, trec_field
from clicktower.schemas.manifest import Outcome, Request, from_bytes
from clicktower.schemas.section import named_settings
from clicktower.schemas.stage import Progress, Stage, StageResult, find_finished, run_stage
from clicktower.training.evaluation.evaluation_settings import EvaluateConfig
from clicktower.training.evaluation.rows import BASELINE, ComparisonInputs, Row
from clicktower.training.ranking.bm25 import RelativeBM25, TitleBM25
from clicktower.training.ranking.hybrid import Hybrid, cross_fit, scores_of_pairs
from clicktower.training.ranking.measure import (
    DEFAULT_RULES,
    JudgedCollection,
    Measured,
    Rules,
    System,
    measure,
    measure_runs,
    rank_results,
)
from clicktower.training.ranking.ndcg import judged_pairs
from clicktower.training.ranking.title_ranking import TitleRanking

MEASURE = Stage("measure", version=3)
_PER_QUERY, _JUDGED, _RETRIEVED = "per_query.json", "judged.run", "collection.run"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class MadeSystem:
    """An evaluated system. `texts_per_second`: titles, from text to vector or index; None if that is meaningless.
    `system`: of a baseline.
    """

    measured: Measured
    system: System | None = None
    parameters: int | None = None
    dimensions: int | None = None
    train_seconds: float | None = None
    texts_per_second: float | None = None
    notes: Sequence[str] = ()


def evaluate_model(row: Row, trained: StageResult, inputs: ComparisonInputs, progress: Progress) -> MadeSystem:
    """The evaluation of a tower's model."""
    from clicktower.training.model.model import load_encoder  # torch is loaded where it is used

    model = load_encoder(trained.data)
    began = time.perf_counter()
    system = TitleRanking(model, inputs.documents.titles, inputs.config.language, progress=progress)
    encoded_in = time.perf_counter() - began
    return MadeSystem(
        measured=_measure(system, row.name, inputs, progress),
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
    began = time.perf_counter()
    system = row.make(inputs, progress)
    seconds = time.perf_counter() - began
    return MadeSystem(
        measured=_measure(system, row.name, inputs, progress),
        system=system,
        parameters=getattr(system, "parameters", None),
        dimensions=getattr(system, "dimensions", None),
        train_seconds=seconds if row.family in ("topics", "paragraph") else None,
        texts_per_second=len(inputs.documents) / seconds if row.family == "lexical" else None,
    )


def measured_baseline(
    store: str, row: Row, judged: Mapping[str, str], inputs: ComparisonInputs, progress: Progress
) -> tuple[Measured, System | None]:
    """(a baseline's figures and rankings; the baseline, if it was made now): they are the same beside every model, so
    the store has them until documents, judgments or settings change. `judged`: fingerprints of the judged files.
    """
    request = measure_request(row, {**judged, "from": None}, inputs.config)
    result, _ = find_finished(store, request)
    if result is None:
        made = evaluate_baseline(row, inputs, progress)
        write_row(store, request, row, [made])
        return made.measured, made.system
    ended, collection = EndedRow(row=row, state="done", result=result), inputs.collection
    id_of = {trec_field(document_id): document_id for document_id in collection.row_of}

    def with_all_queries(run: Run) -> Run:
        results = {query_id: run.get(trec_field(query_id), {}) for query_id in collection.qrels}
        return {query_id: {id_of[d]: score for d, score in scores.items()} for query_id, scores in results.items()}

    judged_run, retrieved = with_all_queries(ended.judged_run()), with_all_queries(ended.retrieved_run())
    return Measured(judged=judged_run, retrieved=retrieved, per_query=ended.per_query()), None


def evaluate_hybrid(
    row: Row, best: str, models: Sequence[StageResult], inputs: ComparisonInputs, progress: Progress
) -> list[MadeSystem]:
    """The evaluations of each model of the best row with the lexical share that judged queries choose."""
    from clicktower.training.model.model import load_encoder  # torch is loaded where it is used

    collection, config = inputs.collection, inputs.config
    judged = judged_pairs(collection.qrels)
    bm25 = TitleBM25(inputs.documents.titles, config.language)
    lexical = RelativeBM25(bm25)
    second = scores_of_pairs(_measure(lexical, BASELINE, inputs, progress).judged, judged)
    hybrids = []
    for trained in models:
        model = load_encoder(trained.data)
        tower = TitleRanking(model, inputs.documents.titles, config.language, lexical_share=0.0, progress=progress)
        first = scores_of_pairs(_measure(tower, best, inputs, progress).judged, judged)
        weights = cross_fit(first, second, judged, collection.queries, gain=config.gain, seed=config.seed)
        shares = [weight / (1 + weight) for weight in weights.of_half]
        note = (
            f"{best} with another share for the terms that a query and a title have in common; the two halves of the"
            f" queries use {shares[0]:.2f} and {shares[1]:.2f}, each chosen on the other half"
        )
        hybrids.append(
            MadeSystem(
                measured=_measure(Hybrid(tower, lexical, weights), row.name, inputs, progress),
                parameters=model.num_parameters,
                dimensions=model.dimensions,
                train_seconds=_train_seconds(trained),
                notes=(note,),
            )
        )
    return hybrids


def _measure(system: System, name: str, inputs: ComparisonInputs, progress: Progress) -> Measured:
    return measure(system, inputs.collection, inputs.config.rules, what=f"rank with {name}", progress=progress)


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


def measure_request(row: Row, inputs: Mapping[str, Any], config: EvaluateConfig) -> Request:
    """The request to evaluate a row. `inputs`: fingerprints of the judged files and of the row's source.

    A model or a run is the same under any name; a row made from the documents is identified by its name.
    """
    decides = named_settings(config)
    for name in ("num_examples", "confidence", "num_resamples"):  # of the table, not of a row
        decides.pop(name)
    system = row.family if row.recipe or row.source else row.name
    settings = {"system": system, "settings": dict(row.settings), "evaluate": decides}
    return MEASURE.request(settings, inputs, seed=config.seed)


def write_row(store: str, request: Request, row: Row, systems: Sequence[MadeSystem]) -> StageResult:
    """The evaluated row. `systems`: the same one with several seeds; its value is their mean."""
    first, per_seed = systems[0], [system.measured.per_query for system in systems]

    def produce(folder: str) -> Outcome:
        means = {name: np.mean([values[name] for values in per_seed], axis=0) for name in per_seed[0]}
        measures = {name: values.tolist() for name, values in means.items()}
        content = json.dumps({"measures": measures}, allow_nan=False)
        storage.write_atomic(storage.join(folder, _PER_QUERY), content.encode())
        for name, run in {_JUDGED: first.measured.judged, _RETRIEVED: first.measured.retrieved}.items():
            storage.write_atomic(storage.join(folder, name), "".join(run_lines(run, f"clicktower-{row.name}")).encode())
        return Outcome(
            counts={"queries": len(next(iter(means.values()))), "seeds": len(systems)},
            metrics={
                **{name: float(values.mean()) for name, values in means.items()},
                "by_seed": [{name: float(values.mean()) for name, values in system.items()} for system in per_seed],
                "parameters": first.parameters,
                "dimensions": first.dimensions,
                "train_seconds": _mean([system.train_seconds for system in systems]),
                "texts_per_second": _mean([system.texts_per_second for system in systems]),
                "notes": list(first.notes),
            },
        )

    return run_stage(store, request, produce)


def _mean(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return float(np.mean(numbers)) if numbers else None


@dataclass(frozen=True, kw_only=True, slots=True)
class EndedRow:
    """How a row ended: with its result, or with a sentence that says why it has none.

    `state`: done, failed, or empty for a row whose input is missing.
    """

    row: Row
    state: str
    result: StageResult | None = None
    why: str | None = None
    seconds: float = 0.0
    made_from: Sequence[str] = ()  # the rows that a hybrid is made from

    @property
    def metrics(self) -> Mapping[str, Any]:
        return self.result.manifest.outcome.metrics if self.result else {}

    def per_query(self) -> dict[str, np.ndarray]:
        """Each measure of each query, float64 in the order of the qrels."""
        assert self.result
        value = from_bytes(storage.read_bytes(storage.join(self.result.data, _PER_QUERY)))
        return {measure: np.array(values) for measure, values in value["measures"].items()}

    def judged_run(self) -> Run:
        """The row's ranking of the judged documents."""
        assert self.result
        return read_run(storage.join(self.result.data, _JUDGED))

    def retrieved_run(self) -> Run:
        """The row's best of the whole collection."""
        assert self.result
        return read_run(storage.join(self.result.data, _RETRIEVED))


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
