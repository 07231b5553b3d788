"""The trials of a sweep -> its table: each point over its seeds, best first, and whether the lead is significant.

A single seed misleads: two trainings of one recipe differ by their random numbers alone, often by more than two recipes
do. So the mean over its seeds ranks a point, with the standard deviation between them beside it.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean, stdev
from typing import Any

from clicktower.training.model.objective_settings import ObjectiveSettings
from clicktower.training.model.recipe import Recipe


def measures() -> dict[str, bool]:
    """The figures after each epoch, of every objective, and whether higher is better."""
    return {"dev_loss": False} | {
        name: True for kind in ObjectiveSettings.all_kinds().values() for name in kind.measures
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """A setting to try: a recipe for each seed.

    `fields`: what it varies, for people. `options`: the options of `clicktower train` for the same, without the seed.
    `word_vectors`: the file that its words start from (model.word_vectors), which the recipes know of.
    """

    fields: Mapping[str, Any]
    recipes: Sequence[Recipe]
    word_vectors: str | None = None
    options: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """One training of a sweep and its result: `measures`, or in `failed` why there are none.

    `diverged`: it failed because its numbers ran away, as they would again; any other failure says nothing about its
    recipe. `curve`: the deciding measure after each epoch. `epochs`: how many of its recipe's `of_epochs` are done, in
    rung `rung` of a sweep by halving (sweep_stage.Halving), from 0.
    """

    seed: int
    digest: str  # of the train request
    reused: bool = False
    seconds: float = 0.0  # of training, all of its epochs
    measures: Mapping[str, float] | None = None
    failed: str = ""
    diverged: bool = False
    epochs: int = 0
    of_epochs: int = 0
    rung: int = 0
    curve: Sequence[float | None] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepRow:
    """A point over its seeds. `mean` is None if no seed gave a value, `spread` if fewer than two did.

    `spread`: the standard deviation between seeds. `told_apart`: whether the best one's lead over this point is more
    than two standard errors of the difference; None without a spread, or if the best trained for longer. `rung`: the
    last one that it reached.
    """

    fields: Mapping[str, Any]
    options: Sequence[str]
    trials: Sequence[Trial]
    mean: float | None
    spread: float | None
    told_apart: bool | None = None
    rung: int = 0


def rank_points(points: Sequence[tuple[Point, Sequence[Trial]]], measure: str) -> list[SweepRow]:
    """A row for each point and its trials, best first by `measure`, one of `measures`.

    Points with a failed seed come after the others, since nobody publishes a recipe that sometimes fails; those where
    every seed failed come last. Of the others, one that reached a later rung comes before those that did not: their
    figures are of fewer epochs.
    """
    sign = -1 if measures()[measure] else 1
    rows = [_row(point, trials, measure) for point, trials in points]
    rows.sort(
        key=lambda row: (
            row.mean is None,
            any(trial.failed for trial in row.trials),
            -row.rung,
            sign * (row.mean or 0.0),
            row.trials[0].digest,  # equal points have the same order for any order of input
        )
    )
    return [*rows[:1], *(_neighbours(row, rows[0], measure) for row in rows[1:])]


def _row(point: Point, trials: Sequence[Trial], measure: str) -> SweepRow:
    values = _values(trials, measure)
    return SweepRow(
        fields=point.fields,
        options=point.options,
        trials=trials,
        mean=fmean(values) if values else None,
        spread=stdev(values) if len(values) > 1 else None,
        rung=max((trial.rung for trial in trials), default=0),
    )


def _neighbours(row: SweepRow, best: SweepRow, measure: str) -> SweepRow:
    if row.mean is None or best.mean is None or row.spread is None or best.spread is None or row.rung != best.rung:
        return row
    num_row, num_best = (len(_values(r.trials, measure)) for r in (row, best))
    error = math.sqrt(row.spread**2 / num_row + best.spread**2 / num_best)
    return replace(row, told_apart=abs(best.mean - row.mean) > 2 * error)


def _values(trials: Sequence[Trial], measure: str) -> list[float]:
    return [trial.measures[measure] for trial in trials if trial.measures]


ALIKE = "≈"  # marks a point whose difference from the best is not significant


def direction(measure: str) -> str:
    """Which way a measure is better."""
    return "higher is better" if measures()[measure] else "lower is better"


def cells(table: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The header and, best first, the cells of each point: what it varies, its measures, with halving its epochs,
    seeds, seconds of a trial's training.
    """
    chosen, rows = table["measure"], table["rows"]
    fields = list(dict.fromkeys(name for row in rows for name in row["fields"]))
    measure_names = [
        name for name in measures() if name != chosen and any(_mean(row, name) is not None for row in rows)
    ]
    by_halving = len(table["rungs"]) > 1
    header = ["", *fields, chosen, *measure_names, *(["epochs"] if by_halving else []), "seeds", "s"]
    shown = []
    for place, row in enumerate(rows, 1):
        measured = [trial for trial in row["trials"] if trial["measures"]]
        shown.append(
            [
                f"{place}{f' {ALIKE}' if row['told_apart'] is False else ''}",
                *(value_text(row["fields"][name]) if name in row["fields"] else "" for name in fields),
                _chosen(row),
                *(_figure(_mean(row, name)) for name in measure_names),
                *([_epochs(measured)] if by_halving else []),
                f"{len(measured)}"
                if len(measured) == len(row["trials"])
                else f"{len(measured)} of {len(row['trials'])}",
                f"{fmean(trial['seconds'] for trial in measured):.0f}" if measured else "",
            ]
        )
    return header, shown


