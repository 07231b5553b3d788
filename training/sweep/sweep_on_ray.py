"""The trials of a sweep on the nodes of a Ray cluster, placed there by Ray Tune.

Tune is given trials that are still to be trained, and nothing to decide: it finds them room, and starts a trial again,
on another node, when its own is lost. What there is and what comes next is known by the digests in the store, from
whose checkpoints a trial goes on wherever it is started. So Tune's own record of an experiment is of no use afterwards;
it is kept in the sweep's scratch folder, and no experiment is ever restored: a second fit() of a name would be answered
with the first one's results.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")  # the new one prints whatever verbosity is set, to stdout
os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")  # Ctrl-C is let through by interrupts_held
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")  # figures are in the store
os.environ.setdefault("TUNE_FORCE_TRIAL_CLEANUP_S", "2")  # of a trial that is to end and is busy
os.environ.setdefault("TUNE_PRINT_ALL_TRIAL_ERRORS", "0")  # a node that is lost is nothing to print a trace about

from training.run.ray_workers import ROOM_SECONDS, storage_of  # sets what Ray reads when it is imported

# isort: split
import ray
from ray import tune

from schemas.errors import StageError
from training.run.ray_cluster import cluster
from training.sweep.sweep_trials import CarryOut, Hear, Key
from training.sweep.trial_process import Ended, Told, carried_out, interrupts_held

LOSSES = 10  # of one trial; after so many it is not the nodes' fault
TELL_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Room:
    """The resources of a trial, and the number of concurrent trials (None: as many as there is room for)."""

    workers: int
    threads: int
    on_gpu: bool
    at_once: int | None

    @property
    def resources(self) -> dict[str, float]:
        """Of the process that Tune starts: it trains itself, or asks Ray Train for workers, which have room of their
        own."""
        if self.workers > 1:
            return {"CPU": 0.0, "memory": 1.0}  # a byte, since Tune refuses to ask for nothing
        return {"CPU": float(self.threads)} | ({"GPU": 1.0} if self.on_gpu else {})

    @property
    def most(self) -> int:
        """The number of concurrent trials; 0: no limit but the cluster's own."""
        if self.at_once or self.workers == 1:
            return self.at_once or 0
        return max(1, int(ray.cluster_resources().get("CPU", 0)) // (self.workers * self.threads))


@contextmanager
def on_ray(room: Room, *, storage: str, name: str) -> Iterator[CarryOut]:
    """Trainings on the cluster that RAY_ADDRESS names, or on a Ray of this machine's own. An interrupt ends them.

    `storage`: a folder that all nodes see. `name`: of Tune's experiments; each has a number after it.
    """
    with interrupts_held() as let_interrupts_through, cluster(room.workers * room.threads * (room.at_once or 1)):
        count = 0

        def carry_out(trainings: Mapping[Key, Mapping[str, Any]], hear: Hear) -> None:
            nonlocal count
            count += 1
            if trainings:
                _fit(trainings, hear, room, storage, f"{name}-{count}", let_interrupts_through)

        yield carry_out


def _fit(
    trainings: Mapping[Key, Mapping[str, Any]],
    hear: Hear,
    room: Room,
    storage: str,
    name: str,
    let_interrupts_through: Callable[[], None],
) -> None:
    listener = _Listener(list(trainings), hear)

    def is_over() -> bool:
        try:
            let_interrupts_through()
        except KeyboardInterrupt:
            return True
        return listener.has_no_room or not listener.open

    trainable = tune.with_resources(tune.with_parameters(_trial, trainings=list(trainings.values())), room.resources)
    tune.Tuner(
        trainable,
        param_space={"trial": tune.grid_search(list(range(len(trainings))))},
        tune_config=tune.TuneConfig(max_concurrent_trials=room.most or None, reuse_actors=False),
        run_config=tune.RunConfig(
            name=name,
            **storage_of(storage),
            failure_config=tune.FailureConfig(max_failures=LOSSES),
            stop=_Stop(is_over),
            callbacks=[listener],
            verbose=0,
        ),
    ).fit()
    let_interrupts_through()
    for key in listener.open:
        hear(key, Ended(error=_no_room() if listener.has_no_room else _lost()))


def _trial(config: Mapping[str, Any], trainings: list[Mapping[str, Any]]) -> None:
    """What one trial does, in a process of its own on some node."""
    told = 0.0

    def tell(what: str, done: int, total: int | None) -> None:
        nonlocal told
        if time.monotonic() - told >= TELL_SECONDS:
            told = time.monotonic()
            tune.report({"told": Told(what=what, done=done, total=total)})

    ended = carried_out(trainings[config["trial"]], tell)
    tune.report({"ended": Ended(error=ended.error)})


class _Stop(tune.Stopper):
    """Ends an experiment, with all its trials, once it is over."""

    def __init__(self, is_over: Callable[[], bool] = lambda: False) -> None:
        self._is_over = is_over

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._is_over()

    def __reduce__(self) -> Any:  # Tune writes it down, for a restore that nobody asks for
        return _Stop, ()


class _Listener(tune.Callback):
    """Hears what trials report and passes it on. `open`: the trials that have not ended.

    Tune starts a trial again that has told how it ended, where its node is lost before its process is gone: nothing
    that such a one tells counts any more.
    """

    def __init__(self, keys: list[Key] | None = None, hear: Hear = lambda *_: None) -> None:
        self._keys, self._hear = keys or [], hear
        self.open = list(self._keys)
        self._room_at = time.monotonic()  # when some trial had room, last

    @property
    def has_no_room(self) -> bool:
        """For so long that it will hardly come."""
        return time.monotonic() - self._room_at > ROOM_SECONDS

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        key = self._keys[trial.config["trial"]]
        if key in self.open:
            self._hear(key, Told(what="started", done=0, total=None))

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        key = self._keys[trial.config["trial"]]
        if key in self.open and "ended" in result:
            self.open.remove(key)
            self._hear(key, result["ended"])
        elif key in self.open and "told" in result:
            self._hear(key, result["told"])

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        if any(trial.status == "RUNNING" for trial in trials):
            self._room_at = time.monotonic()
        self._hear(None, None)

    def __reduce__(self) -> Any:  # as _Stop
        return _Listener, ()


def _no_room() -> StageError:
    return StageError(
        asked="the trials were to run on a Ray cluster",
        found=f"for {ROOM_SECONDS:,.0f} seconds no node had room for one",
        follows="what is finished is kept",
        do="add a node, or let a trial take fewer threads",
    )


def _lost() -> StageError:
    return StageError(
        asked="the trial was to run on a Ray cluster",
        found=f"its process was lost more than {LOSSES} times",
        follows="it goes on from its last checkpoint when it is started again",
        do="look for too little memory on the nodes",
    )
