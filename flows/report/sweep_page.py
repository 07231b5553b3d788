"""The table of a sweep -> sweep.html: its curves and its ranking, one file with its style and pictures inside."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from markupsafe import Markup

from flows.report.figures import WIDE, ChartRow, Dot, Line, line_chart, row_chart
from flows.report.templates import style, templates
from training.sweep.sweep_table import cells, counted, direction, notes, point_text, train_options

NAMED = ("1st", "2nd", "3rd")  # of the points, whose means stand out from the curves of the trials
ROWS_DRAWN = 40
MOST = {"dev_loss": float("inf")}  # what no value can be above; 1 for an NDCG


def render(table: Mapping[str, Any]) -> str:
    """The page of a table, the JSON of sweep_stage. Every text of it is escaped."""
    pages = templates()
    rows, measure = table["rows"], table["measure"]
    header, shown = cells(table)
    return pages.get_template("sweep.html").render(
        style=style("report.css"),
        title=f"{counted(len(rows), 'point')} by {measure}",
        table=table,
        better=direction(measure),
        trials=sum(len(row["trials"]) for row in rows),
        curves=_curves(rows, measure),
        ranking=_ranking(rows, measure),
        drawn=min(len(rows), ROWS_DRAWN),
        header=header,
        first_number=header.index(measure),
        rows=shown,
        notes=notes(table),
        best=" ".join(["clicktower train", *train_options(rows[0])]) if rows[0]["mean"] is not None else "",
    )


def _curves(rows: Sequence[Mapping[str, Any]], measure: str) -> Markup:
    """A quiet line for each trial, and the first points' means over their seeds."""
    trials = [
        Line(name="", points=_by_epoch(trial["curve"]), aside=True)
        for row in reversed(rows)
        for trial in row["trials"]
        if trial["curve"]
    ]
    means = [
        Line(name=name, points=_by_epoch(_means([trial["curve"] for trial in row["trials"] if trial["curve"]])))
        for name, row in zip(NAMED, rows, strict=False)
        if row["mean"] is not None
    ]
    return line_chart(
        [*trials, *means], f"{measure} after each epoch", most=MOST.get(measure, 1.0), show="{:.4f}".format
    )


def _by_epoch(curve: Sequence[float | None]) -> list[tuple[float, float | None]]:
    return [(float(epoch), value) for epoch, value in enumerate(curve, 1)]


def _means(curves: Sequence[Sequence[float | None]]) -> list[float | None]:
    """Of the epochs that all curves have."""
    return [fmean(values) if None not in values else None for values in zip(*curves, strict=False)]  # type: ignore


def _ranking(rows: Sequence[Mapping[str, Any]], measure: str) -> Markup:
    """Each point with a dot for its mean and one for each seed."""
    drawn = []
    for place, row in enumerate(rows[:ROWS_DRAWN], 1):
        seeds = [trial["measures"][measure] for trial in row["trials"] if trial["measures"]]
        if not seeds:
            continue
        dots = [Dot(value=value, kind="there") for value in seeds if len(seeds) > 1]
        trial = row["trials"][0]
        stopped = f" after {trial['epochs']} of {trial['of_epochs']}" if trial["epochs"] < trial["of_epochs"] else ""
        drawn.append(
            ChartRow(
                name=f"{place}  {point_text(row['fields'])}",
                dots=[*dots, Dot(value=row["mean"], kind="first" if place == 1 else "")],
                remark=f"{row['mean']:.4f}{stopped}",
                ours=place == 1,
            )
        )
    return row_chart(drawn, f"{measure} of each point", width=WIDE, joined=True)
