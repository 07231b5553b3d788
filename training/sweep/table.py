"""The trials of a sweep -> its table: each point over its seeds, best first, and whether the best can be told apart.

A single seed misleads: two trainings of one recipe differ by their random numbers alone, often by more than two recipes
do. So a point is judged by the mean over its seeds, with the standard deviation between them beside it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

from training.ranking.ndcg import CUTOFFS
from training.recipe import Recipe

# What is watched after each epoch (training.objectives), and whether more of it is better.
OF_CLICKS = {f"dev_ndcg@{k}": True for k in CUTOFFS}
OF_LABELS = {"dev_accuracy": True, "dev_area_under_roc": True}
MEASURES: Mapping[str, bool] = {"dev_loss": False, **OF_CLICKS, **OF_LABELS}


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """A setting to try: a recipe for each seed.

    `fields`: what it varies, for people. `options`: those of `clicktower train` that say the same, but for the seed.
    `word_vectors`: the file that its words start from (training.word_vectors), which the recipes know of.
    """

    fields: Mapping[str, Any]
    recipes: Sequence[Recipe]
    word_vectors: str | None = None
    options: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """One training of a sweep, and what came of it: `measures`, or in `failed` why there are none.

    `curve`: what chooses, after each epoch. `epochs` of the `of_epochs` of its recipe are behind it, in rung `rung` of
    a sweep by halving (training.sweep.halving), from 0.
    """

    seed: int
    digest: str  # of the train request
    reused: bool = False
    seconds: float = 0.0  # of training, all of its epochs
    measures: Mapping[str, float] | None = None
    failed: str = ""
    epochs: int = 0
    of_epochs: int = 0
    rung: int = 0
    curve: Sequence[float | None] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A point over its seeds. `mean` is None where no seed gave a value, `spread` where fewer than two did.

    `spread`: the standard deviation between seeds. `told_apart`: the best one's lead over this point is more than two
    standard errors of the difference; None where there is no spread to tell by, or where the best trained for longer.
    `rung`: the last that it reached.
    """

    fields: Mapping[str, Any]
    options: Sequence[str]
    trials: Sequence[Trial]
    mean: float | None
    spread: float | None
    told_apart: bool | None = None
    rung: int = 0


def ranked(points: Sequence[tuple[Point, Sequence[Trial]]], measure: str) -> list[Row]:
    """A row for each point and its trials, best first by `measure`, one of MEASURES.

    A point with a seed that failed comes after all without, since a recipe that fails now and then is none to publish;
    those where every seed failed come last. Of the others, one that reached a later rung comes before those that were
    left behind: their figures are of fewer epochs.
    """
    sign = -1 if MEASURES[measure] else 1
    rows = [_row(point, trials, measure) for point, trials in points]
    rows.sort(
        key=lambda row: (
            row.mean is None,
            any(trial.failed for trial in row.trials),
            -row.rung,
            sign * (row.mean or 0.0),
            row.trials[0].digest,  # so that of two that are equal the same is first whatever the order of points
        )
    )
    return [*rows[:1], *(_beside(row, rows[0], measure) for row in rows[1:])]


def _row(point: Point, trials: Sequence[Trial], measure: str) -> Row:
    values = _values(trials, measure)
    return Row(
        fields=point.fields,
        options=point.options,
        trials=trials,
        mean=fmean(values) if values else None,
        spread=stdev(values) if len(values) > 1 else None,
        rung=max((trial.rung for trial in trials), default=0),
    )


def _beside(row: Row, best: Row, measure: str) -> Row:
    if row.mean is None or best.mean is None or row.spread is None or best.spread is None or row.rung != best.rung:
        return row
    num_row, num_best = (len(_values(r.trials, measure)) for r in (row, best))
    error = math.sqrt(row.spread**2 / num_row + best.spread**2 / num_best)
    return replace(row, told_apart=abs(best.mean - row.mean) > 2 * error)


def _values(trials: Sequence[Trial], measure: str) -> list[float]:
    return [trial.measures[measure] for trial in trials if trial.measures]
