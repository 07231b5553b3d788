"""One row, measured: a stage of its own, so that a finished row is never made again.

Writes to STORE/measure/DIGEST: per_query.json (each measure of each query), judged.run and collection.run in TREC's
form. `metrics` of its manifest: the means, and what the row costs.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from schemas import storage
from schemas.judgments import Run, read_run, run_lines
from schemas.manifest import Outcome, Request
from schemas.stage import Progress, StageResult, find_finished, run_stage
from training.compare.rows import BASELINE, Row
from training.compare.system import MadeSystem, Material, train_seconds
from training.evaluate.evaluate_stage import EvaluateConfig
from training.ranking.bm25 import TitleBM25
from training.ranking.embedding import TitleEmbeddings
from training.ranking.hybrid import Hybrid, cross_fit, scores_of_pairs
from training.ranking.measure import Measured
from training.ranking.ndcg import judged_pairs

STAGE_VERSION = 1
_PER_QUERY, _JUDGED, _RETRIEVED = "per_query.json", "judged.run", "collection.run"


@dataclass(frozen=True, kw_only=True, slots=True)
class EndedRow:
    """How a row ended: with its result, or with a sentence that says why there is none.

    `state`: done; failed; or empty, where what it needs was not given.
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
        value = json.loads(storage.read_bytes(storage.join(self.result.data, _PER_QUERY)))
        return {measure: np.array(values) for measure, values in value["measures"].items()}

    def judged_run(self) -> Run:
        """Its ranking of the judged documents."""
        assert self.result
        return read_run(storage.join(self.result.data, _JUDGED))


def measure_request(row: Row, inputs: Mapping[str, Any], config: EvaluateConfig) -> Request:
    """What measuring a row is. `inputs`: fingerprints of the judged files and of what the row is made from.

    A model or a run is the same by any name; what is made from the documents is what its name says.
    """
    decides = asdict(config)
    for name in ("num_examples", "confidence", "num_resamples"):  # of the table, not of a row
        decides.pop(name)
    return Request(
        stage="measure",
        stage_version=STAGE_VERSION,
        config={
            "system": row.family if row.recipe or row.source else row.name,
            "settings": dict(row.settings),
            "evaluate": decides,
        },
        inputs=inputs,
        seed=config.seed,
    )


def write_row(store: str, request: Request, row: Row, made: Sequence[MadeSystem]) -> StageResult:
    """The measured row. `made`: the same system made with several seeds; its value is the mean over them."""

    def produce(folder: str) -> Outcome:
        means = {
            name: np.mean([one.measured.per_query[name] for one in made], axis=0) for name in made[0].measured.per_query
        }
        first: Measured = made[0].measured
        content = json.dumps({"measures": {name: values.tolist() for name, values in means.items()}})
        storage.write_atomic(storage.join(folder, _PER_QUERY), content.encode())
        for name, run in {_JUDGED: first.judged, _RETRIEVED: first.retrieved}.items():
            storage.write_atomic(storage.join(folder, name), "".join(run_lines(run, f"clicktower-{row.name}")).encode())
        return Outcome(
            counts={"queries": len(next(iter(means.values()))), "seeds": len(made)},
            metrics={
                **{name: float(values.mean()) for name, values in means.items()},
                "by_seed": [
                    {name: float(values.mean()) for name, values in one.measured.per_query.items()} for one in made
                ],
                "parameters": made[0].parameters,
                "dimensions": made[0].dimensions,
                "train_seconds": _mean([one.train_seconds for one in made]),
                "texts_per_second": _mean([one.texts_per_second for one in made]),
                "notes": list(made[0].notes),
            },
        )

    return run_stage(store, request, produce)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


_CHOSEN_BY = "ndcg@10"


def best_model(before: Sequence[EndedRow]) -> EndedRow | None:
    """The tower or model with the highest NDCG@10 of the rows that have ended."""
    done = [one for one in before if one.state == "done" and one.row.family in ("tower", "model")]
    return max(done, key=lambda one: one.metrics[_CHOSEN_BY], default=None)


def hybrid_row(
    row: Row,
    best: EndedRow,
    models: Callable[[], Sequence[StageResult]],
    material: Material,
    *,
    store: str,
    inputs: Mapping[str, str],
    progress: Progress,
) -> EndedRow:
    """The measured hybrid. `models` gives those of the best row, one for each of its seeds."""
    assert best.result
    made_from = {"best": best.result.manifest.digest, "second": BASELINE}
    request = measure_request(row, {**inputs, "from": made_from}, material.config)
    result, _ = find_finished(store, request)
    if result is None:
        bm25 = TitleBM25(material.documents.titles)
        of_bm25 = material.measure(bm25, BASELINE, progress).judged
        made = [_made(row, best.row.name, model, bm25, of_bm25, material, progress) for model in models()]
        result = write_row(store, request, row, made)
    return EndedRow(row=row, state="done", result=result, made_from=(best.row.name, BASELINE))


def _made(
    row: Row, name: str, trained: StageResult, bm25: TitleBM25, of_bm25: Run, material: Material, progress: Progress
) -> MadeSystem:
    from training.models.ensemble import load_encoder  # torch is loaded where it is used

    collection, config = material.collection, material.config
    model = load_encoder(trained.data)
    tower = TitleEmbeddings(model, material.documents.titles, progress=progress)
    of_tower = material.measure(tower, name, progress).judged
    judged = judged_pairs(collection.qrels)
    first, second = scores_of_pairs(of_tower, judged), scores_of_pairs(of_bm25, judged)
    weights = cross_fit(first, second, judged, collection.queries, gain=config.gain, seed=config.seed)
    near = "cosine" if model.similarity == "cosine" else "minus the distance"
    return MadeSystem(
        measured=material.measure(Hybrid(tower, bm25, weights), row.name, progress),
        parameters=model.num_parameters,
        dimensions=model.dimensions,
        train_seconds=train_seconds(trained),
        notes=(
            f"{near} of {name} + weight x BM25; the two halves of the queries use"
            f" {weights.of_half[0]:g} and {weights.of_half[1]:g}, each chosen on the other half",
        ),
    )