def notes(table: Mapping[str, Any]) -> list[str]:
    """What to know before believing the table, one sentence or two each."""
    rows, remarks = table["rows"], []
    for row in rows:
        remarks += [
            f"{point_text(row['fields'])} {how_it_failed([trial])} with seed {trial['seed']}: {trial['failed']}"
            for trial in row["trials"]
            if trial["failed"]
        ]
    if all(len(row["trials"]) == 1 for row in rows):
        remarks.append(
            "One seed for each point: a recipe's figure moves with its seed alone, so a small lead means nothing."
            " `seeds = [1, 2, 3]` shows by how much."
        )
    else:
        remarks.append("±: the standard deviation between seeds.")
    if any(row["told_apart"] is False for row in rows):
        remarks.append(f"{ALIKE}: the lead of the first point over this one is below two standard errors.")
    remarks += _halving_note(table)
    if chosen_row(table):
        remarks += _edge_fields(rows)
        remarks.append(
            f"These {table['watched']} chose the point, and of {len(rows)} points the best is best partly by luck: its"
            " figure here is no test result. Evaluate it on judgments that chose nothing."
        )
    else:
        remarks.append(f"No point is chosen: {_why_none(table)}.")
    if table["labels"].get("simulated"):
        remarks.append("All of this comes from a simulated log.")
    return remarks


def chosen_row(table: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The best point of a table; None if some trial may yet change it, or no point was trained to its end."""
    best = table["rows"][0]
    is_whole = not any(trial["failed"] and not trial["diverged"] for row in table["rows"] for trial in row["trials"])
    measured = [trial for trial in best["trials"] if trial["measures"]]
    is_at_end = bool(measured) and all(trial["epochs"] == trial["of_epochs"] for trial in measured)
    return best if is_whole and is_at_end else None


def _why_none(table: Mapping[str, Any]) -> str:
    trials = [trial for row in table["rows"] for trial in row["trials"]]
    if any(trial["failed"] and not trial["diverged"] for trial in trials):
        return "the trials that failed are still to be trained"
    if all(trial["failed"] for trial in trials):
        return "every trial diverged"
    return "those that went on to the end diverged"


def how_it_failed(trials: Sequence[Mapping[str, Any]]) -> str:
    """Whether trials without figures diverged, all of them, or failed."""
    return "diverged" if all(trial["diverged"] for trial in trials if trial["failed"]) else "failed"


def _halving_note(table: Mapping[str, Any]) -> list[str]:
    """What to know if halving ended some points early."""
    rungs = table["rungs"]
    if len(rungs) < 2:
        return []
    steps = ", ".join(
        f"{after['points']} of {before['points']} after {before['epochs']:,} epoch{'s' * (before['epochs'] != 1)}"
        for before, after in pairwise(rungs)
    )
    return [
        f"Halving: {steps} went on. The others stand below with the figures they had when they were stopped, so these"
        " cannot be compared with those above, and one that starts slowly is never seen to arrive. Their checkpoints"
        " are kept: to train one to its end, use the options of its row in sweep.json."
    ]


def train_options(row: Mapping[str, Any]) -> list[str]:
    """The options of `clicktower train` for a point's first trial. Not its luckiest: that would be choosing by the
    seed.
    """
    return [*row["options"], "--set", f"seed={row['trials'][0]['seed']}"]


def point_text(fields: Mapping[str, Any]) -> str:
    """What a point varies, in a few words."""
    return ", ".join(f"{name}={value_text(value)}" for name, value in fields.items()) or "the recipe as it is"


def value_text(value: Any) -> str:
    """A field's value as it is written in TOML, and after --set."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _edge_fields(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Of fields with three numbers or more, those whose best value is the smallest or largest one tried."""
    remarks = []
    for name, best in rows[0]["fields"].items():
        tried = {row["fields"].get(name) for row in rows}
        if len(tried) < 3 or not all(isinstance(value, int | float) for value in tried):
            continue
        for edge, which, size in ((min(tried), "smallest", "smaller"), (max(tried), "largest", "larger")):
            if best == edge:
                remarks.append(f"The best {name}, {value_text(best)}, is the {which} that was tried: try {size} ones.")
    return remarks


def _chosen(row: Mapping[str, Any]) -> str:
    if row["mean"] is None:
        return how_it_failed(row["trials"])
    return _figure(row["mean"]) + (f" ± {row['spread']:.4f}" if row["spread"] is not None else "")


def _epochs(curve: Sequence[Mapping[str, Any]]) -> str:
    if not curve:
        return ""
    epochs, of_epochs = curve[0]["epochs"], curve[0]["of_epochs"]
    return f"{epochs}" if epochs == of_epochs else f"{epochs} of {of_epochs}"


def _mean(row: Mapping[str, Any], measure: str) -> float | None:
    values = [trial["measures"][measure] for trial in row["trials"] if measure in (trial["measures"] or {})]
    return fmean(values) if values else None


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
