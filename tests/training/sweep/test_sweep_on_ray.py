"""A sweep as a job on a real Ray head, with its dashboard, its token, and nodes that are really killed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clicktower.flows.cli import run
from clicktower.training.sweep.trial_process import Key, TrialOutcome, TrialStatus
from tests.ray_cluster import RayCluster
from tests.training.small_shards import shop, write_build
from tests.waiting import SECONDS, runs, wait_until

BIN = Path(sys.executable).parent

SWEEP = """
shards = "{shards}"
into = "{store}"
measure = "dev_loss"
threads = 1
{more}
[set]
tower.cells = 8
minibatch = 32
micro_batch = 8
epochs = {epochs}
[fields]
optimiser.step = [0.001, 0.02]
"""
HALVING = "[halving]\neta = 2\nmin_epochs = 20\n"


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> str:
    pairs, pool = shop(120)
    dev, _ = shop(30, seed=9)
    place = str(tmp_path_factory.mktemp("build"))
    return write_build(place, {"train-00000": pairs, "dev-00000": dev}, pool)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[RayCluster]:
    pytest.importorskip("ray")
    # A dead node is noticed after five seconds instead of half a minute.
    quick = {"period_ms": "1000", "failure_threshold": "5", "initial_delay_ms": "0"}
    environment = {f"RAY_health_check_{name}": value for name, value in quick.items()}
    with RayCluster(tmp_path_factory.mktemp("ray"), {"node-1": 1, "node-2": 1}, **environment) as cluster:
        yield cluster


def job(cluster: RayCluster, *words: str) -> subprocess.Popen:
    """`ray job ...` with the token, at the dashboard."""
    command = [str(BIN / "ray"), "job", words[0], "--address", f"http://127.0.0.1:{cluster.dashboard}", *words[1:]]
    environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"} | cluster.environment
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def so_far(cluster: RayCluster, submitted: subprocess.Popen) -> object:
    """What a job that does not get on has said, and what became of the nodes."""
    submitted.kill()
    return submitted.communicate()[0], cluster.nodes()


def trainings(store: Path) -> list[int]:
    """The processes that train now: who makes an output signs a claim on it."""
    found = []
    for claim in store.glob("train/*/claim.json"):
        try:
            found.append(json.loads(claim.read_text())["process"])
        except (OSError, ValueError):  # given back, or being signed
            continue
    return found


def write(path: Path, shards: str, *, epochs: int, more: str = "", halving: str = "") -> tuple[str, Path]:
    """The path of a sweep, and that of its store."""
    path.mkdir()
    text = SWEEP.format(shards=shards, store=path / "store", epochs=epochs, more=more) + halving
    (path / "sweep.toml").write_text(text, encoding="utf-8")
    return str(path / "sweep.toml"), path / "store"


def told(rows: list[dict]) -> list:
    """What a table says, but for how long it took."""
    return [
        (row["fields"], row["mean"], [(t["digest"], t["epochs"], t["measures"], t["curve"]) for t in row["trials"]])
        for row in rows
    ]


@pytest.mark.rehearsal
@pytest.mark.engine
@pytest.mark.several_machines
def test_a_job_on_a_cluster_that_loses_a_node_ends_with_the_same_best_trial(cluster, shards, tmp_path, capsys):
    """The node is killed, as a whole, while it trains the last trial from the checkpoint of the rung before."""
    config, store = write(tmp_path / "on-ray", shards, epochs=60, halving=HALVING)
    submitted = job(cluster, "submit", "--", "clicktower", "sweep", config, "--json")
    before: set[int] = set()
    wait_until(
        lambda: _is_in_last_rung(store, before) or submitted.poll() is not None, lambda: so_far(cluster, submitted)
    )
    assert submitted.poll() is None, submitted.communicate()[0]
    [process] = trainings(store)
    [node] = [name for name in ("node-1", "node-2") if process in {one.pid for one in cluster.processes(name)}]
    cluster.kill(node)
    assert not list(store.glob("train/*/manifest.json")), "it was to be killed before it finished"
    output = submitted.communicate(timeout=SECONDS)[0]
    assert submitted.returncode == 0, output
    result = json.loads(next(line for line in output.splitlines() if line.startswith('{"stage"')))

    here, _ = write(tmp_path / "here", shards, epochs=60, more="at_once = 2", halving=HALVING)
    assert run(["sweep", here, "--json"]) == 0
    expected = json.loads(capsys.readouterr().out)
    assert told(result["metrics"]["rows"]) == told(expected["metrics"]["rows"])
    assert result["digest"] == expected["digest"]
    best = result["metrics"]["rows"][0]["trials"][0]
    manifest = json.loads((store / "train" / best["digest"] / "manifest.json").read_text())
    assert manifest["outcome"]["metrics"]["resumed_at"] == 20 * 4  # 120 pairs in minibatches of 32
    assert sorted(os.listdir(result["data"])) == ["best.toml", "sweep.html", "sweep.json", "sweep.md"]


def _is_in_last_rung(store: Path, before: set[int]) -> bool:
    """Both trials were stopped at the first rung, where each kept a checkpoint, and one goes on, in a process of its
    own. `before`: those of the first rung, as they are seen."""
    at_work = trainings(store)
    if len(list(store.glob("train/*/checkpoints/update-000000080.json"))) < 2:
        before.update(at_work)
    return len(at_work) == 1 and not before.issuperset(at_work)


@pytest.mark.rehearsal
@pytest.mark.engine
@pytest.mark.several_machines
def test_a_job_that_is_stopped_ends_its_trials_and_keeps_what_is_finished(cluster, shards, tmp_path, capsys):
    config, store = write(tmp_path / "stopped", shards, epochs=100_000)
    submission = ("submit", "--submission-id", "to-be-stopped", "--", "clicktower", "sweep", config)
    submitted = job(cluster, *submission)

    def is_under_way() -> bool:
        nonlocal submitted
        head_is_lost = cluster.has_ended("head")
        cluster.start()  # the test before killed a node; a busy machine loses more, and with the head its jobs
        if head_is_lost:
            submitted.kill()
            submitted = job(cluster, *submission)
        return bool(trainings(store)) or submitted.poll() is not None

    wait_until(is_under_way, lambda: so_far(cluster, submitted))
    assert submitted.poll() is None, submitted.communicate()[0]
    [process, *_] = trainings(store)
    stop = job(cluster, "stop", "to-be-stopped")
    assert stop.wait(SECONDS) == 0, stop.communicate()[0]
    wait_until(lambda: not runs(process))
    submitted.communicate(timeout=SECONDS)
    assert not list(store.glob("sweep/*/manifest.json"))


def _is_lost_once(key: Key, arguments: dict, started: Any) -> TrialOutcome:
    """In place of a trial."""
    started.put(key)
    before = Path(arguments["before"])
    if before.exists():
        return TrialOutcome()
    before.touch()
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


@pytest.mark.rehearsal
@pytest.mark.engine
@pytest.mark.several_machines  # the nodes of the tests above are still there
@pytest.mark.parametrize("losses", [0, 1])
def test_a_trial_whose_process_is_lost_is_started_again_but_not_for_ever(tmp_path, monkeypatch, losses):
    pytest.importorskip("ray")
    from clicktower.training.sweep import sweep_on_ray

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(sweep_on_ray, "_train", _is_lost_once)
    monkeypatch.setattr(sweep_on_ray, "LOSSES", losses)
    with sweep_on_ray.ray_executor(workers=1, threads=1, on_gpu=False, at_once=2) as place:
        place.start((0, 0), {"before": str(tmp_path / "before")})
        heard: list[tuple] = []
        wait_until(lambda: heard.extend(place.news()) or any(isinstance(told, TrialOutcome) for _, told in heard))
    assert {key for key, _ in heard} == {(0, 0)}
    assert [type(told) for _, told in heard] == [TrialStatus] * (1 + losses) + [TrialOutcome]
    error = heard[-1][1].error
    assert error is None if losses else "process of the trial was lost 1 times" in error.problem
