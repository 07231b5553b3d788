"""The trials of a sweep while they run: what is in the store counts, the rest is trained, a few at a time."""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from multiprocessing.connection import wait
from typing import Any

from schemas.errors import Diverged, StageError
from schemas.manifest import Request
from schemas.stage import Progress, StageResult, find_finished
from training.recipes import Recipe
from training.sweep.table import MEASURES, Point, Row, Trial, ranked
from training.trial_process import Ended, Told, TrialProcess, interrupts_held

TELL_SECONDS = 0.5

# Told of each trial when it has ended: its point, itself, how many have ended, of how many.
TrialEnded = Callable[[Point, Trial, int, int], None]

# A trial's seed (place in its point's recipes) and point (place in the sweep). In this order they are run: all points
# with the first seed before any with the second, so that a sweep that is looked at early, or cut short, shows all.
Key = tuple[int, int]


class Trials:
    """The trials of some points; `requests` are those of each point's recipes.

    `ended` holds those that ended, `broken` the errors of those that could not be carried out.
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
        keys = [(s, p) for p, point in enumerate(points) for s in range(len(point.recipes))]
        self._waiting, self._num_trials = deque(sorted(keys)), len(keys)
        self._running: dict[Key, Told | None] = {}
        self._num_new, self._began, self._told = 0, time.monotonic(), 0.0
        self.ended: dict[Key, Trial] = {}
        self.broken: list[StageError] = []

    def rows(self) -> list[Row]:
        """The table of the trials that have ended."""
        by_point = [[self.ended[key] for key in sorted(self.ended) if key[1] == p] for p in range(len(self._points))]
        return ranked([(p, t) for p, t in zip(self._points, by_point, strict=True) if t], self._measure)

    def run(self, arguments: Mapping[str, Any], at_once: int) -> None:
        """Until all have ended. `arguments`: of training.launch.train, but for the recipe. An interrupt ends them."""
        for key in list(self._waiting):
            finished, _ = find_finished(self._store, self._request(key))
            if finished:
                self._waiting.remove(key)
                self._end(key, Ended(result=finished))
        processes: dict[Any, tuple[Key, TrialProcess, ExitStack]] = {}  # by pipe
        with interrupts_held() as let_interrupts_through, ExitStack() as all_of_them:
            while self._waiting or processes:
                let_interrupts_through()
                while self._waiting and len(processes) < at_once:
                    key = self._waiting.popleft()
                    own = all_of_them.enter_context(ExitStack())
                    trial = own.enter_context(TrialProcess({**arguments, "recipe": self._recipe(key)}))
                    processes[trial.pipe], self._running[key] = (key, trial, own), None
                for pipe in wait(list(processes), TELL_SECONDS):
                    key, trial, own = processes[pipe]
                    told = trial.read()
                    if isinstance(told, Told):
                        self._running[key] = told
                        continue
                    own.close()
                    del processes[pipe], self._running[key]
                    self._num_new += 1
                    self._end(key, told)
                self._tell()

    def _end(self, key: Key, ended: Ended) -> None:
        trial = Trial(seed=self._recipe(key).seed, digest=self._request(key).digest)
        if ended.result:
            manifest = ended.result.manifest
            outcome = manifest.outcome
            measures = {name: value for name in MEASURES if (value := outcome.metrics.get(name)) is not None}
            if self._measure not in measures:
                raise _not_measured(self._measure, ended.result)
            seconds, reused = manifest.duration_seconds, ended.result.reused
            trial = replace(trial, digest=manifest.digest, reused=reused, seconds=seconds, measures=measures)
        elif ended.error:
            trial = replace(trial, failed=ended.error.found)
            if not isinstance(ended.error, Diverged):
                self.broken.append(ended.error)
        self.ended[key] = trial
        self._trial_ended(self._points[key[1]], trial, len(self.ended), self._num_trials)

    def _tell(self) -> None:
        if time.monotonic() - self._told < TELL_SECONDS:
            return
        self._told = time.monotonic()
        best = self.rows()[:1]
        parts = (
            f"best {self._measure} {best[0].mean:.4f}" if best and best[0].mean is not None else "",
            f"{len(self._running)} running, {len(self._waiting)} to come",
            self._time_left(),
        )
        self._progress("; ".join(filter(None, parts)), len(self.ended), self._num_trials)

    def _time_left(self) -> str:
        """As if every trial took as long as those so far; empty while too little is known."""
        under_way = sum(told.done / told.total for told in self._running.values() if told and told.total)
        made = self._num_new + under_way
        if made < 0.2 or not (self._running or self._waiting):
            return ""
        left = (len(self._running) + len(self._waiting) - under_way) * (time.monotonic() - self._began) / made
        return f"about {left:.0f} s left" if left < 90 else f"about {left / 60:.0f} min left"

    def _recipe(self, key: Key) -> Recipe:
        return self._points[key[1]].recipes[key[0]]

    def _request(self, key: Key) -> Request:
        return self._requests[key[1]][key[0]]


def _not_measured(measure: str, result: StageResult) -> StageError:
    return StageError(
        asked=f"the trials were to be compared by {measure}",
        found=f"the training in {result.folder} watched {result.manifest.outcome.metrics.get('watched', 'nothing')},"
        " which does not tell it",
        follows="none of the trials can be compared by it",
        do=f"choose another of {', '.join(MEASURES)}, or give judged files",
    )
