"""Trainings in a real MLflow store, read back by its own client."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from clicktower.flows import run_options
from clicktower.flows.cli import run
from clicktower.flows.config.pipeline_config import read_pipeline
from clicktower.flows.tracking import EXPERIMENT, track
from clicktower.schemas.errors import StageError
from clicktower.schemas.stage import open_result
from tests.flows.test_chain import PIPELINE
from tests.training.small_shards import shop, write_build
from tests.training.trainings import train

pytestmark = pytest.mark.slow

mlflow = pytest.importorskip("mlflow")


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> str:
    pairs, pool = shop(60)
    return write_build(str(tmp_path_factory.mktemp("build")), {"train-00000": pairs, "dev-00000": shop(20)[0]}, pool)


@pytest.fixture(scope="module")
def trained(shards, tmp_path_factory):
    from clicktower.training.model.recipe import recipe as named_recipe
    from tests.recipes import varied

    recipe = varied(named_recipe("lstm-96"), cells=8, epochs=2, minibatch=32, micro_batch=8)
    return train(shards, store=str(tmp_path_factory.mktemp("store")), recipe=recipe)


def runs(folder: Path) -> list:
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db")
    return client.search_runs([client.get_experiment_by_name(EXPERIMENT).experiment_id])


def test_a_run_of_the_pipeline_logs_its_model_once(trained, tmp_path):
    (tmp_path / "pipeline.toml").write_text('mlflow = "tracked"\n' + PIPELINE.format(train=""))
    config = read_pipeline(str(tmp_path / "pipeline.toml"))
    Path(config.report).write_text("<h1>ørn</h1>", encoding="utf-8")
    systems = {"model": {"ndcg@10": {"mean": 0.75}, "ndcg@1": {"mean": None}}}
    results = {"train": {"path": trained.folder}, "evaluate": {"metrics": {"systems": systems}}}
    run_options.track(config, results)
    run_options.track(config, results)
    [logged] = runs(tmp_path / "tracked")
    digest = trained.manifest.digest
    assert (logged.info.run_name, logged.data.tags["digest"], logged.info.status) == (digest, digest, "FINISHED")
    assert logged.data.params.items() >= {"recipe.tower.cells": "8", "recipe.epochs": "2"}.items()
    assert logged.data.metrics["ndcg_at_10"] == 0.75
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/tracked/mlflow.db")
    curve = client.get_metric_history(logged.info.run_id, "train_loss")
    expected = json.loads(Path(trained.data, "curves.json").read_text())
    assert [(point.step, point.value) for point in curve] == [(row["epoch"], row["train_loss"]) for row in expected]
    [page] = (tmp_path / "tracked" / "artifacts").glob("*/artifacts/report.html")
    assert page.read_text(encoding="utf-8") == "<h1>ørn</h1>"


def test_a_run_whose_logging_was_cut_off_is_completed(trained, tmp_path):
    track(str(tmp_path / "tracked"), [])
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/tracked/mlflow.db")
    experiment = client.get_experiment_by_name(EXPERIMENT).experiment_id
    client.create_run(experiment, tags={"digest": trained.manifest.digest})
    track(str(tmp_path / "tracked"), [trained.folder])
    [logged] = runs(tmp_path / "tracked")
    assert logged.info.status == "FINISHED"
    assert "recipe.epochs" in logged.data.params
    assert "train_loss" in logged.data.metrics


def test_a_sweep_logs_its_trials(shards, tmp_path):
    sweep = tmp_path / "sweep.toml"
    sweep.write_text(f"""
shards = "{shards}"
into = "store"
mlflow = "tracked"
[set]
tower.cells = 8
minibatch = 32
micro_batch = 8
epochs = 1
[fields]
optimiser.step = [0.001, 0.002]
""")
    assert run(["sweep", str(sweep), "--json"]) == 0
    steps = {logged.data.params["recipe.optimiser.step"] for logged in runs(tmp_path / "tracked")}
    assert steps == {"0.001", "0.002"}
    assert all("train_loss" in logged.data.metrics for logged in runs(tmp_path / "tracked"))


def test_a_server_that_is_not_there_is_an_error_and_the_training_stays(trained, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(StageError, match=r"MLflow at http://127\.0\.0\.1:9 does not take the training"):
        track("http://127.0.0.1:9", [trained.folder])
    assert open_result(trained.folder).manifest.digest == trained.manifest.digest


def test_tracking_connects_to_nothing_else(trained, tmp_path):
    """MLflow's telemetry is off: Python's audit hook sees every connection."""
    code = f"""
import sys
from clicktower.flows.tracking import track
seen = []
sys.addaudithook(lambda event, given: seen.append(given) if event in ("socket.connect", "socket.getaddrinfo") else None)
track({str(tmp_path / "tracked")!r}, [{trained.folder!r}])
assert not seen, seen
"""
    # MLflow sends none from tests and from CI either, and tells them by the environment.
    kept = ("PATH", "HOME", "PYTHONPATH", "LANG")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
