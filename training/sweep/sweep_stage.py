"""The sweep as a stage: one training for each point and seed, and a table of them, best first.

    sweep("store/build/DIGEST", points, store="store", measure="dev_loss")

Every trial is an ordinary train stage with a digest of its own: one that is already in the store, trained by hand or by
another sweep, counts; a sweep that was killed continues with the rest. A trial that diverges is a result; one that
failed (no memory, a full disk) leaves the sweep unfinished, and the same command tries it again.

Writes to STORE/sweep/DIGEST: sweep.json, the table; best.toml, the recipe of its first row; and the output of `render`
for people: sweep.md, and sweep.html with curves.

Trials run in processes of this machine (trial_process) or on the nodes of a Ray cluster (sweep_on_ray). The result of a
sweep depends on neither, nor on the speed of trials or on losses on the way.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal, Protocol

from pydantic import Field

from clicktower.schemas import storage
from clicktower.schemas.errors import Diverged, StageError, UsageError
from clicktower.schemas.judgments import Judged
from clicktower.schemas.manifest import Outcome, Request, from_bytes
from clicktower.schemas.process import raise_if_asked_to_end, signals_held
from clicktower.schemas.section import Count, flat, section
from clicktower.schemas.stage import (
    Progress,
    Stage,
    StageResult,
    find_finished,
    open_result,
    run_stage,
    silent,
    stage_folder,
)
from clicktower.training.model.label_settings import Classify
from clicktower.training.model.recipe import NO_SOURCES, ONE_WORKER, Compute, Recipe, Sources, may_be_large, names
from clicktower.training.model.teacher import require_teacher, teacher_source
from clicktower.training.ranking.measure import collection_of
from clicktower.training.sweep.sweep_table import Point, SweepRow, Trial, chosen_row, measures, point_text, rank_points
from clicktower.training.sweep.trial_process import Key, Processes, TrialOutcome, TrialStatus
from clicktower.training.trainer.checkpoint import checkpoint_file, list_updates
from clicktower.training.trainer.job import ONLY_PATH, arithmetic_of, count_gpus
from clicktower.training.trainer.launch import fingerprints, table_rows_of, train_request, workers_device

SWEEP = Stage("sweep", version=4)


class UnfinishedSweep(StageError):
    """Some trials failed. `rows`: the table of the others."""

    def __init__(self, problem: str, fix: str, *, rows: Sequence[SweepRow] = ()) -> None:
        super().__init__(problem, fix)
        self.rows = rows


def sweep(
    shards: str,
    points: Sequence[Point],
    *,
    store: str,
    measure: str,
    judged: Judged | None = None,
    halving: Halving | None = None,
    compute: Compute = ONE_WORKER,
    sources: Sources = NO_SOURCES,
    engine: Literal["processes", "ray"] = "processes",
    at_once: int | None = None,
    progress: Progress = silent,
    trial_ended: TrialEnded = lambda *_: None,
    render: Callable[[Mapping[str, Any]], Mapping[str, str]] = lambda _: {},
) -> StageResult:
    """The table of all points on the shards of a build, ranked by `measure` (of sweep_table.measures).

    `at_once` trials run concurrently (by default one, on Ray as many as there is room for); the threads of a worker are
    by default an equal share of the cores, on Ray one. A point has its own word vectors. `render` makes the files for
    people, by name, from the table's JSON. Raises UsageError; UnfinishedSweep if a trial failed, after all others have
    ended (with halving, those of its rung).
    """
    if at_once is not None and at_once < 1:
        raise UsageError(f"The trials at once are {at_once}, and must be at least 1.", "Set at_once to 1 or more.")
    judged = judged and Judged(**{name: storage.absolute(uri) for name, uri in judged.named_files.items()})
    compute, workers = _on_device(compute, engine), compute.workers
    assert workers != "auto"
    requests, request = _requests(shards, points, measure, judged, halving, compute, sources)
    rungs = rungs_of(halving, len(points), max(recipe.epochs for point in points for recipe in point.recipes))
    on_gpu, num_cores = compute.device != "cpu", len(os.sched_getaffinity(0))
    threads = compute.threads or (1 if engine == "ray" else max(1, num_cores // (workers * (at_once or 1))))

    def arguments(point: Point, recipe: Recipe, epochs: int) -> dict[str, Any]:
        # By the path itself, so that a node without it says so instead of making another model.
        path: Any = ONLY_PATH.get(arithmetic_of(compute.path, recipe, compute.device), compute.path)
        return {
            "shards": storage.absolute(shards),
            "store": storage.absolute(store),
            "judged": judged,
            "recipe": recipe,
            "compute": replace(compute, threads=threads, path=path),
            "sources": replace(sources, word_vectors=point.word_vectors),
            "in_cluster": engine == "ray" and workers > 1,
            "stop_after": epochs if epochs < recipe.epochs else None,
        }

    def executor() -> AbstractContextManager[TrialExecutor]:
        if engine == "processes":
            return Processes(at_once or 1, range(count_gpus()) if on_gpu and workers == 1 else ())
        from clicktower.training.sweep.sweep_on_ray import ray_executor

        return ray_executor(workers=workers, threads=threads, on_gpu=on_gpu, at_once=at_once)

    def produce(attempt: str) -> Outcome:
        if judged:
            _require_telling(judged, measure)
        if sources.teacher:
            require_teacher(teacher_source(sources.teacher, points[0].recipes[0]))
        if engine == "processes":
            _require_memory(shards, points, workers)
        trials = Trials(points, requests, store=store, measure=measure, progress=progress, trial_ended=trial_ended)
        with signals_held(), executor() as opened:
            trials.run(rungs, arguments, opened)
        if trials.broken:
            raise _unfinished(trials)
        outcome = _outcome(trials, measure, judged, rungs, open_result(shards).manifest.outcome.labels)
        table = json.loads(json.dumps({**outcome.metrics, "labels": dict(outcome.labels)}))
        files = {"sweep.json": json.dumps(table, indent=1, allow_nan=False), **render(table)}
        if chosen_row(table):
            best = trials.rows()[0].fields
            first = next(point for point in points if point.fields == best)
            files["best.toml"] = best_toml(table, first.recipes[0], first.word_vectors)
        for name, content in files.items():
            storage.write_atomic(storage.join(attempt, name), content.encode())
        return outcome

    return run_stage(store, request, produce, progress)


def plan(
    shards: str,
    points: Sequence[Point],
    *,
    store: str,
    measure: str,
    judged: Judged | None = None,
    compute: Compute = ONE_WORKER,
    sources: Sources = NO_SOURCES,
    engine: Literal["processes", "ray"] = "processes",
) -> list[tuple[Point, list[tuple[str, bool]]]]:
    """What `sweep` would train: for each point the digest of every recipe's training, and whether it exists.

    Raises UsageError as `sweep`.
    """
    requests, _ = _requests(shards, points, measure, judged, None, _on_device(compute, engine), sources)
    return [
        (point, [(r.digest, find_finished(store, r)[0] is not None) for r in of_point])
        for point, of_point in zip(points, requests, strict=True)
    ]


def _on_device(compute: Compute, engine: str) -> Compute:
    """The same on the device that `auto` is."""
    in_cluster = engine == "ray" and "RAY_ADDRESS" in os.environ
    return replace(compute, device=workers_device(compute.device, in_cluster, compute.path))


def _require_telling(judged: Judged, measure: str) -> None:
    """Raise UsageError or StageError for judged files that do not join, or that no ranking could differ by."""
    counts = collection_of(judged).counts
    if counts["queries_of_one_grade"] == counts["queries"] and measure != "dev_loss":
        raise StageError(
            f"Each of the {counts['queries']:,} judged queries has documents of one single grade, so {measure} is the"
            " same for every model.",
            "Give judgments of several grades, 0 for what is not relevant, or choose by dev_loss.",
        )


def _requests(
    shards: str,
    points: Sequence[Point],
    measure: str,
    judged: Judged | None,
    halving: Halving | None,
    compute: Compute,
    sources: Sources,
) -> tuple[list[list[Request]], Request]:
    """The requests of all trials, by point, and of the sweep."""
    built = open_result(shards)
    counts = built.manifest.outcome.counts
    if 0 in (counts.get("dev_pairs"), counts.get("dev_rows")) and (measure == "dev_loss" or not judged):
        raise UsageError(
            f"The shards hold nothing held out to measure {measure} on"
            + ("." if judged else ", and no judged files are given."),
            "Build with a dev_share above 0, or give judged files and choose by dev_ndcg@10.",
        )
    watched = fingerprints(judged)
    started = open_result(sources.start, "train").manifest.digest if sources.start else None
    vectors = {file: storage.fingerprint(file) for file in {point.word_vectors for point in points} if file}
    trials = [
        [
            train_request(
                built,
                recipe,
                compute,
                judged=watched,
                sources=Sources(
                    start=started,
                    word_vectors=vectors.get(point.word_vectors or ""),
                    teacher=teacher_source(sources.teacher, recipe).digest if sources.teacher else None,
                ),
            )
            for recipe in point.recipes
        ]
        for point in points
    ]
    described = [
        {"fields": dict(point.fields), "trials": {str(trial.seed): trial.digest for trial in of_point}}
        for point, of_point in zip(points, trials, strict=True)
    ]
    settings = {
        "measure": measure,
        "points": sorted(described, key=lambda point: sorted(point["trials"].values())),
        "halving": halving,
    }
    return trials, SWEEP.request(settings, {"shards": built.manifest.digest, "judged": watched})


def _outcome(
    trials: Trials, measure: str, judged: Judged | None, rungs: Sequence[Rung], labels: Mapping[str, Any]
) -> Outcome:
    ended, rows = trials.ended.values(), trials.rows()
    held_out = "held-out labels" if measure in Classify.measures else "held-out clicks"
    return Outcome(
        counts={
            "points": len(rows),
            "trials": len(ended),
            "trials_reused": sum(trial.reused for trial in ended),
            "trials_diverged": sum(trial.diverged for trial in ended),
            "trials_stopped_early": sum(0 < trial.epochs < trial.of_epochs for trial in ended),
        },
        metrics={
            "measure": measure,
            "watched": "judgments" if judged else held_out,
            "rungs": [asdict(rung) for rung in rungs],
            "rows": [asdict(row) for row in rows],
        },
        labels=labels,
    )


def _require_memory(shards: str, points: Sequence[Point], workers: int) -> None:
    """Raise UsageError, before any trial, for a point that does not fit in the memory of this machine."""
    table_rows = table_rows_of(open_result(shards))
    for point in points:
        if may_be_large(point.recipes[0], table_rows):
            from clicktower.training.model.parameters import layout_of, require_memory  # torch takes seconds to load

            try:
                require_memory(layout_of(point.recipes[0], table_rows), workers)
            except UsageError as error:
                raise UsageError(
                    f"The sweep cannot try {point_text(point.fields)}: {error.problem}",
                    f"{error.fix} No trial was started.",
                ) from None


def _unfinished(trials: Trials) -> UnfinishedSweep:
    reasons = " ".join(dict.fromkeys(error.problem for error in trials.broken))
    return UnfinishedSweep(
        f"{len(trials.broken)} of {len(trials.ended)} trials failed: {reasons} The others are finished and kept.",
        f"{trials.broken[0].fix} Then run the same command again, which tries only those that are missing.",
        rows=trials.rows(),
    )


HEAD = """\
# The first of {points} points by {measure}, with its first seed: the whole recipe, as `clicktower sweep` found it.
# It was chosen on {watched}; evaluate it on judgments that chose nothing.
#
# To train it:       clicktower train --recipe best.toml --shards store/build/DIGEST --into store
# In a pipeline:     put this section into pipeline.toml, or write there [train] recipe = "best.toml"

