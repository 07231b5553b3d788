"""Several workers through Ray Train (V2): the same worker function in each, with gloo between them (NCCL if each has a
GPU).

Ray Train starts the workers, notices the loss of a worker or its node, and restarts all of them, with as many as there
is room for if a run may continue with fewer. Runs do not resume from Ray's own checkpoints: they count only once its
controller has recorded them, and a damaged one ends a run. The run's checkpoints are beside its attempt, whoever
started the workers (checkpoint). Ray keeps a pointer to them for each epoch, with the epoch's figures, as its
documentation advises.

A run is named by its request. Ray would answer a second run of a name with the first one's result, so its folder
belongs to one attempt and is removed with it.
"""

import json
import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pyarrow.fs
import ray
import ray.train
import torch
from ray.train.torch import TorchConfig, TorchTrainer
from ray.train.torch.config import _TorchBackend
from ray.train.v2._internal.execution.callback import ControllerCallback
from ray.train.v2._internal.execution.controller.state import RunningState

from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, TransientError
from clicktower.schemas.stage import Progress, scratch_folder
from clicktower.training.model.model_folder import WEIGHTS
from clicktower.training.trainer.job import TrainingJob
from clicktower.training.trainer.local_workers import LossesInVain, is_lasting
from clicktower.training.trainer.process_group import ProcessGroup, gpu_share, process_group_backend
from clicktower.training.trainer.ray_cluster import (
    board_of,
    cluster,
    cluster_lost_error,
    is_of_this_machine_alone,
    relayed,
)
from clicktower.training.trainer.worker import work

ROOM_SECONDS = 600.0  # seconds to wait for workers' places: a lost node may be replaced
GROW_SECONDS = 60.0  # seconds between checks for more room in a reduced run


def run_on_ray(job: TrainingJob, workers: int, progress: Progress, *, min_workers: int | None = None) -> dict[str, Any]:
    """Metrics of the run, as worker.work. Raises StageError, also if workers are lost repeatedly.

    Joins the cluster that this process is connected to or that RAY_ADDRESS names; without either it starts one and ends
    it. `workers`: 0 for one on each of its GPUs, or one. `min_workers`: see launch.train.
    """
    v2: Any = ray.train  # its declared types are those of Train V1
    with ExitStack() as at_the_end:
        at_the_end.enter_context(raising_user_errors())
        at_the_end.enter_context(cluster(workers * job.threads))
        workers = max(workers or _count_cluster_gpus(), min_workers or 1)
        num_gpus = _gpus(job)
        job = replace(job, threads=job.threads or (1 if num_gpus else _max_threads(workers)))
        board = at_the_end.enter_context(board_of(job.checkpoints, progress))
        trainer: Any = TorchTrainer(
            cast(Any, _ray_worker),
            train_loop_config={"job": job, "board": board},
            torch_config=(_OnOneMachine if is_of_this_machine_alone() else TorchConfig)(
                backend=process_group_backend(workers, num_gpus)
            ),
            scaling_config=v2.ScalingConfig(
                num_workers=workers if min_workers in (None, workers) else (min_workers, workers),
                elastic_resize_monitor_interval_s=GROW_SECONDS,
                use_gpu=num_gpus > 0,
                resources_per_worker={"CPU": job.threads} | gpu_share(workers, num_gpus),
            ),
            run_config=v2.RunConfig(
                name=job.digest,
                **storage_of(scratch_folder(job.output)),
                # No limits of Ray's own: see ray_workers.
                failure_config=v2.FailureConfig(max_failures=-1, controller_failure_limit=-1),
                callbacks=[EndInVain(job.checkpoints, workers), EndWithoutRoom(workers, ROOM_SECONDS)],
            ),
        )
        with relayed(board, progress):
            result = trainer.fit()
    if not result.return_value:  # it stopped early, as requested
        return {}
    if not storage.exists(storage.join(job.output, WEIGHTS)):
        raise StageError(
            f"The first worker wrote the model to {job.output}, and it is not visible from here.",
            "Put the store where every node sees it: a shared folder, or a URI.",
        )
    epochs = [int(epoch) for epoch in result.metrics_dataframe["epoch"]]
    return {**result.return_value, "ray_train": {"run": job.digest, "epochs_reported": epochs}}


@dataclass
class _OnOneMachine(TorchConfig):
    """Lets the workers of one machine find each other through a file, since torch's store listens on all networks
    (https://github.com/pytorch/pytorch/issues/173909). Ray's TorchConfig has no setting for that, so this class
    replaces the backend behind it.
    """

    @property
    def backend_cls(self) -> type[Any]:
        return _ByFile


class _ByFile(_TorchBackend):
    def on_start(self, worker_group: Any, backend_config: Any) -> None:
        folder = tempfile.mkdtemp(prefix="clicktower-workers-")  # a new one at each start of the workers
        weakref.finalize(worker_group, shutil.rmtree, folder, ignore_errors=True)
        workers, address = len(worker_group), f"file://{folder}/found"
        ray.get([
            worker_group.execute_single_async(number, _join, backend_config.backend, address, number, workers)
            for number in range(workers)
        ])  # fmt: skip


