"""A run is cancelled in its training on Ray; then the head is killed in another's, which goes on to the same bytes."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from flows import stages
from flows.config.pipeline_config import read_pipeline
from schemas.stage import open_result
from tests.end_to_end.prefect_server import PrefectServer, claim, running_stages, words_of
from tests.end_to_end.shop import make_shop
from tests.ray_cluster import RayCluster
from tests.waiting import wait_until

pytestmark = [pytest.mark.engine, pytest.mark.several_machines]
DATE = "2026-09-01"
PIPELINE = """
title = "Ray"
store = "{name}"
report = "{name}.html"
[log]
files = ["data/log/*.ndjson.gz"]
[documents]
file = "data/documents.tsv"
[judgments]
queries = "data/judgments/queries.dev.tsv"
qrels = "data/judgments/qrels.dev.txt"
[build]
k = 2
[train]
workers = {workers}
threads = 1
[train.set]
epochs = 12
tower.cells = 16
micro_batch = 32
minibatch = 128
[limits]
retries = 20
retry_seconds = 2
[publish]
to = "release"
"""


def num_training_workers(cluster: RayCluster) -> int:
    """Processes of the cluster's node that train."""
    return sum("RayTrainWorker" in "".join(words_of(process)) for process in cluster.processes("node"))


@pytest.fixture
def ray_cluster(tmp_path) -> Iterator[RayCluster]:
    pytest.importorskip("ray")
    # A lost head is waited for a minute, unless told otherwise.
    with RayCluster(tmp_path / "ray", {"node": 2}, RAY_gcs_rpc_server_reconnect_timeout_s="15") as cluster:
        yield cluster


def steps_of(store: Path) -> list[Path]:
    """What a training that runs writes a line to for every update."""
    return list(store.glob("train/*/attempt-*/steps.jsonl"))


def is_written_to(path: Path) -> bool:
    return path.stat().st_size > 0


def weights(store: Path) -> bytes:
    (folder,) = (store / "train").iterdir()
    return Path(open_result(str(folder)).data, "model.safetensors").read_bytes()


def test_a_cancelled_run_leaves_ray_and_a_killed_head_costs_a_retry_and_not_a_byte(ray_cluster, tmp_path):
    shop = make_shop(tmp_path / "shop")
    config, alone = (shop / f"{name}.toml" for name in ("on-ray", "alone"))
    config.write_text(PIPELINE.format(name="on-ray", workers=2), encoding="utf-8")
    alone.write_text(PIPELINE.format(name="on-ray", workers=1), encoding="utf-8")
    known = read_pipeline(str(alone))
    shards = stages.build(known, stages.ingest(known, DATE), DATE)
    store = shop / "on-ray"

    (tmp_path / "prefect").mkdir()
    environment = ray_cluster.environment | {"RAY_ADDRESS": ray_cluster.address}
    with PrefectServer(tmp_path / "prefect", **environment) as server:
        cancelled = server.trigger(config, DATE)
        wait_until(lambda: any(map(is_written_to, steps_of(store))), lambda: server.log("worker"))
        assert num_training_workers(ray_cluster) == 2
        server.set_state(cancelled, "CANCELLING")
        wait_until(lambda: num_training_workers(ray_cluster) == 0, "the workers on Ray to end")
        assert server.end_of(cancelled)["type"] == "CANCELLED"
        wait_until(lambda: running_stages(store) == [], "the stage to end")

        begun = {path for path in steps_of(store) if is_written_to(path)}
        run = server.trigger(config, DATE)
        wait_until(
            lambda: any(path not in begun and is_written_to(path) for path in steps_of(store)),
            lambda: server.log("worker"),
        )
        first = claim(store, "train")
        ray_cluster.end()  # nodes end with their head, a minute later; here at once
        ray_cluster.start()
        ended = wait_until(lambda: list(store.glob("train/*/manifest.json")), lambda: str(server.logs_of(run)))
        assert server.end_of(run)["type"] == "COMPLETED", server.told(run)
    manifest = open_result(str(ended[0].parent)).manifest
    assert manifest.attempt not in first["attempts"]
    trainings = [job for job in ray_cluster.jobs() if " train " in job["Entrypoint"]]
    assert len(trainings) == 1, "one job in the new head's own list"
    wait_until(lambda: running_stages(store) == [], "the last stage to end")

    trained = weights(store)
    undisturbed = stages.train(replace(known, store=str(shop / "undisturbed")), shards)
    assert weights(shop / "undisturbed") == trained
    assert undisturbed["digest"] == manifest.digest
