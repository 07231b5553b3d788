"""The trials of a sweep as tasks of a Ray cluster, which places them and reports the loss of a process or a node.

A lost trial starts again on any node with room, and continues from its last checkpoint. Ray's own retries are not used:
those after a lack of memory have no limit.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import ray
from ray.util.queue import Queue

from clicktower.schemas.errors import StageError
from clicktower.schemas.stage import silent
from clicktower.training.sweep.trial_process import LISTEN_SECONDS, Key, TrialOutcome, TrialStatus, train_trial
from clicktower.training.trainer.ray_cluster import cluster, on_this_node
from clicktower.training.trainer.ray_workers import ROOM_SECONDS

LOSSES = 10  # of one trial; after so many the nodes are not the cause
CANCEL_SECONDS = 2.0  # for a trial to clear its attempt away


@contextmanager
def ray_executor(*, workers: int, threads: int, on_gpu: bool, at_once: int | None) -> Iterator["RayTasks"]:
    """A sweep_stage.TrialExecutor: tasks on the cluster that RAY_ADDRESS names, or on a Ray of this machine's own.

    `at_once`: None for as many as there is room for.
    """
    with cluster(workers * threads * (at_once or 1)):
        tasks = RayTasks(workers, threads, on_gpu, at_once)
        try:
            yield tasks
        finally:
            tasks.cancel()


class RayTasks:
    def __init__(self, workers: int, threads: int, on_gpu: bool, at_once: int | None) -> None:
        resources: dict[str, Any] = {"num_cpus": threads, "num_gpus": int(on_gpu)}
        if workers > 1:  # Ray Train places the workers
            resources = {"num_cpus": 0}
            there, each = ray.cluster_resources(), {"CPU": threads, "GPU": int(on_gpu)}
            room = min(int(there.get(name, 0)) // (workers * number) for name, number in each.items() if number)
            at_once = at_once or max(1, room)
        self._train: Any = ray.remote(**resources, max_retries=0, max_calls=1)(_train)
        self._at_once = at_once
        self._started = Queue(actor_options=on_this_node())
        self._tasks: dict[Any, tuple[Key, Mapping[str, Any]]] = {}
        self._placed: set[Key] = set()
        self._placed_at = time.monotonic()  # when a trial was last placed
        self._losses = Counter[Key]()

    def has_room(self) -> bool:
        return not self._at_once or len(self._tasks) < self._at_once

    def start(self, key: Key, arguments: Mapping[str, Any]) -> None:
        self._tasks[self._train.remote(key, arguments, self._started)] = key, arguments

    def news(self) -> list[tuple[Key, TrialStatus | TrialOutcome]]:
        messages: list[tuple[Key, TrialStatus | TrialOutcome]] = []
        ready, _ = ray.wait(list(self._tasks), timeout=LISTEN_SECONDS)
        for key in self._started.get_nowait_batch(self._started.qsize()):
            self._placed.add(key)
            messages.append((key, TrialStatus(activity="started", count=0, total=None)))
        for task in ready:
            key, arguments = self._tasks.pop(task)
            self._placed.discard(key)
            try:
                messages.append((key, ray.get(task)))
            except ray.exceptions.RayError as error:
                self._losses[key] += 1
                if self._losses[key] > LOSSES or isinstance(error, ray.exceptions.RayTaskError):
                    messages.append((key, TrialOutcome(error=_lost(self._losses[key], error))))
                else:
                    self.start(key, arguments)
        if self._placed or ready:
            self._placed_at = time.monotonic()
        elif time.monotonic() - self._placed_at > ROOM_SECONDS:
            messages += [(key, TrialOutcome(error=_no_room())) for key, _ in self._tasks.values()]
            self.cancel()
        return messages

    def cancel(self) -> None:
        """End all trials."""
        tasks = list(self._tasks)
        self._tasks.clear()
        with suppress(ray.exceptions.RayError):
            for task in tasks:
                ray.cancel(task)
            ray.wait(tasks, num_returns=len(tasks), timeout=CANCEL_SECONDS) if tasks else None
            for task in tasks:
                ray.cancel(task, force=True)


def _train(key: Key, arguments: Mapping[str, Any], started: Queue) -> TrialOutcome:
    """One trial, in a process of its own on some node."""
    started.put(key)
    return TrialOutcome(error=train_trial(arguments, silent).error)


def _no_room() -> StageError:
    return StageError(
        f"For {ROOM_SECONDS:,.0f} seconds no node of the Ray cluster has had room for a trial. Finished trials are"
        " kept.",
        "Add a node, or let a trial take fewer threads.",
    )


def _lost(times: int, error: Exception) -> StageError:
    return StageError(
        f"The process of the trial was lost {times} times on the Ray cluster, the last time with"
        f" {type(error).__name__}. A new start continues from its last checkpoint.",
        "Look for too little memory on the nodes, and for the package on each of them.",
    )
