"""A run is cancelled in its training on Ray; then the head is killed in another's, which goes on to the same bytes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from flows import stages
from flows.pipeline_config import read_pipeline
from schemas.stage import open_result
from tests.end_to_end.prefect_server import (
    ROOT,
    PrefectServer,
    claim,
    descendants,
    free_port,
    processes,
    running_stages,
    wait_until,
)
from tests.end_to_end.shop import make_shop

pytestmark = pytest.mark.engine
SECONDS = 300.0
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
epochs = 30
cells = 16
micro_batch = 32
minibatch = 128
[limits]
retries = 20
retry_seconds = 2
[publish]
to = "release"
"""
JOBS = """
import json, sys, ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
entrypoints = [job["Entrypoint"] for job in ray._private.state.jobs()]
print(json.dumps([one for one in entrypoints if "-m flows.cli " "train" in one]))  # not this one, which reads otherwise
"""


class RayCluster:
    """A head and a node of two CPUs, as deploy/ray starts them, on ports of their own."""

    def __init__(self, work: Path) -> None:
        self._work, self._processes = work, list[subprocess.Popen]()
        self._port = free_port()
        (work / "token").write_text(os.urandom(32).hex(), encoding="ascii")
        (work / "token").chmod(0o600)
        self.environment = {
            "RAY_ADDRESS": f"127.0.0.1:{self._port}",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(work / "token"),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_gcs_rpc_server_reconnect_timeout_s": "15",  # a minute, unless told: how long a lost head is waited for
        }

    def start(self) -> None:
        ports = ("--dashboard-port", "--ray-client-server-port", "--dashboard-agent-listen-port")
        self._start("head", "start-head", f"--port={self._port}", *(f"{port}={free_port()}" for port in ports))
        agent = f"--dashboard-agent-listen-port={free_port()}"
        self._start("node", "start-node", "2", f"--address={self.environment['RAY_ADDRESS']}", agent)

    def kill_head(self) -> None:
        self._kill(self._processes.pop(0))

    def end(self) -> None:
        while self._processes:
            self._kill(self._processes.pop())

    def trainings(self) -> list[str]:
        """The trainings in the list of jobs of the head that runs now."""
        command = [sys.executable, "-c", JOBS, self.environment["RAY_ADDRESS"]]
        done = subprocess.run(command, env=os.environ | self.environment, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def num_training_workers(self) -> int:
        """Processes of this cluster's nodes that train."""
        mine = {pid for process in self._processes for pid in descendants(process.pid)}
        return sum(pid in mine and "RayTrainWorker" in words[0] for pid, _, words in processes())

    def log(self, name: str) -> str:
        return (self._work / f"{name}.log").read_text()

    def _start(self, name: str, script: str, *options: str) -> None:
        """Until it runs: on a busy machine Ray gives up after half a minute."""
        command = [str(ROOT / "deploy/ray" / script), str(self._work), *options]

        def running() -> bool:
            if "Ray runtime started" in self.log(name):
                return True
            if self._processes[-1].poll() is not None:
                self._kill(self._processes.pop())
                self._processes.append(self._begin(name, command))
            return False

        self._processes.append(self._begin(name, command))
        wait_until(running, SECONDS, lambda: self.log(name))

    def _begin(self, name: str, command: list[str]) -> subprocess.Popen:
        environment = os.environ | self.environment
        with (self._work / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    @staticmethod
    def _kill(process: subprocess.Popen) -> None:
        for pid in (process.pid, *descendants(process.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def ray_cluster(tmp_path) -> Iterator[RayCluster]:
    pytest.importorskip("ray")
    (tmp_path / "ray").mkdir()
    cluster = RayCluster(tmp_path / "ray")
    cluster.start()
    yield cluster
    cluster.end()


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
    with PrefectServer(tmp_path / "prefect", **ray_cluster.environment) as server:
        cancelled = server.trigger(config, DATE)
        wait_until(lambda: any(map(is_written_to, steps_of(store))), SECONDS, lambda: server.log("worker"))
        assert ray_cluster.num_training_workers() == 2
        server.set_state(cancelled, "CANCELLING")
        wait_until(lambda: ray_cluster.num_training_workers() == 0, 30, "the workers on Ray to end")
        assert server.end_of(cancelled)["type"] == "CANCELLED"
        assert running_stages(store) == []

        begun = {path for path in steps_of(store) if is_written_to(path)}
        run = server.trigger(config, DATE)
        wait_until(
            lambda: any(path not in begun and is_written_to(path) for path in steps_of(store)),
            SECONDS,
            lambda: server.log("worker"),
        )
        first = claim(store, "train")
        ray_cluster.kill_head()
        ray_cluster.end()  # nodes end with their head, a minute later; here at once
        ray_cluster.start()
        ended = wait_until(lambda: list(store.glob("train/*/manifest.json")), SECONDS, lambda: str(server.logs_of(run)))
        assert server.end_of(run)["type"] == "COMPLETED", server.logs_of(run)
    manifest = open_result(str(ended[0].parent)).manifest
    assert manifest.attempt not in first["attempts"]
    assert len(ray_cluster.trainings()) == 1, "one job in the new head's own list"
    assert running_stages(store) == []

    trained = weights(store)
    undisturbed = stages.train(replace(known, store=str(shop / "undisturbed")), shards)
    assert weights(shop / "undisturbed") == trained
    assert undisturbed["digest"] == manifest.digest
