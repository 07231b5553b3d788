"""A sweep's table as people read it: cells and sentences, which the terminal shows too, and a page of Markdown.

A table here is the JSON of `training.sweep.stage`: measure, watched, rungs, rows, labels.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

from training.sweep.table import MEASURES

ALIKE = "≈"  # marks a point that the best cannot be told apart from


def page(table: Mapping[str, Any]) -> str:
    """The page of a sweep in Markdown."""
    header, rows = cells(table)
    best = table["rows"][0]
    lines = [
        f"# {len(rows)} points by {table['measure']}, {direction(table['measure'])}, on {table['watched']}",
        "",
        f"| {' | '.join(header)} |",
        f"|{'---|' * len(header)}",
        *(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows),
        "",
        *(f"- {note}" for note in notes(table)),
    ]
    if best["mean"] is not None:
        lines += ["", f"The first of them: `clicktower train {' '.join(train_options(best))}`"]
    return "\n".join(lines) + "\n"


def direction(measure: str) -> str:
    """Which way a measure is better."""
    return "higher is better" if MEASURES[measure] else "lower is better"


def cells(table: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The header and, best first, the cells of each point: what it varies, its measures, with halving how far it was
    trained, seeds, seconds of a trial's training."""
    chosen, rows = table["measure"], table["rows"]
    fields = list(dict.fromkeys(name for row in rows for name in row["fields"]))
    others = [name for name in MEASURES if name != chosen and any(_mean(row, name) is not None for row in rows)]
    by_halving = len(table["rungs"]) > 1
    header = ["", *fields, chosen, *others, *(["epochs"] if by_halving else []), "seeds", "s"]
    shown = []
    for place, row in enumerate(rows, 1):
        done = [trial for trial in row["trials"] if trial["measures"]]
        shown.append(
            [
                f"{place}{f' {ALIKE}' if row['told_apart'] is False else ''}",
                *(value_text(row["fields"][name]) if name in row["fields"] else "" for name in fields),
                _chosen(row),
                *(_figure(_mean(row, name)) for name in others),
                *([_epochs(done)] if by_halving else []),
                f"{len(done)}" if len(done) == len(row["trials"]) else f"{len(done)} of {len(row['trials'])}",
                f"{fmean(trial['seconds'] for trial in done):.0f}" if done else "",
            ]
        )
    return header, shown


def notes(table: Mapping[str, Any]) -> list[str]:
    """What to know before believing the table, one sentence or two each."""
    rows, told = table["rows"], []
    for row in rows:
        told += [
            f"{point_text(row['fields'])} diverged with seed {trial['seed']}: {trial['failed']}."
            for trial in row["trials"]
            if trial["failed"]
        ]
    if all(len(row["trials"]) == 1 for row in rows):
        told.append(
            "One seed for each point: a recipe's figure moves with its seed alone, so a small lead means nothing."
            " `seeds = [1, 2, 3]` shows by how much."
        )
    else:
        told.append("±: the standard deviation between seeds.")
    if any(row["told_apart"] is False for row in rows):
        told.append(f"{ALIKE}: the lead of the first point over this one is below two standard errors.")
    told += _halved(table)
    told += _at_an_edge(rows)
    told.append(
        f"These {table['watched']} chose the point, and of {len(rows)} points the best is best partly by luck: its"
        " figure here is no test result. Evaluate it on judgments that chose nothing."
    )
    if table["labels"].get("simulated"):
        told.append("All of this comes from a simulated log.")
    return told


def _halved(table: Mapping[str, Any]) -> list[str]:
    """What to know where points were left behind."""
    rungs = table["rungs"]
    if len(rungs) < 2:
        return []
    steps = ", ".join(
        f"{after['points']} of {before['points']} after {counted(before['epochs'], 'epoch')}"
        for before, after in pairwise(rungs)
    )
    return [
        f"Halving: {steps} went on. The others stand below with the figures they had when they were stopped, so these"
        " cannot be compared with those above, and one that starts slowly is never seen to arrive. Their checkpoints"
        " are kept: to train one to its end, use the options of its row in sweep.json."
    ]


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def train_options(row: Mapping[str, Any]) -> list[str]:
    """The options of `clicktower train` that make a point's first trial. Not its luckiest: that would be choosing by
    the seed."""
    return [*row["options"], "--set", f"seed={row['trials'][0]['seed']}"]


def point_text(fields: Mapping[str, Any]) -> str:
    """What a point varies, in a few words."""
    return ", ".join(f"{name}={value_text(value)}" for name, value in fields.items()) or "the recipe as it is"


def value_text(value: Any) -> str:
    """A field's value as it is written in TOML, and after --set."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _at_an_edge(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Of fields with three numbers or more, those whose best value is the smallest or largest that was tried."""
    told = []
    for name, best in rows[0]["fields"].items() if rows[0]["mean"] is not None else ():
        tried = {row["fields"].get(name) for row in rows}
        if len(tried) < 3 or not all(isinstance(value, int | float) for value in tried):
            continue
        for edge, which, other in ((min(tried), "smallest", "smaller"), (max(tried), "largest", "larger")):
            if best == edge:
                told.append(f"The best {name}, {value_text(best)}, is the {which} that was tried: try {other} ones.")
    return told


def _chosen(row: Mapping[str, Any]) -> str:
    if row["mean"] is None:
        return "diverged"
    return _figure(row["mean"]) + (f" ± {row['spread']:.4f}" if row["spread"] is not None else "")


def _epochs(done: Sequence[Mapping[str, Any]]) -> str:
    if not done:
        return ""
    epochs, of_epochs = done[0]["epochs"], done[0]["of_epochs"]
    return f"{epochs}" if epochs == of_epochs else f"{epochs} of {of_epochs}"


def _mean(row: Mapping[str, Any], measure: str) -> float | None:
    values = [trial["measures"][measure] for trial in row["trials"] if measure in (trial["measures"] or {})]
    return fmean(values) if values else None


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
