"""Real Ray Train workers on nodes of a real cluster, and processes and nodes that are really killed: the same bytes.

The nodes are raylets of this machine with one CPU each, so each worker has a node of its own. They say that they have
a GPU, which training on the CPU leaves alone.
"""

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import safetensors.torch
import torch

from clicktower.flows import cli
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError
from clicktower.schemas.process import keeping_signal_handlers
from clicktower.training.model.recipe import Recipe
from clicktower.training.trainer.checkpoint import Position, list_updates, write_checkpoint
from clicktower.training.trainer.gpu_check import can_compile
from tests.recipes import recipe_with
from tests.training.small_shards import write_shop
from tests.training.trainings import train
from tests.waiting import SECONDS, wait_until

torch.set_num_threads(1)
ROOT = Path(__file__).parents[3]
RECIPE = recipe_with(name="small", cells=16, epochs=3, minibatch=32, micro_batch=8, step=0.02, momentum_middle=0.95,
                clip_norm=5.0)  # fmt: skip
# Ray takes a report of each epoch, two a second: a run of this lasts long enough for nodes to go, on any machine.
LONG = replace(RECIPE, epochs=40, minibatch=160)


@pytest.fixture(scope="module")
def shop_shards(tmp_path_factory) -> str:
    return write_shop(str(tmp_path_factory.mktemp("build")), 320, 30)


@pytest.fixture(scope="module")
def expected(shop_shards, tmp_path_factory) -> Callable[[Recipe], bytes]:
    """The weights of an uninterrupted run in process."""
    store = str(tmp_path_factory.mktemp("alone"))
    return lambda recipe: weights(train(shop_shards, store=store, recipe=recipe, threads=1))


class Nodes:
    """A cluster whose head has no CPU, like the machine that a job is submitted from, and nodes that come and go."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        # A dead node is noticed after three seconds instead of half a minute.
        quick = {
            "health_check_initial_delay_ms": 0,
            "health_check_period_ms": 1000,
            "health_check_failure_threshold": 3,
        }
        head = {"num_cpus": 0, "include_dashboard": False, "_system_config": quick}
        self.cluster = Cluster()
        started(lambda: self.cluster.add_node(wait=False, **head))
        self._nodes: list[Any] = []

    def be(self, number: int) -> None:
        """Have so many nodes, by starting or killing some."""
        while len(self._nodes) < number:
            self._nodes.append(started(lambda: self.cluster.add_node(wait=False, num_cpus=1, num_gpus=1)))
        while len(self._nodes) > number:
            self.cluster.remove_node(self._nodes.pop(), allow_graceful=False)


def started(add_node: Callable[[], Any]) -> Any:
    """Ray gives a node 30 seconds to start, which a slow or busy machine may not keep to."""
    while True:
        before = set(psutil.Process().children())
        try:
            return add_node()
        except Exception as error:
            if "timed out during startup" not in str(error):
                raise
            for raylet in set(psutil.Process().children()) - before:
                for process in (raylet, *raylet.children(recursive=True)):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.kill()


@pytest.fixture(scope="module")
def nodes():
    ray = pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as environment, keeping_signal_handlers():  # for the tests after this file
        environment.setenv("RAY_USAGE_STATS_ENABLED", "0")
        environment.setenv("RAY_API_SERVER_ADDRESS", "http://127.0.0.1:0")  # as in ray_cluster
        nodes = Nodes()
        ray.init(address=nodes.cluster.address, log_to_driver=False)
        yield nodes
        ray.shutdown()
        nodes.cluster.shutdown()


class Run:
    """`train` in a thread: nodes can be added from the main one alone."""

    def __init__(self, shop_shards: str, store: Path, **settings: Any) -> None:
        self.store, self._ended = store, []

        def run() -> None:
            try:
                self._ended.append(train(shop_shards, store=str(store), threads=1, checkpoint_seconds=0.0, **settings))
            except BaseException as error:
                self._ended.append(error)

        self._thread = threading.Thread(target=run)
        self._thread.start()

    def wait_for_update(self, update: int) -> None:
        """Until there is a checkpoint of that update, or a later one."""
        wait_until(lambda: newest_update(self.store) >= update or self._is_over())

    def wait_until_resumed_with(self, workers: int, *, after: int = 0) -> int:
        """How often the run was taken up, when it was more often than `after` times, and last by so many workers."""

        def taken_up() -> int:
            resumed = resumed_with(self.store)
            return len(resumed) if len(resumed) > after and resumed[-1] == workers else self._is_over()

        return wait_until(taken_up)

    def _is_over(self) -> int:
        """Never: what is waited for comes while the run goes on."""
        assert self._thread.is_alive(), self._ended
        return 0

    def result(self) -> Any:
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()
        if isinstance(self._ended[0], BaseException):
            raise self._ended[0]
        return self._ended[0]


def newest_update(store: Path) -> int:
    return max([0, *(update for folder in store.glob("train/*/checkpoints") for update in list_updates(str(folder)))])


def resumed_with(store: Path) -> list[int]:
    for head in sorted(store.glob("train/*/checkpoints/update-*.json"), reverse=True):
        with contextlib.suppress(FileNotFoundError):  # an older one, which gave way
            return [workers for _, workers in json.loads(head.read_text())["resumed"]]
    return []


def own_train_workers() -> list[int]:
    """Process ids of the Ray Train workers that descend from this process: another cluster's are not ours to end."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "RayTrainWorker" in "".join(process.cmdline()):
                found.append(process.pid)
    return found


