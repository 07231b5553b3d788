"""Trainings in MLflow: a run of each, with its settings, its curves by epoch, NDCG and the report of the pipeline.

A pipeline.toml or sweep.toml turns it on by `mlflow`: a folder, which gets a database (MLflow's sqlite store) and the
artifacts, or the URI of a tracking server. A run has the name and the tag of its training's digest; a training that is
there already gets no second one.
"""

import logging
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.manifest import from_bytes
from clicktower.schemas.section import flat
from clicktower.schemas.stage import StageResult, open_result

EXPERIMENT = "clicktower"
_MOST_AT_ONCE = 1_000  # metrics that a server takes in one request


def require_mlflow() -> None:
    """Raise UsageError, before anything is trained, if the package is not installed."""
    if find_spec("mlflow") is None:
        raise UsageError(
            "The package mlflow, which the setting mlflow needs, is not installed here.",
            "Install it (pip install 'clicktower[mlflow]'), or leave mlflow out.",
        )


def track(uri: str, trainings: Sequence[str], *, figures: Mapping[str, float] | None = None, page: str = "") -> None:
    """Log the trainings in these folders. `figures` and the HTML `page` (a path) belong to each of them.

    Raises StageError where MLflow's store cannot be used.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # nothing is sent anywhere else
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param
    from mlflow.exceptions import MlflowException

    for name in ("mlflow", "alembic"):  # which tell of each table of a new database
        logging.getLogger(name).setLevel(logging.WARNING)
    artifacts = None
    if "://" not in uri:
        os.makedirs(uri, exist_ok=True)
        uri, artifacts = f"sqlite:///{os.path.abspath(uri)}/mlflow.db", Path(os.path.abspath(uri), "artifacts").as_uri()
    try:
        client = MlflowClient(tracking_uri=uri)
        experiment = client.get_experiment_by_name(EXPERIMENT)
        number = experiment.experiment_id if experiment else client.create_experiment(EXPERIMENT, artifacts)
        for folder in trainings:
            trained = open_result(folder)
            manifest, digest = trained.manifest, trained.manifest.digest
            at = int(datetime.fromisoformat(manifest.created).timestamp() * 1000)
            tags = {"digest": digest, "stage": manifest.request.stage, "folder": folder}
            run, *_ = client.search_runs([number], f"tags.digest = '{digest}'") or [
                client.create_run(number, start_time=at, run_name=digest, tags=tags)
            ]
            if run.info.status != "FINISHED":  # a new one, or one whose logging was cut off
                settings = flat({**manifest.request.config, "inputs": manifest.request.inputs})
                client.log_batch(run.info.run_id, params=[Param(name, str(value)) for name, value in settings.items()])
                curve = [Metric(name, value, at, epoch) for epoch, name, value in _curves(trained)]
                for start in range(0, len(curve), _MOST_AT_ONCE):
                    client.log_batch(run.info.run_id, metrics=curve[start : start + _MOST_AT_ONCE])
            last = [Metric(_plain(name), value, at, 0) for name, value in (figures or {}).items()]
            client.log_batch(run.info.run_id, metrics=last)
            if page:
                client.log_text(run.info.run_id, storage.read_bytes(page).decode(), "report.html")
            client.set_terminated(run.info.run_id, end_time=at)
    except MlflowException as error:
        raise StageError(
            f"MLflow at {uri} does not take the training: {str(error).splitlines()[0][:200]}.",
            "Check the field mlflow, and run again: what is made is reused.",
        ) from None


def _curves(trained: StageResult) -> Iterator[tuple[int, str, float]]:
    """(epoch, name, value) of each finite figure of a training's curves."""
    for point in from_bytes(storage.read_bytes(storage.join(trained.data, "curves.json"))):
        for name, value in point.items():
            if name != "epoch" and value is not None and math.isfinite(value):
                yield point["epoch"], _plain(name), float(value)


def _plain(name: str) -> str:
    """A name as MLflow takes it: it has no @."""
    return name.replace("@", "_at_")
