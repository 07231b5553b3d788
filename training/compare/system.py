"""A row's system, made and measured on one collection, with what it cost."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.documents import Documents
from schemas.judgments import read_run
from schemas.stage import Progress, StageResult
from training.compare.rows import Row
from training.evaluate.evaluate_stage import EvaluateConfig
from training.ranking.bm25 import TitleBM25
from training.ranking.embedding import TitleEmbeddings
from training.ranking.judged_collection import JudgedCollection
from training.ranking.measure import Measured, System, measure
from training.ranking.random_order import RandomOrder
from training.ranking.run_file import measure_run


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
    """How long a model was trained; of models side by side, all of them together."""
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

    def tell(step: int, log_posterior: float) -> None:
        progress("train topics", step, ITERATIONS)

    return TitlePLSA(material.documents.titles, topics=row.settings["topics"], seed=material.config.seed, tell=tell)


def _doc2vec(row: Row, material: Material, progress: Progress) -> System:
    from training.ranking.doc2vec import Doc2VecConfig, TitleDoc2Vec

    judged = [material.collection.queries[query_id] for query_id in material.collection.searchable]
    config = Doc2VecConfig(seed=material.config.seed)
    texts = [*material.training_queries, *judged]
    return TitleDoc2Vec(material.documents.titles, texts, config=config, progress=progress)


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