[train]
recipe = {recipe}
{word_vectors}
[train.set]
"""


def best_toml(table: Mapping[str, Any], recipe: Recipe, word_vectors: str | None = None) -> str:
    """The best point of a sweep as TOML: the [train] section of a pipeline.toml, which `clicktower train --recipe`
    reads too. It contains all fields, so it means the same when a later version changes a named recipe.

    `table`: the JSON of the sweep; `recipe`: of its first row, and the file that its words start from.
    """
    fields = flat(asdict(recipe))
    name = fields.pop("name")
    if name not in names():  # a user's own recipe: all of it is set
        fields, name = {"name": name, **fields}, names()[0]
    varied = {field: fields.pop(field) for field in table["rows"][0]["fields"] if field in fields}
    head = HEAD.format(
        points=len(table["rows"]),
        measure=table["measure"],
        watched=table["watched"],
        recipe=json.dumps(name),
        word_vectors=f"word_vectors = {json.dumps(word_vectors)}\n" if word_vectors else "",
    )
    lines = ["# What the sweep varied:", *_lines(varied), "# The rest:"] if varied else []
    return head + "\n".join([*lines, *_lines(fields)]) + "\n"


def _lines(fields: Mapping[str, Any]) -> list[str]:
    # Text, numbers, true and false are written alike in JSON and TOML, which has no null.
    return [f"{name} = {json.dumps('none' if value is None else value)}" for name, value in fields.items()]


# The trials of a sweep while they run: those in the store count, the others are trained, rung by rung.


@section
class Halving:
    """After `min_epochs` one point in `eta` continues (rounded up), after `eta` times as many epochs one in `eta` of
    those, and so on; the remaining ones train to the end.

    Rungs wait for each other, so the choice depends on the figures alone and not on which trial was first. Asynchronous
    halving (ASHA, Ray Tune's) keeps every machine busy, but its best trial is another one each time.

    Args:
        eta: One point in so many continues.
        min_epochs: The epochs of all points.
    """

    eta: Annotated[int, Field(ge=2)] = 3
    min_epochs: Count = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Rung:
    """A number of points, trained up to a number of epochs."""

    points: int
    epochs: int


def rungs_of(halving: Halving | None, points: int, epochs: int) -> list[Rung]:
    """The rungs of a sweep of `points` points whose longest recipe has `epochs` epochs; the last trains to the end."""
    rungs: list[Rung] = []
    reached = halving.min_epochs if halving else epochs
    while halving and points > 1 and reached < epochs:
        rungs.append(Rung(points=points, epochs=reached))
        points, reached = -(-points // halving.eta), reached * halving.eta
    return [*rungs, Rung(points=points, epochs=epochs)]


class TrialExecutor(Protocol):
    """Where trials are trained: in processes of this machine (trial_process) or on a Ray cluster (sweep_on_ray).

    It trains the given trials; this module decides which come next and which exist already.
    """

    def has_room(self) -> bool:
        """Whether another trial may start."""

    def start(self, key: Key, arguments: Mapping[str, Any]) -> None:
        """Start a trial. `arguments`: of launch.train, except progress."""

    def news(self) -> list[tuple[Key, TrialStatus | TrialOutcome]]:
        """What trials report, for each at last its outcome. It waits a short time."""


TELL_SECONDS = 0.5

# Called for each ended trial (once per rung): its point, the trial, the number of ended ones, the total.
TrialEnded = Callable[[Point, Trial, int, int], None]

# Arguments of launch.train, except its progress, for a point's recipe up to so many epochs.
Arguments = Callable[[Point, Recipe, int], Mapping[str, Any]]


class Trials:
    """The trials of some points; `requests`: one per recipe of each point.

    `ended` holds those that ended, in the state of their last rung, `broken` the errors of those that failed.
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
        self._number, self._goal, self._epochs = 0, 0, 0  # of the rung: its end and its length
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
        return rank_points([(p, t) for p, t in zip(self._points, by_point, strict=True) if t], self._measure)

    def run(self, rungs: Sequence[Rung], arguments: Arguments, executor: TrialExecutor) -> None:
        """Run until all have ended; if some trials of a rung failed, only to the end of that rung, since the next one
        depends on them.
        """
        num_seeds, going, before = len(self._points[0].recipes), list(range(len(self._points))), 0
        for number, rung in enumerate(rungs):
            # All points with the first seed before any with the second, so that a sweep shows all when it is viewed
            # early or cut short.
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
                raise_if_asked_to_end()
                while waiting and executor.has_room():
                    key = waiting.popleft()
                    executor.start(key, arguments(self._points[key[1]], self._recipe(key), self._goal_of(key)))
                for key, message in executor.news():
                    if isinstance(message, TrialStatus):
                        self._running.add(key)
                    else:
                        self._running.discard(key)
                        self._trained.add(key)
                        under_way -= 1
                        self._end(key, self._record_outcome(key, message.error))
                self._tell()
            if self.broken or not later:
                return
            best = [row for row in self.rows() if row.rung == number and row.mean is not None]
            kept = [row.fields for row in best[: later[0].points]]
            going = [point for point in going if self._points[point].fields in kept]
            before = rung.epochs

    def _is_there(self, key: Key) -> bool:
        """Whether a trial has ended without training in this rung."""
        if key in self.ended and self.ended[key].failed:
            self._end(key, self.ended[key])
        elif curve := self._curve(key):
            self._end(key, self._measured(key, curve))
        else:
            return False
        return True

    def _record_outcome(self, key: Key, error: StageError | None) -> Trial:
        """Record the outcome of a trial."""
        curve = self._curve(key)
        if curve and not error:
            return self._measured(key, curve)
        error = error or _not_seen(self._store)
        if not isinstance(error, Diverged):
            self.broken.append(error)
        return replace(self._trial(key), failed=error.problem, diverged=isinstance(error, Diverged))

    def _curve(self, key: Key) -> list[dict[str, Any]] | None:
        """The figures after each epoch up to the end of the rung; None if training has not come so far.

        Later epochs are cut off: other contents of the store must not decide which is best.
        """
        request, goal = self._request(key), self._goal_of(key)
        finished, _ = find_finished(self._store, request)
        if finished:
            curve: list[dict[str, Any]] = from_bytes(storage.read_bytes(storage.join(finished.data, "curves.json")))
            return curve[:goal]
        curve = read_curve(storage.join(stage_folder(self._store, request), "checkpoints"), request.digest)
        return curve[:goal] if goal < self._recipe(key).epochs and len(curve) >= goal else None

    def _measured(self, key: Key, curve: list[dict[str, Any]]) -> Trial:
        """Raises StageError if the deciding measure is missing."""
        last = curve[-1]
        if (value := last.get(self._measure)) is None or not math.isfinite(value):
            raise StageError(
                f"The training {self._request(key).digest} has no {self._measure} to compare the trials by.",
                f"Choose another of {', '.join(measures())}, or give judged files.",
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
        if self._epochs_made:  # future epochs take as long as past ones
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
        f"A trial was trained into {store} and cannot be seen from here.",
        "Put the store where every node sees it: a shared folder, or a URI.",
    )


def read_curve(folder: str, digest: str) -> list[dict[str, Any]]:
    """The figures of an unfinished run's epochs; none without a checkpoint.

    They are in the small file of a checkpoint, so its parameters need not be complete.
    """
    for update in list_updates(folder):
        try:
            head = from_bytes(storage.read_bytes(checkpoint_file(folder, update, "json")))
            if head["digest"] == digest:
                return list(head["curve"])
        except (OSError, ValueError, KeyError, TypeError):
            continue  # gone meanwhile, or damaged
    return []
