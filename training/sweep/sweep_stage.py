"""The sweep as a stage: one training for each point and seed, and a table of them, best first.

    sweep("store/build/DIGEST", points, store="store", measure="dev_loss")

Every trial is an ordinary train stage with a digest of its own: one that is in the store already, trained by hand or by
another sweep, counts; a sweep that was killed goes on with what is missing. A trial that diverges is a result; one that
could not be carried out (no memory, a full disk) leaves the sweep unfinished, and the same command tries it again.

Writes to STORE/sweep/DIGEST: sweep.json, the table; best.toml, the recipe of its first row; and what `render` makes of
the table for people: sweep.md, and sweep.html with curves.

Trials run in processes of this machine (trial_process) or on the nodes of a Ray cluster (sweep_on_ray). What comes of a
sweep depends on neither, nor on how fast they are or what is lost on the way.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import Any, Literal

from schemas import storage
from schemas.errors import StageError, UsageError
from schemas.judgments import Judged
from schemas.manifest import Outcome, Request
from schemas.stage import Progress, StageResult, find_finished, open_result, run_stage, silent
from training.compute.device import device_named
from training.recipes.named_recipes import names
from training.recipes.objectives import Classify
from training.recipes.recipe import Recipe
from training.recipes.section import flat
from training.run.job import COMPILED, REFERENCE, arithmetic_of
from training.run.launch import fingerprints, train_request
from training.sweep.sweep_table import Point, SweepRow
from training.sweep.sweep_trials import Halving, Place, Rung, TrialEnded, Trials, rungs_of
from training.sweep.trial_process import in_processes, interrupts_held

STAGE_VERSION = 3


class UnfinishedSweep(StageError):
    """Some trials could not be carried out. `rows`: the table of those that could."""

    def __init__(self, *, rows: Sequence[SweepRow] = (), **facts: str) -> None:
        super().__init__(**facts)
        self.rows = rows


def sweep(
    shards: str,
    points: Sequence[Point],
    *,
    store: str,
    measure: str,
    judged: Judged | None = None,
    halving: Halving | None = None,
    workers: int = 1,
    threads: int | None = None,
    device: str = "auto",
    path: str = "auto",
    engine: Literal["processes", "ray"] = "processes",
    at_once: int | None = None,
    progress: Progress = silent,
    trial_ended: TrialEnded = lambda *_: None,
    render: Callable[[Mapping[str, Any]], Mapping[str, str]] = lambda _: {},
) -> StageResult:
    """The table of all points on the shards of a build, ranked by `measure` (of sweep_table.measures).

    `at_once` trials run concurrently (by default one, on Ray as many as there is room for), each with `workers` of
    `threads` threads (by default the cores shared out, on Ray one), as in launch.train. `render` makes the files for
    people, by name, of the table's JSON. Raises UsageError; UnfinishedSweep where a trial could not be carried out,
    once all others are (of its rung, with halving).
    """
    if min(1 if value is None else value for value in (at_once, workers, threads)) < 1:
        raise UsageError(
            asked=f"{at_once} trials at once were asked for, each of {workers} workers with {threads} threads",
            found="each must be at least 1",
            do="give 1 or more",
        )
    judged = judged and Judged(**{what: storage.absolute(uri) for what, uri in asdict(judged).items()})
    device = device_named(device)  # here and not on each node: it is a part of what is asked
    requests, request = _requests(shards, points, measure, judged, halving, workers, device, path)
    rungs = rungs_of(halving, len(points), max(recipe.epochs for point in points for recipe in point.recipes))
    num_cores = len(os.sched_getaffinity(0))
    threads = threads or (1 if engine == "ray" else max(1, num_cores // (workers * (at_once or 1))))

    def arguments(point: Point, recipe: Recipe, epochs: int) -> dict[str, Any]:
        # By the path's own name, so that a node where it is missing says so, instead of making another model.
        named = {COMPILED: "compiled", REFERENCE: "torch"}.get(arithmetic_of(path, recipe, device), path)
        return {
            "shards": storage.absolute(shards),
            "store": storage.absolute(store),
            "judged": judged,
            "recipe": recipe,
            "word_vectors": point.word_vectors,
            "workers": workers,
            "threads": threads,
            "device": device,
            "path": named,
            "stop_after": epochs if epochs < recipe.epochs else None,
        }

    def place() -> AbstractContextManager[Place]:
        if engine == "processes":
            return in_processes(at_once or 1)
        from training.sweep.sweep_on_ray import on_ray

        return on_ray(workers=workers, threads=threads, on_gpu=device != "cpu", at_once=at_once)

    def produce(attempt: str) -> Outcome:
        trials = Trials(points, requests, store=store, measure=measure, progress=progress, trial_ended=trial_ended)
        with interrupts_held() as let_interrupts_through, place() as opened:
            trials.run(rungs, arguments, opened, let_interrupts_through)
        if trials.broken:
            raise _unfinished(trials)
        outcome = _outcome(trials, measure, judged, rungs, open_result(shards).manifest.outcome.labels)
        table = json.loads(json.dumps({**outcome.metrics, "labels": dict(outcome.labels)}))
        files = {"sweep.json": json.dumps(table, indent=1), **render(table)}
        if table["rows"][0]["mean"] is not None:
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
    workers: int = 1,
    device: str = "auto",
    path: str = "auto",
) -> list[tuple[Point, list[tuple[str, bool]]]]:
    """What `sweep` would train: of each point the digest of every recipe's training, and whether it is there already.

    Raises UsageError as `sweep`.
    """
    requests, _ = _requests(shards, points, measure, judged, None, workers, device, path)
    return [
        (point, [(r.digest, find_finished(store, r)[0] is not None) for r in of_point])
        for point, of_point in zip(points, requests, strict=True)
    ]


def _requests(
    shards: str,
    points: Sequence[Point],
    measure: str,
    judged: Judged | None,
    halving: Halving | None,
    workers: int,
    device: str,
    path: str,
) -> tuple[list[list[Request]], Request]:
    """The request of every trial, by point, and that of the sweep."""
    built = open_result(shards)
    counts = built.manifest.outcome.counts
    if 0 in (counts.get("dev_pairs"), counts.get("dev_rows")) and (measure == "dev_loss" or not judged):
        raise UsageError(
            asked=f"the trials were to be compared by {measure}",
            found="the shards hold nothing that is held out" + ("" if judged else ", and no judged files are given"),
            follows="there is nothing to measure that on but what the trials are trained on",
            do="build with a dev_share above 0, or give judged files and choose by dev_ndcg@10",
        )
    watched = fingerprints(judged)
    where: dict[str, Any] = {"judged": watched, "workers": workers, "device": device, "path": path}
    vectors = {file: storage.fingerprint(file) for file in {point.word_vectors for point in points} if file}
    trials = [
        [
            train_request(built, recipe, **where, word_vectors=vectors.get(point.word_vectors or ""))
            for recipe in point.recipes
        ]
        for point in points
    ]
    described = [
        {"fields": dict(point.fields), "trials": {str(trial.seed): trial.digest for trial in of_point}}
        for point, of_point in zip(points, trials, strict=True)
    ]
    request = Request(
        stage="sweep",
        stage_version=STAGE_VERSION,
        config={
            "measure": measure,
            "points": sorted(described, key=lambda point: sorted(point["trials"].values())),
            "halving": halving and asdict(halving),
        },
        inputs={"shards": built.manifest.digest, "judged": watched},
    )
    return trials, request


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
            "trials_diverged": sum(bool(trial.failed) for trial in ended),
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


def _unfinished(trials: Trials) -> UnfinishedSweep:
    reasons = "; ".join(dict.fromkeys(error.found for error in trials.broken))
    return UnfinishedSweep(
        rows=trials.rows(),
        asked=f"{len(trials.ended)} trials were to be carried out",
        found=f"{len(trials.broken)} could not be: {reasons}",
        follows="the others are finished and kept",
        do=f"{trials.broken[0].do}; then run the same command again, which tries only those that are missing",
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
    reads too. All fields are in it, so that it means the same when a later version changes a named recipe.

    `table`: the JSON of the sweep; `recipe`: of its first row, and the file that its words start from.
    """
    fields = flat(asdict(recipe), Recipe)
    name = fields.pop("name")
    if name not in names():  # a recipe of somebody's own: all of it is set
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
    # Text, numbers, true and false are written alike in JSON and TOML, which knows no null.
    return [f"{name} = {json.dumps('none' if value is None else value)}" for name, value in fields.items()]