@contextlib.contextmanager
def stopped(pids: list[int]) -> Iterator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    yield
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


def weights(result) -> bytes:
    return storage.read_bytes(f"{result.data}/model.safetensors")


JOB = (
    "import os, sys; from tests.training.trainer.test_ray_training import RECIPE\n"
    "from tests.training.trainings import train\n"
    "train(sys.argv[1], store=sys.argv[2], recipe=RECIPE, threads=1, checkpoint_seconds=0.0)"
)


def kill_at(update: int, shop_shards: str, store: Path) -> None:
    """Run a job as a process of its own, and kill -9 it when it has a checkpoint of that update."""
    process = subprocess.Popen(
        [sys.executable, "-c", JOB, shop_shards, str(store)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    while newest_update(store) < update:
        assert process.poll() is None, process.stderr.read().decode()
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stderr.close()


@pytest.mark.slow
def test_a_killed_process_is_continued_to_the_same_bytes(shop_shards, expected, tmp_path):
    """kill -9 at two moments, then once more to the end."""
    for update in (4, 15):
        kill_at(update, shop_shards, tmp_path)
    assert not list(tmp_path.glob("train/*/manifest.json")), "it was to be killed before it finished"
    result = train(shop_shards, store=str(tmp_path), recipe=RECIPE, threads=1)
    assert result.manifest.outcome.metrics["resumed_at"] >= 15
    assert weights(result) == expected(RECIPE)


@pytest.mark.rehearsal
@pytest.mark.engine
@pytest.mark.several_machines
def test_in_a_cluster_one_worker_is_on_it_too_and_auto_is_one_for_each_gpu(
    shop_shards, tmp_path, nodes, monkeypatch, capsys
):
    """`threads` is left out: what this machine has is more than a node does."""
    nodes.be(2)

    def trained(workers: str, store: str) -> tuple[dict[str, Any], bytes]:
        settings = ("tower.cells=16", "minibatch=32", "micro_batch=8", "epochs=3")
        sets = [word for setting in settings for word in ("--set", setting)]
        folders = ["--shards", shop_shards, "--into", str(tmp_path / store)]
        assert cli.run(["train", *folders, *sets, "--workers", workers, "--device", "cpu", "--json"]) == 0
        result = json.loads(capsys.readouterr().out)
        return result["metrics"], Path(result["data"], "model.safetensors").read_bytes()

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    here, expected = trained("1", "here")
    assert "ray_train" not in here
    monkeypatch.setenv("RAY_ADDRESS", nodes.cluster.address)
    for workers, number in (("1", 1), ("auto", 2)):
        metrics, content = trained(workers, workers)
        assert metrics["ray_train"]["epochs_reported"] == [1, 2, 3]
        assert (metrics["workers"], metrics["threads"]) == (number, 1)
        assert content == expected


def cpu_for_gpu(config: dict[str, Any]) -> dict[str, Any]:
    """A worker on a node whose GPU the CPU stands in for."""
    import ray

    from clicktower.training.model import parameters
    from clicktower.training.trainer import gpu_check, ray_workers

    assert ray.get_gpu_ids(), "Ray gave the worker a GPU"
    gpu_check.open_device = lambda _: parameters.CPU
    return ray_workers._ray_worker(config)


@pytest.mark.rehearsal
@pytest.mark.engine
@pytest.mark.several_machines
def test_a_machine_without_a_gpu_trains_on_those_of_the_cluster(shop_shards, expected, tmp_path, nodes, monkeypatch):
    """`auto` is the nodes' device. It is part of the request, so a model of the CPU is another one."""
    from clicktower.training.trainer import ray_workers
    from clicktower.training.trainer.ray_cluster import device_of_cluster

    nodes.be(2)
    on_gpu = device_of_cluster()
    assert on_gpu == ("cuda" if can_compile() else "cuda-eager")
    monkeypatch.setattr(ray_workers, "_ray_worker", cpu_for_gpu)
    monkeypatch.setattr(ray_workers, "process_group_backend", lambda *_: "gloo")  # NCCL needs real ones
    result = train(shop_shards, store=str(tmp_path), recipe=RECIPE, workers="auto", threads=1, in_cluster=True)
    metrics = result.manifest.outcome.metrics
    assert (metrics["device"], metrics["workers"]) == (on_gpu, 2)
    assert metrics["arithmetic"].startswith("triton-cuda" if on_gpu == "cuda" else "torch-cuda")
    vectors = safetensors.torch.load(weights(result)), safetensors.torch.load(expected(RECIPE))
    for name, values in vectors[0].items():
        torch.testing.assert_close(values, vectors[1][name], rtol=1e-3, atol=1e-4)
    nodes.be(0)
    assert device_of_cluster() == "cpu"


@pytest.mark.rehearsal
@pytest.mark.engine
@pytest.mark.several_machines
def test_a_worker_and_a_node_are_lost_and_come_back_and_the_bytes_stay(
    shop_shards, expected, tmp_path, nodes, monkeypatch
):
    """kill -9 of a worker; then a node goes: on with one worker; then there is a node again, and the run grows."""
    monkeypatch.setattr("clicktower.training.trainer.ray_workers.GROW_SECONDS", 2.0)
    monkeypatch.setenv("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "3")
    nodes.be(2)
    run = Run(shop_shards, tmp_path, recipe=LONG, workers=2, min_workers=1, in_cluster=True, device="cpu")
    run.wait_for_update(2)
    os.kill(own_train_workers()[0], signal.SIGKILL)
    taken_up = run.wait_until_resumed_with(2)
    nodes.be(1)
    taken_up = run.wait_until_resumed_with(1, after=taken_up)
    with stopped(own_train_workers()):  # or a quick one would be done before a node that starts slowly is there
        nodes.be(2)
    result = run.result()
    resumed = [start["workers"] for start in result.manifest.outcome.metrics["resumed"]]
    assert resumed[0] in (1, 2), "two, where the lost worker's room is noticed to be free at once"
    assert resumed[-2:] == [1, 2]
    assert len(resumed) > taken_up
    assert weights(result) == expected(LONG)


@pytest.mark.rehearsal
@pytest.mark.engine
@pytest.mark.several_machines
def test_a_node_that_nothing_replaces_ends_the_run_and_says_what_to_do(
    shop_shards, expected, tmp_path, nodes, monkeypatch
):
    monkeypatch.setattr("clicktower.training.trainer.ray_workers.ROOM_SECONDS", 5.0)
    monkeypatch.setenv("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "3")
    nodes.be(2)
    run = Run(shop_shards, tmp_path, recipe=LONG, workers=2, in_cluster=True, device="cpu")
    run.wait_for_update(2)
    nodes.be(1)
    with pytest.raises(StageError, match=r"no room for 2 Ray workers: a node is missing.*fewer --workers"):
        run.result()
    result = train(shop_shards, store=str(tmp_path), recipe=LONG, workers=1, threads=1)
    assert result.manifest.outcome.metrics["resumed_at"] >= 2
    assert weights(result) == expected(LONG)


@pytest.mark.rehearsal
@pytest.mark.engine
@pytest.mark.several_machines
def test_an_error_that_one_worker_meets_ends_the_run_at_once(shop_shards, tmp_path, nodes):
    """The first worker alone writes, and cannot: the other one is not waited for, and nobody tries again."""
    nodes.be(2)
    store = tmp_path / "store"
    blocked = store / "train" / train_digest(shop_shards) / "checkpoints"
    blocked.parent.mkdir(parents=True)
    blocked.write_text("a file where the folder of the checkpoints should be")
    run = Run(shop_shards, store, recipe=RECIPE, workers=2, in_cluster=True, device="cpu")
    with pytest.raises(StageError, match="checkpoint of update 1 could not be written"):
        run.result()


def train_digest(shop_shards: str) -> str:
    from clicktower.schemas.stage import open_result
    from clicktower.training.trainer.launch import train_request

    return train_request(open_result(shop_shards), RECIPE).digest


def test_ray_keeps_its_files_on_the_file_system_of_the_store():
    ray_workers = pytest.importorskip("clicktower.training.trainer.ray_workers")
    given = pickle.loads(pickle.dumps(ray_workers.storage_of("memory://ray/run")))
    with given["storage_filesystem"].open_output_stream(f"{given['storage_path']}/pointer.json") as file:
        file.write(b"{}")
    assert storage.list_files("memory://ray") == ["run/pointer.json"]
    assert ray_workers.storage_of("/somewhere/run") == {"storage_path": "/somewhere/run"}


def test_losses_end_a_run_only_where_no_checkpoint_comes_in_between_and_ray_has_had_time(tmp_path, monkeypatch):
    from clicktower.training.trainer.local_workers import LOSSES_IN_VAIN
    from clicktower.training.trainer.ray_workers import EndInVain

    end, lost = EndInVain(str(tmp_path), 2), {1: RuntimeError("connection closed by peer")}
    for update in range(1, 20):  # as often as may be, if it goes on in between
        write_checkpoint(str(tmp_path), "run", Position(update=update), {})
        end.after_exception(None, lost)
    for _ in range(LOSSES_IN_VAIN):  # more than that, but within moments: a dead node may not be noticed yet
        end.after_exception(None, lost)
    monkeypatch.setattr(end._losses, "_seconds", 0.0)
    with pytest.raises(StageError, match=r"lost 6 times in a row.*RuntimeError.*checkpoint of update 19 is kept"):
        end.after_exception(None, lost)
    write_checkpoint(str(tmp_path), "run", Position(update=20), {})
    for _ in range(LOSSES_IN_VAIN - 1):
        end.after_exception(None, lost)
    with pytest.raises(StageError, match=r"lost 4 times in a row.*checkpoint of update 20 is kept"):
        end.after_exception(None, lost)