def _join(backend: str, address: str, number: int, workers: int) -> None:
    torch.distributed.init_process_group(backend, init_method=address, rank=number, world_size=workers)


class RayGroup(ProcessGroup):
    """Ray Train's workers. An epoch's figures are a report to Ray, with a pointer to the run's own checkpoints."""

    def __init__(self, checkpoints: str) -> None:
        super().__init__()
        self._checkpoints = checkpoints

    def report(self, figures: Mapping[str, Any]) -> None:
        if self.rank:
            ray.train.report({})
            return
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "pointer.json").write_text(json.dumps({"uri": self._checkpoints, **figures}))
            ray.train.report(dict(figures), checkpoint=ray.train.Checkpoint.from_directory(folder))


def _ray_worker(config: dict[str, Any]) -> dict[str, Any]:
    job, board = config["job"], config["board"]
    return work(job, RayGroup(job.checkpoints), lambda *progress: board.post.remote(*progress))


def _count_cluster_gpus() -> int:
    return int(ray.cluster_resources().get("GPU", 0))


def _gpus(job: TrainingJob) -> int:
    """The number of the cluster's GPUs for the job, 0 on the CPU. Raises StageError for a GPU job without one."""
    if job.device == "cpu":
        return 0
    if not (num_gpus := _count_cluster_gpus()):
        raise StageError(
            f"The Ray cluster has no GPU, and training is to run on {job.device}.",
            "Add a node that has one, or train with device=cpu.",
        )
    return num_gpus


def _max_threads(workers: int) -> int:
    """The most threads that each of a number of workers can have on the cluster's current nodes."""
    cores = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
    fitting = (
        threads for threads in range(max(cores), 1, -1) if sum(num_cores // threads for num_cores in cores) >= workers
    )
    return next(fitting, 1)


def storage_of(uri: str) -> dict[str, Any]:
    """The storage for Ray's files of a run, on the file system of the store, in Ray's form."""
    fs, path = storage.filesystem(uri)
    if storage.is_local(uri):
        return {"storage_path": path}
    return {"storage_path": path, "storage_filesystem": pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(fs))}


SECONDS_IN_VAIN = 60.0  # until Ray notices a dead node, it may start workers there repeatedly
WAIT_SECONDS = 1.0


# Ray Train limits the total number of losses, which a long healthy run reaches too, but not the wait for room. Its
# controller calls these two before it starts the workers again; their errors end the run. A public callback
# (ray.train.UserCallback) does not see the wait, so EndWithoutRoom is of Ray's internal kind; more hooks are asked for
# (https://github.com/ray-project/ray/issues/64252).


class EndInVain(ray.train.UserCallback):
    """Ends a run that another try would not help: at an error that says so, or at losses without a checkpoint."""

    def __init__(self, checkpoints: str, workers: int) -> None:
        self._losses = LossesInVain(checkpoints, workers, seconds=SECONDS_IN_VAIN)

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        for error in worker_exceptions.values():
            if cause := user_error(error):
                raise cause
        self._losses.note(type(error).__name__ for error in worker_exceptions.values())


class EndWithoutRoom(ControllerCallback):
    """Ends a run that has waited too long for room for its workers."""

    def __init__(self, workers: int, seconds: float) -> None:
        self._workers, self._seconds = workers, seconds
        self._since: float | None = None

    def after_controller_state_update(self, previous_state: Any, current_state: Any) -> None:
        if isinstance(current_state, RunningState) or current_state.is_terminal():
            self._since = None
            return
        self._since = self._since or time.monotonic()
        if time.monotonic() - self._since >= self._seconds:
            raise TransientError(
                f"For {self._seconds:,.0f} seconds the cluster has had no room for {self._workers} Ray workers: a node"
                " is missing. The last checkpoint is kept.",
                "Add a node, or run the same command with fewer --workers (or --min-workers): it continues there.",
            )
        if type(previous_state) is type(current_state):
            time.sleep(WAIT_SECONDS)  # Ray would retry at once


@contextmanager
def raising_user_errors() -> Iterator[None]:
    """Turn Ray's exceptions into errors that a user can act on: one of ours, or that the cluster was lost."""
    try:
        yield
    except (ray.train.TrainingFailedError, ray.exceptions.RayTaskError, ray.exceptions.AuthenticationError) as error:
        raise user_error(error) or error from None
    except (ray.exceptions.RayError, ConnectionError) as error:  # the head, or the node of this process
        raise user_error(error) or cluster_lost_error(error) from None


def user_error(error: BaseException | None) -> Exception | None:
    """The cause of a Ray error if a user can act on it: an error of ours, or a full disk; otherwise None."""
    while error is not None:
        if isinstance(error, Exception) and is_lasting(error):
            return error
        failures = getattr(error, "worker_failures", {})
        for failure in failures.values():
            if cause := user_error(failure):
                return cause
        error = getattr(error, "controller_failure", None) or getattr(error, "cause", None) or error.__cause__
    return None


os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")
# The watcher of nodes about to be preempted is one more process, and an interrupted run loses little.
os.environ.setdefault("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0")
# How often Ray Train checks its workers. It takes one report from each at a time, so this is also the minimum duration
# of an epoch.
os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.5")
