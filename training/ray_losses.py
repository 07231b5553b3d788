"""When a run on Ray ends instead of being taken up again. Ray Train has a limit on losses in all, which a long run
reaches however well it goes on, and none on waiting for room.

Both are called in Ray Train's controller, before it starts the workers again; what they raise ends the run.
"""

import errno
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
import ray.train
from ray.train.v2._internal.execution.callback import ControllerCallback
from ray.train.v2._internal.execution.controller.state import (
    InitializingState,
    ReschedulingState,
    ResizingState,
    RestartingState,
    SchedulingState,
)

from schemas.errors import StageError, TransientError
from training.checkpoint import list_updates

LOSSES_IN_VAIN = 4
WAITING = (InitializingState, SchedulingState, ReschedulingState, RestartingState, ResizingState)
WRITE_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS}
WAIT_SECONDS = 1.0


class EndInVain(ray.train.UserCallback):
    """Ends a run where trying again would not help: at an error that says so, or at losses without a checkpoint."""

    def __init__(self, checkpoints: str, workers: int) -> None:
        self._checkpoints, self._workers = checkpoints, workers
        self._newest, self._losses = -1, 0

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        for error in worker_exceptions.values():
            if told := error_for_a_user(error):
                raise told
        newest = next(iter(list_updates(self._checkpoints)), 0)
        self._losses = self._losses + 1 if newest == self._newest else 1
        self._newest = newest
        if self._losses >= LOSSES_IN_VAIN:
            kinds = ", ".join(sorted({type(error).__name__ for error in worker_exceptions.values()}))
            raise TransientError(
                asked=f"training was to run on {self._workers} Ray workers",
                found=f"some were lost {self._losses} times in a row without a new checkpoint in between"
                f" (the last time: {kinds}); Ray's own log has the traceback",
                follows=_kept(newest),
                do="run the same command again to go on from there, or with --workers 1",
            )


class EndWithoutRoom(ControllerCallback):
    """Ends a run that has waited too long for its workers' places."""

    def __init__(self, workers: int, seconds: float) -> None:
        self._workers, self._seconds = workers, seconds
        self._since: float | None = None

    def after_controller_state_update(self, previous_state: Any, current_state: Any) -> None:
        if not isinstance(current_state, WAITING):
            self._since = None
            return
        self._since = self._since or time.monotonic()
        if time.monotonic() - self._since >= self._seconds:
            raise TransientError(
                asked=f"training was to run on {self._workers} Ray workers",
                found=f"for {self._seconds:,.0f} seconds the cluster has had no room for them: a node is missing",
                follows="the last checkpoint is kept",
                do="add a node, or run the same command with fewer --workers (or --min-workers): it goes on from there",
            )
        if type(previous_state) is type(current_state):
            time.sleep(WAIT_SECONDS)  # Ray would ask again at once


@contextmanager
def told_as_losses(workers: int) -> Iterator[None]:
    """Within, what Ray raises arrives as what a user can act on: an error of ours, or that the cluster was lost."""
    try:
        yield
    except ray.train.TrainingFailedError as error:
        raise error_for_a_user(error) or error from None
    except (ray.exceptions.RayTaskError, ray.exceptions.AuthenticationError) as error:
        raise error_for_a_user(error) or error from None
    except (ray.exceptions.RayError, ConnectionError) as error:  # the head, or the node of this process
        raise error_for_a_user(error) or cluster_lost(workers, error) from None


def cluster_lost(workers: int, error: Exception) -> TransientError:
    """What is told where the cluster does not answer, or not any more."""
    return TransientError(
        asked=f"training was to run on {workers} Ray workers",
        found=f"the cluster does not answer ({type(error).__name__})",
        follows="the last checkpoint is kept",
        do="look whether its head runs (RAY_ADDRESS names it); the same command goes on from the checkpoint",
    )


def error_for_a_user(error: BaseException | None) -> Exception | None:
    """What an error of Ray's is about, if that says something to a user: an error of ours, or a disk that is full."""
    while error is not None:
        if isinstance(error, StageError) or (isinstance(error, OSError) and error.errno in WRITE_ERRORS):
            return error
        failures = getattr(error, "worker_failures", {})
        told = [found for failure in failures.values() if (found := error_for_a_user(failure))]
        if told:
            return told[0]
        error = getattr(error, "controller_failure", None) or getattr(error, "cause", None) or error.__cause__
    return None


def _kept(newest: int) -> str:
    return f"the checkpoint of update {newest:,} is kept" if newest else "there is no checkpoint yet"
