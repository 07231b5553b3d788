"""A row's system, made and measured on one collection, with what it cost."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from schemas.documents import Documents
from schemas.errors import StageError
from schemas.judgments import Run, read_run
from schemas.stage import Progress, StageResult
from training.compare.rows import Row
from training.evaluate.evaluate_stage import EvaluateConfig
from training.ranking.bm25 import TitleBM25
from training.ranking.embedding import TitleEmbeddings
from training.ranking.measure import (
    DEFAULT_RULES,
    JudgedCollection,
    Measured,
    RandomOrder,
    Rules,
    System,
    measure,
    measured,
)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class MadeSystem:
    """A measured system. `texts_per_second`: titles, from text to vector or index; None where that means nothing."""

    measured: Measured
    parameters: int | None = None
    dimensions: int | None = None
    train_seconds: float | None = None
    texts_per_second: float | None = None
    notes: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Material:
    """What systems are made from: the documents, the judged collection, and the texts that were trained on."""

    documents: Documents
    collection: JudgedCollection
    training_queries: Sequence[str]
    config: EvaluateConfig

    def measure(self, system: System, name: str, progress: Progress) -> Measured:
        return measure(system, self.collection, self.config.rules, what=f"rank with {name}", progress=progress)


def from_model(row: Row, trained: StageResult, material: Material, progress: Progress) -> MadeSystem:
    """A tower's measured model."""
    from training.models.ensemble import load_encoder  # torch is loaded where it is used

    model = load_encoder(trained.data)
    return _encoding(row, model, model.num_parameters, material, progress, seconds=train_seconds(trained))


def train_seconds(trained: StageResult) -> float:
    """The training time of a model in seconds; of an ensemble, of all members together."""
    manifest = trained.manifest
    return manifest.outcome.metrics.get("train_seconds", manifest.duration_seconds)


def from_texts(row: Row, material: Material, progress: Progress) -> MadeSystem:
    """The measured system of a row that needs no shards: it is made from the documents, or brought by the user."""
    if row.family in ("logged", "run"):
        return _from_run(row, material)
    if row.name == "skip-thought":
        return _from_weights(row, material, progress)
    titles = material.documents.titles
    system, seconds = _timed(lambda: _MAKERS[row.name](row, material, progress))
    learned = row.family in ("topics", "paragraph")
    return MadeSystem(
        measured=material.measure(system, row.name, progress),
        parameters=getattr(system, "parameters", None),
        dimensions=getattr(system, "dimensions", None),
        train_seconds=seconds if learned else None,
        texts_per_second=len(titles) / seconds if row.family == "lexical" else None,
    )


def _language_model(row: Row, material: Material, progress: Progress) -> System:
    from training.ranking.language_model import TitleLanguageModel

    return TitleLanguageModel(material.documents.titles)


def _bm25(row: Row, material: Material, progress: Progress) -> System:
    return TitleBM25(material.documents.titles)


def _random(row: Row, material: Material, progress: Progress) -> System:
    return RandomOrder(material.documents.ids, seed=material.config.seed)


def _plsa(row: Row, material: Material, progress: Progress) -> System:
    from training.ranking.plsa import ITERATIONS, TitlePLSA

    def tell(step: int) -> None:
        progress("train topics", step, ITERATIONS)

    return TitlePLSA(material.documents.titles, topics=row.settings["topics"], seed=material.config.seed, tell=tell)


def _doc2vec(row: Row, material: Material, progress: Progress) -> System:
    from training.ranking.doc2vec import TitleDoc2Vec

    judged = [material.collection.queries[query_id] for query_id in material.collection.searchable]
    texts = [*material.training_queries, *judged]
    return TitleDoc2Vec(material.documents.titles, texts, seed=material.config.seed, progress=progress)


# What makes the system of each row that is learned or counted from texts.
_MAKERS: Mapping[str, Callable[[Row, Material, Progress], System]] = {
    "random": _random,
    "doc2vec": _doc2vec,
    "ulm": _language_model,
    "bm25": _bm25,
    "plsa": _plsa,
}


def _from_run(row: Row, material: Material) -> MadeSystem:
    assert row.source
    measured, notes = measure_run(read_run(row.source), material.collection, material.config.rules)
    return MadeSystem(measured=measured, notes=notes)


def _from_weights(row: Row, material: Material, progress: Progress) -> MadeSystem:
    from training.ranking.skip_thought import SkipThought

    assert row.source
    encoder = SkipThought(row.source)
    return _encoding(row, encoder, encoder.parameters, material, progress)


def _encoding(
    row: Row, encoder: Any, parameters: int, material: Material, progress: Progress, *, seconds: float | None = None
) -> MadeSystem:
    """A measured encoder of queries and titles, trained in so many `seconds`."""
    titles = material.documents.titles
    system, encoded_in = _timed(lambda: TitleEmbeddings(encoder, titles, progress=progress))
    return MadeSystem(
        measured=material.measure(system, row.name, progress),
        parameters=parameters,
        dimensions=encoder.dimensions,
        train_seconds=seconds,
        texts_per_second=len(titles) / encoded_in,
    )


def _timed(make: Callable[[], System]) -> tuple[System, float]:
    began = time.perf_counter()
    made = make()
    return made, time.perf_counter() - began


def measure_run(run: Run, collection: JudgedCollection, rules: Rules = DEFAULT_RULES) -> tuple[Measured, list[str]]:
    """What a ranking that somebody brings is worth, and what there is to know about it, one sentence each.

    The run is taken as it is, by trec_eval's rules: its scores make the order, as 32-bit floats, ties by descending
    document id. Over the collection the run's best k results count; among the judged documents those that it returned,
    in its order: a judged document that it lacks has no rank and gains nothing. So a run of ten results a query can
    stand below a system that orders all judged documents, and the notes say how much was missing.

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
