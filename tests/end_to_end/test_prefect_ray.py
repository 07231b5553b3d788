"""A run that is cancelled in its training on a Ray cluster (tests/rehearsal.py kills what is there)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.prefect_server import PrefectServer, running_stages, words_of
from tests.end_to_end.shop import make_shop
from tests.ray_cluster import RayCluster
from tests.waiting import wait_until

pytestmark = [pytest.mark.engine, pytest.mark.rehearsal, pytest.mark.several_machines]
DATE = "2026-09-01"
PIPELINE = """
title = "Ray"
store = "on-ray"
report = "on-ray.html"
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
workers = 2
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
    with RayCluster(tmp_path / "ray", {"node": 2}) as cluster:
        yield cluster


def steps_of(store: Path) -> list[Path]:
    """What a training that runs writes a line to for every update."""
    return list(store.glob("train/*/attempt-*/steps.jsonl"))


def is_written_to(path: Path) -> bool:
    return path.stat().st_size > 0


def test_a_cancelled_run_ends_its_training_on_ray(ray_cluster, tmp_path):
    shop = make_shop(tmp_path / "shop")
    config = shop / "on-ray.toml"
    config.write_text(PIPELINE, encoding="utf-8")
    store = shop / "on-ray"
    (tmp_path / "prefect").mkdir()
    environment = ray_cluster.environment | {"RAY_ADDRESS": ray_cluster.address}
    with PrefectServer(tmp_path / "prefect", **environment) as server:
        run = server.trigger(config, DATE)
        wait_until(lambda: any(map(is_written_to, steps_of(store))), lambda: server.log("worker"))
        assert num_training_workers(ray_cluster) == 2
        server.set_state(run, "CANCELLING")
        wait_until(lambda: num_training_workers(ray_cluster) == 0, "the workers on Ray to end")
        assert server.end_of(run)["type"] == "CANCELLED"
        wait_until(lambda: running_stages(store) == [], "the stage to end")
    assert not list(store.glob("train/*/manifest.json"))
