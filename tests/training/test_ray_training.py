"""Real Ray Train workers, and processes that are really killed: always the same bytes."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from schemas import storage
from tests.training.small_shards import shop, write_build
from training.checkpoint import list_updates
from training.launch import train
from training.recipes import Recipe

torch.set_num_threads(1)
ROOT = Path(__file__).parents[2]
RECIPE = Recipe(name="small", cells=16, epochs=3, minibatch=32, micro_batch=8, step=0.02, momentum_middle=0.95,
                clip_norm=5.0)  # fmt: skip


@pytest.fixture(scope="module")
def build(tmp_path_factory) -> str:
    pairs, pool = shop(320)
    dev, _ = shop(30, seed=9)
    return write_build(str(tmp_path_factory.mktemp("build")), {"train-00000": pairs, "dev-00000": dev}, pool)


@pytest.fixture(scope="module")
def expected(build, tmp_path_factory) -> bytes:
    """The weights of an uninterrupted run in process."""
    return weights(train(build, store=str(tmp_path_factory.mktemp("alone")), recipe=RECIPE, threads=1))


@pytest.fixture(scope="module")
def cluster():
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray = pytest.importorskip("ray")
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield ray
    ray.shutdown()


def own_train_workers() -> list[int]:
    """Process ids of the Ray Train workers that descend from this process: another cluster's are not ours to end."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    processes = [
        (int(pid), int(parent), args) for pid, parent, args in (line.split(None, 2) for line in listed.splitlines())
    ]
    ours = {os.getpid()}
    while more := {pid for pid, parent, _ in processes if parent in ours} - ours:
        ours |= more
    return [pid for pid, _, args in processes if pid in ours and "RayTrainWorker" in args]


def weights(result) -> bytes:
    return storage.read_bytes(f"{result.data}/model.safetensors")


def test_a_killed_process_is_continued_to_the_same_bytes(build, expected, tmp_path):
    """kill -9 at two moments, then once more to the end."""
    script = (
        "import sys; from tests.training.test_ray_training import RECIPE; from training.launch import train\n"
        "import time\n"
        "def slowly(*told): time.sleep(0.02)\n"
        "train(sys.argv[1], store=sys.argv[2], recipe=RECIPE, threads=1, checkpoint_seconds=0.0, progress=slowly)\n"
    )
    for least in (4, 15):
        process = subprocess.Popen(
            [sys.executable, "-c", script, build, str(tmp_path)],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        deadline = time.monotonic() + 120
        while not any(u >= least for folder in tmp_path.glob("train/*/checkpoints") for u in list_updates(str(folder))):
            assert process.poll() is None, process.stderr.read().decode()
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stderr.close()
    assert not list(tmp_path.glob("train/*/manifest.json")), "it was to be killed before it finished"
    result = train(build, store=str(tmp_path), recipe=RECIPE, threads=1)
    assert result.manifest.outcome.metrics["resumed_at"] >= 15
    assert weights(result) == expected


@pytest.mark.engine
def test_two_ray_workers_give_the_same_bytes_as_one_process(build, expected, tmp_path, cluster):
    told = []
    result = train(
        build, store=str(tmp_path), recipe=RECIPE, workers=2, threads=1, progress=lambda *what: told.append(what)
    )
    assert weights(result) == expected
    assert result.manifest.outcome.metrics["workers"] == 2
    assert told[-1][1:] == (960, 960)
    assert sorted(os.listdir(result.folder)) == sorted(["manifest.json", result.manifest.attempt])


@pytest.mark.engine
def test_a_lost_ray_worker_is_replaced_and_the_bytes_stay(build, expected, tmp_path, cluster):
    """The process of one worker is killed once, after a checkpoint; Ray starts the workers again."""
    killed = []

    def kill_one() -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not killed:
            if any(list_updates(str(folder)) for folder in tmp_path.glob("train/*/checkpoints")):
                for pid in own_train_workers()[:1]:
                    killed.append(pid)
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)

    thread = threading.Thread(target=kill_one)
    thread.start()
    result = train(build, store=str(tmp_path), recipe=RECIPE, workers=2, threads=1, checkpoint_seconds=0.0)
    thread.join()
    assert killed
    assert result.manifest.outcome.metrics["resumed_at"] > 0
    assert weights(result) == expected
