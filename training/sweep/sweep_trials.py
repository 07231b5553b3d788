"""The trials of a sweep while they run: what is in the store counts, the rest is trained, rung by rung."""

import json
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from schemas import storage
from schemas.errors import Diverged, StageError, UsageError
from schemas.manifest import Request
from schemas.stage import Progress, find_finished, stage_folder
from training.recipes.recipe import Recipe
from training.sweep.sweep_table import Point, SweepRow, Trial, measures, ranked
from training.sweep.trial_process import Ended, Key, Told
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
    __pydantic_config__ = {"extra": "forbid"}  # it is a section of sweep.toml  # noqa: RUF012

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


class Place(Protocol):
    """Where trials are trained: in processes of this machine (trial_process) or on a Ray cluster (sweep_on_ray).

    It trains what it is given; what that is, what counts already and what comes next is decided here.
    """

    def has_room(self) -> bool:
        """Whether another trial may be started."""

    def start(self, key: Key, arguments: Mapping[str, Any]) -> None:
        """Start a trial. `arguments`: of launch.train, but for its progress."""

    def news(self) -> list[tuple[Key, Told | Ended]]:
        """What trials tell, until each has Ended. Waits for it, but not for long."""


TELL_SECONDS = 0.5

# Told of each trial when it has ended (in each rung once): its point, itself, how many have ended, of how many.
TrialEnded = Callable[[Point, Trial, int, int], None]

