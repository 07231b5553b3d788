"""The sweep as a stage: one training for each point and seed, and a table of them, best first.

    sweep("store/build/DIGEST", points, store="store", measure="dev_loss")

Every trial is an ordinary train stage with a digest of its own: one that is in the store already, trained by hand or by
another sweep, counts; a sweep that was killed goes on with what is missing. A trial that diverges is a result; one that
could not be carried out (no memory, a full disk) leaves the sweep unfinished, and the same command tries it again.

Writes to STORE/sweep/DIGEST: sweep.json, the table, and sweep.md, the same for people.

A trial is a process of its own and not one of Ray Tune's: Tune knows nothing of digests, so it would train again what
is there, and starting it takes as long as a small trial (docs/running.md, "Tuning a recipe").
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from schemas import storage
from schemas.errors import StageError, UsageError
from schemas.manifest import Outcome, Request
from schemas.stage import Progress, StageResult, find_finished, open_result, run_stage, silent
from training.judged_files import Judged
from training.launch import fingerprints, train_request
from training.sweep.page import page
from training.sweep.table import Point, Row
from training.sweep.trials import TrialEnded, Trials

STAGE_VERSION = 1


class Unfinished(StageError):
    """Some trials could not be carried out. `rows`: the table of those that could."""

    def __init__(self, *, rows: Sequence[Row] = (), **facts: str) -> None:
        super().__init__(**facts)
        self.rows = rows


def sweep(
    shards: str,
    points: Sequence[Point],
    *,
    store: str,
    measure: str,
    judged: Judged | None = None,
    workers: int = 1,
    threads: int | None = None,
    device: str = "auto",
    path: str = "auto",
    at_once: int = 1,
    progress: Progress = silent,
    trial_ended: TrialEnded = lambda *_: None,
) -> StageResult:
    """The table of all points on the shards of a build, ranked by `measure` (of training.sweep.table.MEASURES).

    `at_once` trials run side by side, each with `workers` of `threads` threads (by default the cores shared out), as
    in training.launch.train. Raises UsageError; Unfinished where a trial could not be carried
    out, once all others are.
    """
    if min(at_once, workers, 1 if threads is None else threads) < 1:
        raise UsageError(
            asked=f"{at_once} trials at once were asked for, each of {workers} workers with {threads} threads",
            found="each must be at least 1",
            do="give 1 or more",
        )
    where = {"workers": workers, "device": device, "path": path}
    requests, request = _requests(shards, points, measure, judged, where)
    arguments = {"shards": shards, "store": store, "judged": judged, **where}
    arguments["threads"] = threads or max(1, len(os.sched_getaffinity(0)) // (workers * at_once))

    def produce(attempt: str) -> Outcome:
        trials = Trials(points, requests, store=store, measure=measure, progress=progress, trial_ended=trial_ended)
        trials.run(arguments, at_once)
        if trials.broken:
            raise _unfinished(trials)
        outcome = _outcome(trials, measure, judged, open_result(shards).manifest.outcome.labels)
        table = {**outcome.metrics, "labels": dict(outcome.labels)}
        storage.write_atomic(storage.join(attempt, "sweep.json"), json.dumps(table, indent=1).encode())
        storage.write_atomic(storage.join(attempt, "sweep.md"), page(table).encode())
        return outcome

    return run_stage(store, request, produce)


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
    requests, _ = _requests(shards, points, measure, judged, {"workers": workers, "device": device, "path": path})
    return [
        (point, [(r.digest, find_finished(store, r)[0] is not None) for r in of_point])
        for point, of_point in zip(points, requests, strict=True)
    ]


def _requests(
    shards: str, points: Sequence[Point], measure: str, judged: Judged | None, where: Mapping[str, Any]
) -> tuple[list[list[Request]], Request]:
    """The request of every trial, by point, and that of the sweep."""
    built = open_result(shards)
    has_dev_pairs = built.manifest.outcome.counts.get("dev_pairs") != 0
    if not has_dev_pairs and (measure == "dev_loss" or not judged):
        raise UsageError(
            asked=f"the trials were to be compared by {measure}",
            found="the shards hold no dev pairs" + ("" if judged else ", and no judged files are given"),
            follows="there is nothing to measure that on but what the trials are trained on",
            do="build with a dev_share above 0, or give judged files and choose by dev_ndcg@10",
        )
    watched = fingerprints(judged)
    trials = [[train_request(built, r, judged=watched, **where) for r in point.recipes] for point in points]
    described = [_description(point, of_point) for point, of_point in zip(points, trials, strict=True)]
    request = Request(
        stage="sweep",
        stage_version=STAGE_VERSION,
        config={"measure": measure, "points": sorted(described, key=lambda point: sorted(point["trials"].values()))},
        inputs={"shards": built.manifest.digest, "judged": watched},
    )
    return trials, request


def _description(point: Point, requests: Sequence[Request]) -> dict[str, Any]:
    return {"fields": dict(point.fields), "trials": {str(request.seed): request.digest for request in requests}}


def _outcome(trials: Trials, measure: str, judged: Judged | None, labels: Mapping[str, Any]) -> Outcome:
    ended, rows = trials.ended.values(), trials.rows()
    return Outcome(
        counts={
            "points": len(rows),
            "trials": len(ended),
            "trials_reused": sum(trial.reused for trial in ended),
            "trials_diverged": sum(bool(trial.failed) for trial in ended),
        },
        metrics={
            "measure": measure,
            "watched": "judgments" if judged else "held-out clicks",
            "rows": [asdict(row) for row in rows],
        },
        labels=labels,
    )


def _unfinished(trials: Trials) -> Unfinished:
    reasons = "; ".join(dict.fromkeys(error.found for error in trials.broken))
    return Unfinished(
        rows=trials.rows(),
        asked=f"{len(trials.ended)} trials were to be carried out",
        found=f"{len(trials.broken)} could not be: {reasons}",
        follows="the others are finished and kept",
        do=f"{trials.broken[0].do}; then run the same command again, which tries only those that are missing",
    )
