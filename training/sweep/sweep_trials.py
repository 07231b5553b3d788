"""The trials of a sweep while they run: what is in the store counts, the rest is trained, rung by rung."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from typing import Any

from schemas import storage
from schemas.errors import Diverged, StageError, UsageError
from schemas.manifest import Request
from schemas.stage import Progress, find_finished, stage_folder
from training.recipes.recipe import Recipe
from training.sweep.sweep_table import Point, SweepRow, Trial, measures, ranked
from training.sweep.trial_process import Ended, Told, TrialProcess, interrupts_held
from training.update.checkpoint import read_curve


@dataclass(frozen=True, kw_only=True, slots=True)
class Halving:
    """After `min_epochs` one point in `eta` goes on (rounded up), after `eta` times as many epochs one in `eta` of
    those, and so on; the last of them to the end.

    Rungs wait for each other, so that who goes on depends on the figures alone and not on which trial was first.
    Asynchronous halving (ASHA, Ray Tune's) keeps every machine busy, and its best trial is another one each time.
    Raises UsageError.
    """

    eta: int = 3
    min_epochs: int = 1

    def __post_init__(self) -> None:
        if self.eta < 2 or self.min_epochs < 1:
            raise UsageError(
                asked=f"halving was asked for with eta = {self.eta} and min_epochs = {self.min_epochs}",
                found="eta must be at least 2, and min_epochs at least 1",
                do="set [halving] eta = 3 and min_epochs = 1, say",
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Rung:
    """So many points train until they have so many epochs behind them."""

    points: int
    epochs: int


def rungs_of(halving: Halving | None, points: int, epochs: int) -> list[Rung]:
    """The rungs of a sweep of so many points, of which the longest has so many epochs; the last goes to the end."""
    rungs: list[Rung] = []
    reached = halving.min_epochs if halving else epochs
    while halving and points > 1 and reached < epochs:
        rungs.append(Rung(points=points, epochs=reached))
        points, reached = -(-points // halving.eta), reached * halving.eta
    return [*rungs, Rung(points=points, epochs=epochs)]


# A trial's seed (place in its point's recipes) and point (place in the sweep). In this order they are trained: all
# points with the first seed before any with the second, so that a sweep that is looked at early, or cut short, shows
# all.
Key = tuple[int, int]

# Called with what a trial tells, and now and then with nothing, so that whoever listens can tell others.
Hear = Callable[[Key | None, Told | Ended | None], None]

# Trains what it is given (arguments of launch.train), until each has Ended. Raises KeyboardInterrupt where it
# was asked to stop; what was being trained has ended then, and goes on from its last checkpoint another time.
CarryOut = Callable[[Mapping[Key, Mapping[str, Any]], Hear], None]

LISTEN_SECONDS = 0.5


@contextmanager
def in_processes(at_once: int) -> Iterator[CarryOut]:
    """Trainings in processes of this machine, `at_once` of them concurrently. An interrupt ends them.

    Whoever carries out the trainings of a sweep, some at a time: processes of this machine, or Ray Tune on a cluster.

        with in_processes(at_once=2) as carry_out:
            carry_out({key: arguments, ...}, hear)

    What is to be trained, what counts already and what comes next is decided elsewhere (sweep_trials).
    """
    with interrupts_held() as let_interrupts_through:

        def carry_out(trainings: Mapping[Key, Mapping[str, Any]], hear: Hear) -> None:
            waiting = list(trainings)[::-1]
            processes: dict[Any, tuple[Key, TrialProcess, ExitStack]] = {}  # by pipe
            with ExitStack() as all_of_them:
                while waiting or processes:
                    let_interrupts_through()
                    while waiting and len(processes) < at_once:
                        key = waiting.pop()
                        own = all_of_them.enter_context(ExitStack())
                        trial = own.enter_context(TrialProcess(trainings[key]))
                        processes[trial.pipe] = key, trial, own
                        hear(key, Told(what="started", done=0, total=None))
                    for pipe in wait(list(processes), LISTEN_SECONDS):
                        key, trial, own = processes[pipe]
                        told = trial.read()
                        if isinstance(told, Ended):
                            own.close()
                            del processes[pipe]
                        hear(key, told)
                    hear(None, None)

        yield carry_out


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """`curve`: a point for each epoch, as in curves.json (run_report). `finished`: there is a model."""

    curve: list[dict[str, Any]]
    finished: bool


def standing(store: str, request: Request) -> Standing:
    """How far the training of a request is in a store."""
    finished, _ = find_finished(store, request)
    if finished:
        curve = json.loads(storage.read_bytes(storage.join(finished.data, "curves.json")))
        return Standing(curve=curve, finished=True)
    checkpoints = storage.join(stage_folder(store, request), "checkpoints")
    return Standing(curve=read_curve(checkpoints, request.digest), finished=False)


def measured(trial: Trial, found: Standing, epochs: int, measure: str) -> Trial:
    """The trial with its figures after so many epochs, as if it had stopped there even where it is further.

    What else the store holds must not decide who is best. Raises StageError where `measure` was not measured.
    """
    curve = found.curve[:epochs]
    last: Mapping[str, Any] = curve[-1]
    if last.get(measure) is None:
        raise StageError(
            asked=f"the trials were to be compared by {measure}",
            found=f"the training {trial.digest} had nothing to measure that on",
            follows="none of the trials can be compared by it",
            do=f"choose another of {', '.join(measures())}, or give judged files",
        )
    return replace(
        trial,
        measures={name: last[name] for name in measures() if last.get(name) is not None},
        seconds=sum(point["seconds"] for point in curve),
        epochs=epochs,
        curve=[point.get(measure) for point in curve],
    )


TELL_SECONDS = 0.5

# Told of each trial when it has ended (in each rung once): its point, itself, how many have ended, of how many.
TrialEnded = Callable[[Point, Trial, int, int], None]

# Of launch.train, but for its progress, for a point's recipe that is to have so many epochs behind it.
Arguments = Callable[[Point, Recipe, int], Mapping[str, Any]]


@dataclass(slots=True)
class _UnderWay:
    """A trial that is to be trained, from epoch `start` to `goal`, and its last report."""

    start: int
    goal: int
    told: Told | None = None


class Trials:
    """The trials of some points; `requests` are those of each point's recipes.

    `ended` holds those that ended, as they were in their last rung, `broken` the errors of those that could not be
    carried out.
    """

    def __init__(
        self,
        points: Sequence[Point],
        requests: Sequence[Sequence[Request]],
        *,
        store: str,
        measure: str,
        progress: Progress,
        trial_ended: TrialEnded,
    ) -> None:
        self._points, self._requests, self._store, self._measure = points, requests, store, measure
        self._progress, self._trial_ended = progress, trial_ended
        self._under_way: dict[Key, _UnderWay] = {}
        self._trained: set[Key] = set()
        self._num_ended, self._num_to_end, self._rung = 0, 0, 0
        self._began, self._told = time.monotonic(), 0.0
        self._epochs_made, self._epochs_to_come = 0.0, 0.0  # of trials that ended; of later rungs
        self.ended: dict[Key, Trial] = {}
        self.broken: list[StageError] = []

    def rows(self) -> list[SweepRow]:
        """The table of the trials that have ended."""
        by_point = [[self.ended[key] for key in sorted(self.ended) if key[1] == p] for p in range(len(self._points))]
        return ranked([(p, t) for p, t in zip(self._points, by_point, strict=True) if t], self._measure)

    def run(self, rungs: Sequence[Rung], arguments: Arguments, carry_out: CarryOut) -> None:
        """Until all have ended; only to the end of a rung in which some were broken, since nobody can tell then who
        goes on. An interrupt ends them."""
        going = list(range(len(self._points)))
        for number in range(len(rungs)):
            keys = sorted((s, p) for p in going for s in range(len(self._points[p].recipes)))
            self._begin(number, rungs, keys)
            asked = {
                key: arguments(self._points[key[1]], self._recipe(key), one.goal)
                for key, one in self._under_way.items()
            }
            carry_out(asked, self._hear)
            if self.broken or number + 1 == len(rungs):
                return
            best = [row for row in self.rows() if row.rung == number and row.mean is not None]
            kept = [row.fields for row in best[: rungs[number + 1].points]]
            going = [p for p in going if self._points[p].fields in kept]

    def _begin(self, number: int, rungs: Sequence[Rung], keys: Sequence[Key]) -> None:
        """Count what is there already; the others are under way."""
        num_seeds, later = len(self._points[0].recipes), rungs[number + 1 :]
        self._rung, self._num_to_end = number, self._num_ended + len(keys) + num_seeds * sum(r.points for r in later)
        before = [rung.epochs for rung in rungs[number:]]
        self._epochs_to_come = num_seeds * sum(
            rung.points * (rung.epochs - reached) for rung, reached in zip(later, before, strict=False)
        )
        for key in keys:
            of_epochs = self._recipe(key).epochs
            goal = min(rungs[number].epochs, of_epochs)
            found = standing(self._store, self._request(key))
            failed = self.ended[key] if key in self.ended and self.ended[key].failed else None
            if failed or _is_there(found, goal, of_epochs):
                self._end(key, failed or self._measured(key, found, goal))
            else:
                self._under_way[key] = _UnderWay(start=min(len(found.curve), goal), goal=goal)

    def _hear(self, key: Key | None, told: Told | Ended | None) -> None:
        if key is not None and isinstance(told, Told):
            self._under_way[key].told = told
        elif key is not None and isinstance(told, Ended):
            one = self._under_way.pop(key)
            self._epochs_made += one.goal - one.start
            self._trained.add(key)
            self._end(key, self._came(key, one.goal, told.error))
        self._tell()

    def _came(self, key: Key, goal: int, error: StageError | None) -> Trial:
        """What came of a trial that was trained."""
        found = standing(self._store, self._request(key))
        if not error and not _is_there(found, goal, self._recipe(key).epochs):
            error = _not_seen(self._store)
        if not error:
            return self._measured(key, found, goal)
        if not isinstance(error, Diverged):
            self.broken.append(error)
        return replace(self._trial(key), failed=error.found)

    def _measured(self, key: Key, found: Standing, goal: int) -> Trial:
        return measured(self._trial(key), found, goal, self._measure)

    def _trial(self, key: Key) -> Trial:
        recipe, digest = self._recipe(key), self._request(key).digest
        reused = key not in self._trained
        return Trial(seed=recipe.seed, digest=digest, reused=reused, of_epochs=recipe.epochs, rung=self._rung)

    def _end(self, key: Key, trial: Trial) -> None:
        self.ended[key] = trial
        self._num_ended += 1
        self._trial_ended(self._points[key[1]], trial, self._num_ended, self._num_to_end)

    def _tell(self) -> None:
        if time.monotonic() - self._told < TELL_SECONDS:
            return
        self._told = time.monotonic()
        best = self.rows()[:1]
        num_running = sum(one.told is not None for one in self._under_way.values())
        parts = (
            f"best {self._measure} {best[0].mean:.4f}" if best and best[0].mean is not None else "",
            f"{num_running} running, {self._num_to_end - self._num_ended - num_running} to come",
            self._time_left(),
        )
        self._progress("; ".join(filter(None, parts)), self._num_ended, self._num_to_end)

    def _time_left(self) -> str:
        """As if every epoch took as long as those so far; empty while too little is known."""
        made, left = self._epochs_made, self._epochs_to_come
        for key, one in self._under_way.items():
            share = one.told.done / one.told.total if one.told and one.told.total else 0.0
            reached = min(max(share * self._recipe(key).epochs, one.start), one.goal)
            made, left = made + reached - one.start, left + one.goal - reached
        if made < 1 or not left:
            return ""
        seconds = left * (time.monotonic() - self._began) / made
        return f"about {seconds:.0f} s left" if seconds < 90 else f"about {seconds / 60:.0f} min left"

    def _recipe(self, key: Key) -> Recipe:
        return self._points[key[1]].recipes[key[0]]

    def _request(self, key: Key) -> Request:
        return self._requests[key[1]][key[0]]


def _is_there(found: Standing, goal: int, of_epochs: int) -> bool:
    return found.finished or (goal < of_epochs and len(found.curve) >= goal)


def _not_seen(store: str) -> StageError:
    return StageError(
        asked=f"a trial was to be trained into {store}",
        found="it was, and is not to be seen from here",
        follows="it cannot be compared",
        do="put the store where every node sees it: a shared folder, or a URI",
    )