# Of launch.train, but for its progress, for a point's recipe that is to have so many epochs behind it.
Arguments = Callable[[Point, Recipe, int], Mapping[str, Any]]


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
        self._num_ended, self._num_to_end = 0, 0  # in all rungs
        self._number, self._goal, self._epochs = 0, 0, 0  # of the rung: where it ends, and how long it is
        self._running: set[Key] = set()
        self._trained: set[Key] = set()
        self._began = self._last_end = time.monotonic()
        self._told = 0.0
        self._epochs_made, self._epochs_to_come = 0, 0
        self.ended: dict[Key, Trial] = {}
        self.broken: list[StageError] = []

    def rows(self) -> list[SweepRow]:
        """The table of the trials that have ended."""
        by_point = [[self.ended[key] for key in sorted(self.ended) if key[1] == p] for p in range(len(self._points))]
        return ranked([(p, t) for p, t in zip(self._points, by_point, strict=True) if t], self._measure)

    def run(
        self, rungs: Sequence[Rung], arguments: Arguments, place: Place, let_interrupts_through: Callable[[], None]
    ) -> None:
        """Until all have ended; only to the end of a rung in which some were broken, since nobody can tell then who
        goes on."""
        num_seeds, going, before = len(self._points[0].recipes), list(range(len(self._points))), 0
        for number, rung in enumerate(rungs):
            # All points with the first seed before any with the second, so that a sweep that is looked at early, or
            # cut short, shows all.
            keys = [(seed, point) for seed in range(num_seeds) for point in going]
            later = rungs[number + 1 :]
            self._number, self._goal, self._epochs = number, rung.epochs, rung.epochs - before
            self._num_to_end = self._num_ended + len(keys) + num_seeds * sum(after.points for after in later)
            self._epochs_to_come = len(keys) * self._epochs + num_seeds * sum(
                after.points * (after.epochs - reached.epochs)
                for reached, after in zip(rungs[number:], later, strict=False)
            )
            waiting = deque(key for key in keys if not self._is_there(key))
            under_way = len(waiting)
            while under_way:
                let_interrupts_through()
                while waiting and place.has_room():
                    key = waiting.popleft()
                    place.start(key, arguments(self._points[key[1]], self._recipe(key), self._goal_of(key)))
                for key, told in place.news():
                    if isinstance(told, Told):
                        self._running.add(key)
                    else:
                        self._running.discard(key)
                        self._trained.add(key)
                        under_way -= 1
                        self._end(key, self._came(key, told.error))
                self._tell()
            if self.broken or not later:
                return
            best = [row for row in self.rows() if row.rung == number and row.mean is not None]
            kept = [row.fields for row in best[: later[0].points]]
            going = [point for point in going if self._points[point].fields in kept]
            before = rung.epochs

    def _is_there(self, key: Key) -> bool:
        """Whether a trial has ended without being trained in this rung."""
        if key in self.ended and self.ended[key].failed:
            self._end(key, self.ended[key])
        elif curve := self._curve(key):
            self._end(key, self._measured(key, curve))
        else:
            return False
        return True

    def _came(self, key: Key, error: StageError | None) -> Trial:
        """What came of a trial that was trained."""
        curve = self._curve(key)
        if curve and not error:
            return self._measured(key, curve)
        error = error or _not_seen(self._store)
        if not isinstance(error, Diverged):
            self.broken.append(error)
        return replace(self._trial(key), failed=error.found)

    def _curve(self, key: Key) -> list[dict[str, Any]] | None:
        """The figures after each epoch up to the end of the rung; None where training has not come so far.

        As if it had stopped there even where it is further: what else the store holds must not decide who is best.
        """
        request, goal = self._request(key), self._goal_of(key)
        finished, _ = find_finished(self._store, request)
        if finished:
            curve: list[dict[str, Any]] = json.loads(storage.read_bytes(storage.join(finished.data, "curves.json")))
            return curve[:goal]
        curve = read_curve(storage.join(stage_folder(self._store, request), "checkpoints"), request.digest)
        return curve[:goal] if goal < self._recipe(key).epochs and len(curve) >= goal else None

    def _measured(self, key: Key, curve: list[dict[str, Any]]) -> Trial:
        """Raises StageError where that which chooses was not measured."""
        last = curve[-1]
        if last.get(self._measure) is None:
            raise StageError(
                asked=f"the trials were to be compared by {self._measure}",
                found=f"the training {self._request(key).digest} had nothing to measure that on",
                follows="none of the trials can be compared by it",
                do=f"choose another of {', '.join(measures())}, or give judged files",
            )
        return replace(
            self._trial(key),
            measures={name: last[name] for name in measures() if last.get(name) is not None},
            seconds=sum(point["seconds"] for point in curve),
            epochs=len(curve),
            curve=[point.get(self._measure) for point in curve],
        )

    def _trial(self, key: Key) -> Trial:
        recipe = self._recipe(key)
        return Trial(
            seed=recipe.seed,
            digest=self._request(key).digest,
            reused=key not in self._trained,
            of_epochs=recipe.epochs,
            rung=self._number,
        )

    def _end(self, key: Key, trial: Trial) -> None:
        self.ended[key] = trial
        self._num_ended += 1
        self._last_end = time.monotonic()
        self._epochs_made += 0 if trial.reused else self._epochs
        self._epochs_to_come -= self._epochs
        self._trial_ended(self._points[key[1]], trial, self._num_ended, self._num_to_end)

    def _tell(self) -> None:
        if time.monotonic() - self._told < TELL_SECONDS:
            return
        self._told = time.monotonic()
        best = self.rows()[:1]
        parts = [f"best {self._measure} {best[0].mean:.4f}"] if best and best[0].mean is not None else []
        num_running = len(self._running)
        parts.append(f"{num_running} running, {self._num_to_end - self._num_ended - num_running} to come")
        if self._epochs_made:  # those to come take as long as those so far
            an_epoch = (self._last_end - self._began) / self._epochs_made
            seconds = max(0.0, self._epochs_to_come * an_epoch - (self._told - self._last_end))
            parts.append(f"about {seconds:.0f} s left" if seconds < 90 else f"about {seconds / 60:.0f} min left")
        self._progress("; ".join(parts), self._num_ended, self._num_to_end)

    def _goal_of(self, key: Key) -> int:
        return min(self._goal, self._recipe(key).epochs)

    def _recipe(self, key: Key) -> Recipe:
        return self._points[key[1]].recipes[key[0]]

    def _request(self, key: Key) -> Request:
        return self._requests[key[1]][key[0]]


def _not_seen(store: str) -> StageError:
    return StageError(
        asked=f"a trial was to be trained into {store}",
        found="it was, and is not to be seen from here",
        follows="it cannot be compared",
        do="put the store where every node sees it: a shared folder, or a URI",
    )
