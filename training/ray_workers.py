"""Several workers through Ray Train (V2): the same worker function in each, gloo between them.

A worker that dies is replaced by Ray and all go on from the run's own checkpoint. A second `fit` of a name that
finished would answer with the old result, so each run is named after its request and attempt.
"""

import contextlib
import errno
import logging
import os
import threading
from collections.abc import Iterator
from typing import Any, cast

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")

import ray
import ray.train
from ray.train.torch import TorchConfig, TorchTrainer

from schemas import storage
from schemas.errors import StageError
from schemas.stage import Progress
from training.checkpoint import WriteError
from training.worker import Job, work
from training.workers import ProcessGroup

RESTARTS = 2
POLL_SECONDS = 0.5
WRITE_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS}


def run_on_ray(job: Job, workers: int, name: str, progress: Progress) -> dict[str, Any]:
    """Metrics of the run, as training.worker.work. Raises StageError, also where workers died too often.

    Joins the cluster that this process is connected to or that RAY_ADDRESS names; without either it starts one of its
    own and ends it.
    """
    with _cluster(workers * job.threads):
        board: Any = ray.remote(num_cpus=0)(_Board).remote()
        trainer: Any = TorchTrainer(
            cast(Any, _ray_worker),
            train_loop_config={"job": job, "board": board},
            torch_config=TorchConfig(backend="gloo"),
            scaling_config=ray.train.ScalingConfig(num_workers=workers, resources_per_worker={"CPU": job.threads}),
            run_config=ray.train.RunConfig(
                name=name,
                storage_path=storage.join(job.checkpoints, "ray"),
                failure_config=ray.train.FailureConfig(max_failures=RESTARTS),
            ),
        )
        with _relay(board, progress):
            try:
                outcome = trainer.fit().return_value
            except ray.train.TrainingFailedError as error:
                raise _told(error, workers) from None
        ray.kill(board)
    if isinstance(outcome, StageError):
        raise outcome
    return outcome


def _ray_worker(config: dict[str, Any]) -> dict[str, Any] | StageError:
    board = config["board"]
    try:
        return work(config["job"], ProcessGroup(), lambda *told: board.tell.remote(*told))
    except WriteError:
        raise  # met by the first worker alone; Ray ends the others, which wait for it
    except StageError as error:
        return error  # met by all alike: trying again would not help


class _Board:
    """Where the first worker writes its progress, for the process that asked for the run."""

    def __init__(self) -> None:
        self._told: tuple | None = None

    def tell(self, *told: Any) -> None:
        self._told = told

    def read(self) -> tuple | None:
        return self._told


@contextlib.contextmanager
def _relay(board: Any, progress: Progress) -> Iterator[None]:
    stop, last = threading.Event(), None

    def relay() -> None:
        nonlocal last
        while not stop.wait(POLL_SECONDS):
            with contextlib.suppress(ray.exceptions.RayError):
                told = ray.get(board.read.remote())
                if told and told != last:
                    last = told
                    progress(*told)

    thread = threading.Thread(target=relay, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        with contextlib.suppress(ray.exceptions.RayError):
            if (told := ray.get(board.read.remote())) and told != last:
                progress(*told)


@contextlib.contextmanager
def _cluster(num_cpus: int) -> Iterator[None]:
    if ray.is_initialized():
        yield
        return
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if "RAY_ADDRESS" in os.environ:
        ray.init(**quiet)
    else:
        ray.init(address="local", num_cpus=num_cpus, include_dashboard=False, **quiet)
    try:
        yield
    finally:
        ray.shutdown()


def _told(error: Exception, workers: int) -> Exception:
    """What a worker met, if it says something to a user (our errors; a disk that is full), else that they failed."""
    failures = getattr(error, "worker_failures", {})
    for failure in failures.values():
        cause: BaseException | None = failure
        while cause is not None:
            if isinstance(cause, StageError) or (isinstance(cause, OSError) and cause.errno in WRITE_ERRORS):
                return cause
            cause = getattr(cause, "cause", None) or cause.__cause__
    kinds = ", ".join(sorted({type(failure).__name__ for failure in failures.values()})) or type(error).__name__
    return StageError(
        asked=f"training was to run on {workers} Ray workers",
        found=f"they failed more than {RESTARTS} times (the last time: {kinds}); Ray's own log has the traceback",
        follows="the last checkpoint is kept",
        do="run the same command again to go on from there, or with --workers 1",
    )
