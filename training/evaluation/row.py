"""A row of a comparison, which is evaluated once: its figures and rankings are a stage of their own.

Writes to STORE/measure/DIGEST: per_query.json (each measure of each query), judged.run and collection.run in TREC's
form. `metrics` of its manifest: the means, and the cost of the row.

The settings of an evaluation say which intervals and tests its figures have.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from clicktower.schemas import storage
from clicktower.schemas.documents import Documents
from clicktower.schemas.judgments import Run, read_run, run_lines, trec_field
from clicktower.schemas.manifest import Outcome, Request, from_bytes
from clicktower.schemas.section import (
    DEFAULT_LANGUAGE,
    Confidence,
    Count,
    Language,
    Natural,
    Seed,
    named_settings,
    section,
)
from clicktower.schemas.stage import Progress, Stage, StageResult, find_finished, run_stage
from clicktower.training.evaluation import Table
from clicktower.training.model.recipe import Recipe
from clicktower.training.ranking.bm25 import TitleBM25
from clicktower.training.ranking.measure import JudgedCollection, Measured, RandomOrder, Rules, System, measure
from clicktower.training.ranking.ndcg import CUTOFFS, Gain, bootstrap_interval, holm, randomisation_p


@section
class EvaluateConfig:
    """How models are evaluated.

    Args:
        cutoffs: The ranks of NDCG: 10 is NDCG@10.
        gain: exponential, 2^grade - 1, or linear, the grade.
        min_judged: Queries with fewer judged documents are left out.
        relevant_grade: The grade from which on a document is relevant, for recall and reciprocal rank.
        language: The language of the words of BM25 and of the lexical share of a score (docs/model.md).
        top_k: Results of each query over the full collection, for NDCG@10 over it too.
        num_examples: The queries whose rankings are shown.
        confidence: The confidence of intervals.
        num_resamples: Resamples of the bootstrap and of the randomisation test.
        seed: The seed of the resamples.
    """

    cutoffs: Annotated[tuple[Count, ...], Field(min_length=1)] = CUTOFFS
    gain: Gain = "exponential"
    min_judged: Count = 1
    relevant_grade: Count = 1
    language: Language = DEFAULT_LANGUAGE
    top_k: Annotated[int, Field(ge=10)] = 100
    num_examples: Natural = 10
    confidence: Confidence = 0.95
    num_resamples: Count = 10_000
    seed: Seed = 0

    @property
    def rules(self) -> Rules:
        return Rules(cutoffs=self.cutoffs, gain=self.gain, relevant_grade=self.relevant_grade, top_k=self.top_k)

    def intervals(self, values_QM: np.ndarray) -> list[dict[str, float]]:
        """The mean of each measure over the queries, and its interval."""
        low_M, high_M = bootstrap_interval(
            values_QM, confidence=self.confidence, num_resamples=self.num_resamples, seed=self.seed
        )
        rows = zip(values_QM.mean(axis=0).tolist(), low_M.tolist(), high_M.tolist(), strict=True)
        return [{"mean": mean, "low": low, "high": high} for mean, low, high in rows]

    def p_values(self, differences_QM: np.ndarray) -> list[dict[str, float]]:
        """The p of each measure's mean difference, and corrected over the measures."""
        p_values = randomisation_p(differences_QM, num_resamples=self.num_resamples, seed=self.seed).tolist()
        return [{"p": p, "p_holm": corrected} for p, corrected in zip(p_values, holm(p_values), strict=True)]


BASELINE = "bm25"
Family = Literal["floor", "logged", "lexical", "topics", "paragraph", "tower", "model", "hybrid", "run"]
Figures = tuple[float, float, float]  # NDCG@1, @3 and @10 in percent
BM25_IN_THE_PAPER: Figures = (30.5, 32.8, 38.8)
MEASURE = Stage("measure", version=4)
_PER_QUERY, JUDGED, _RETRIEVED = "per_query.json", "judged.run", "collection.run"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ComparisonInputs:
    """The inputs of baselines: the documents, the judged collection, and the training texts."""

    documents: Documents
    collection: JudgedCollection
    training_queries: Sequence[str]
    training_titles: Sequence[str]  # those that were clicked
    config: EvaluateConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A system to evaluate.

    `name`: what a user types; `title`: what a reader sees. `paper`: the paper's figures (Palangi et al., Table IV);
    `table`: the table beside it in which the row stands, printed or tuned; in both if there is only one version.
    `make`: makes a baseline, a `System`, which may have `parameters` and `dimensions`. `recipe`: of a tower.
    `settings`: other settings that determine the row's figures. `source`: a model folder or a TREC run that the user
    brings; `needs`: why the row is empty without it.
    """

    name: str
    title: str
    family: Family
    paper: Figures | None = None
    table: Table | None = None
    make: Callable[[ComparisonInputs, Progress], Any] | None = None
    learns_from_shards: bool = False  # from their queries or clicked titles
    recipe: Recipe | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    source: str | None = None
    needs: str | None = None


# The baselines of every evaluation.
RANDOM_ORDER = Row(
    name="random", title="random order", family="floor",
    make=lambda inputs, _: RandomOrder(inputs.documents.ids, seed=inputs.config.seed),
)  # fmt: skip
BM25_ROW = Row(
    name=BASELINE, title="BM25", family="lexical", paper=BM25_IN_THE_PAPER, table="tuned",
    make=lambda inputs, _: TitleBM25(inputs.documents.titles, inputs.config.language),
)  # fmt: skip


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


def make_baseline(row: Row, inputs: ComparisonInputs, progress: Progress) -> MadeSystem:
    """The evaluation of a baseline."""
    assert row.make
    began = time.perf_counter()
    system = row.make(inputs, progress)
    seconds = time.perf_counter() - began
    return MadeSystem(
        measured=measure_system(system, row.name, inputs, progress),
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
        baseline = make_baseline(row, inputs, progress)
        write_row(store, request, row, [baseline])
        return baseline.measured, baseline.system
    id_of = {trec_field(document_id): document_id for document_id in inputs.collection.row_of}

    def run_named(name: str) -> Run:
        run = read_run(storage.join(result.data, name))
        results = {query_id: run.get(trec_field(query_id), {}) for query_id in inputs.collection.qrels}
        return {query_id: {id_of[d]: score for d, score in scores.items()} for query_id, scores in results.items()}

    return Measured(judged=run_named(JUDGED), retrieved=run_named(_RETRIEVED), per_query=measures_of(result)), None


def measures_of(result: StageResult) -> dict[str, np.ndarray]:
    """Each measure of each query of an evaluated row, float64 in the order of the qrels."""
    value = from_bytes(storage.read_bytes(storage.join(result.data, _PER_QUERY)))
    return {name: np.array(values) for name, values in value["measures"].items()}


def measure_system(system: System, name: str, inputs: ComparisonInputs, progress: Progress) -> Measured:
    return measure(system, inputs.collection, inputs.config.rules, what=f"rank with {name}", progress=progress)


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
        for name, run in {JUDGED: first.measured.judged, _RETRIEVED: first.measured.retrieved}.items():
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
