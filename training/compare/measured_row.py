"""One row, measured: a stage of its own, so that a finished row is never made again.

Writes to STORE/measure/DIGEST: per_query.json (each measure of each query), judged.run and collection.run in TREC's
form. `metrics` of its manifest: the means, and what the row costs.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from schemas import storage
from schemas.judgments import Run, read_run, run_lines
from schemas.manifest import Outcome, Request
from schemas.stage import StageResult, run_stage
from training.compare.rows import Row
from training.compare.system import Made
from training.evaluate import EvaluateConfig
from training.ranking.measure import Measured

STAGE_VERSION = 1
_PER_QUERY, _JUDGED, _RETRIEVED = "per_query.json", "judged.run", "collection.run"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
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


def write_row(store: str, request: Request, row: Row, made: Sequence[Made]) -> StageResult:
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
