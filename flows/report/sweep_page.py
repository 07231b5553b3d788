"""The table of a sweep -> blocks: its curves and its ranking. A table here is the JSON of `sweep_stage`."""

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

from clicktower.flows.report.blocks import (
    SIMULATED,
    Block,
    Cell,
    Code,
    Items,
    Page,
    Picture,
    Section,
    Table,
    Text,
    html,
    quantity,
)
from clicktower.flows.report.figures import SERIES, WIDE, ChartRow, Dot, Line, line_chart, row_chart
from clicktower.flows.report.markdown import markdown_page
from clicktower.training.sweep.sweep_table import ALIKE, cells, chosen_row, direction, notes, point_text, train_options

NAMED = ("1st", "2nd", "3rd")  # the points whose means stand out from the curves of the trials
ROWS_DRAWN = 40
MOST = {"dev_loss": float("inf")}  # an upper bound; 1 for an NDCG


def pages(table: Mapping[str, Any]) -> dict[str, str]:
    """The files for people beside sweep.json."""
    page = sweep_page(table)
    return {"sweep.html": html(page), "sweep.md": markdown_page(page)}


def sweep_page(table: Mapping[str, Any]) -> Page:
    """The page of a sweep."""
    rows, measure = table["rows"], table["measure"]
    trials = sum(len(row["trials"]) for row in rows)
    return Page(
        kind="sweep",
        title=f"{quantity(len(rows), 'point')} by {measure}",
        lead=f"{trials:,} trials, measured on {table['watched']}; {direction(measure)}.",
        banners=[SIMULATED] * bool(table["labels"].get("simulated")),
        blocks=[
            *([Section(title="Ranking", blocks=_ranking(table))] if rows[0]["mean"] is not None else []),
            *_by_fields(rows, measure),
            *([_curves(rows, measure)] if any(trial["curve"] for row in rows for trial in row["trials"]) else []),
            Section(title="Table", blocks=table_blocks(table)),
        ],
    )


def table_blocks(table: Mapping[str, Any]) -> list[Block]:
    """The points, best first, and what to know about them."""
    header, rows = cells(table)
    at, has_best = header.index(table["measure"]), chosen_row(table) is not None
    shown: list[list[Cell | str]] = [
        [
            Cell(text=cell, strong=has_best and not place, tone="above" if ALIKE in row[0] else "") if i == at else cell
            for i, cell in enumerate(row)
        ]
        for place, row in enumerate(rows)
    ]
    points = quantity(len(rows), "point")
    caption = f"{points} by {table['measure']}, {direction(table['measure'])}, on {table['watched']}"
    return [Table(caption=caption, header=header, rows=shown, left=range(at)), Items(items=notes(table))]


def _ranking(table: Mapping[str, Any]) -> list[Block]:
    """Each point with a dot for its mean and one for each seed, and how the first one is trained."""
    rows, measure = table["rows"], table["measure"]
    chosen, drawn = chosen_row(table), []
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
                dots=[*dots, Dot(value=row["mean"], kind="first" if row is chosen else "")],
                remark=f"{row['mean']:.4f}{stopped}",
                ours=row is chosen,
            )
        )
    remark = f"; the first {ROWS_DRAWN} of {len(rows)} points" if len(rows) > ROWS_DRAWN else ""
    picture = Picture(
        title=f"{measure} of each point",
        remark=f"full dot: the mean; rings: its seeds{remark}",
        picture=partial(row_chart, drawn, f"{measure} of each point", width=WIDE, joined=True),
    )
    if not chosen:
        return [picture]
    how = "The first of them, with its first seed, is best.toml beside this page, for --recipe; by its options:"
    return [picture, Text(text=how), Code(text=" ".join(["clicktower train", *train_options(chosen)]))]


def _by_fields(rows: Sequence[Mapping[str, Any]], measure: str) -> list[Section]:
    """For each field with three numbers or more, the measure at each of them, with a line per choice of the others."""
    sections = []
    for field in rows[0]["fields"]:
        lines: dict[str, list[tuple[float, float]]] = {}
        for row in rows:
            value, trial = row["fields"].get(field), row["trials"][0]
            fields_beside = {name.rpartition(".")[2]: level for name, level in row["fields"].items() if name != field}
            if isinstance(value, int | float) and row["mean"] is not None and trial["epochs"] == trial["of_epochs"]:
                lines.setdefault(point_text(fields_beside), []).append((float(value), row["mean"]))
        drawn = [
            Line(name=name, points=sorted(points), dots=sorted(points))
            for name, points in lines.items()
            if len(points) > 2
        ]
        if drawn:
            label = f"{measure} by {field}"
            picture = partial(line_chart, drawn[: len(SERIES)], label, along=field)
            sections.append(Section(title=label, blocks=[Picture(remark="means over the seeds", picture=picture)]))
    return sections


def _curves(rows: Sequence[Mapping[str, Any]], measure: str) -> Section:
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
    label, most = f"{measure} after each epoch", MOST.get(measure, 1.0)
    picture = partial(line_chart, [*trials, *means], label, most=most, show="{:.4f}".format)
    remark = "thin: every trial; strong: the mean over the seeds of the first points"
    return Section(title="Learning curves", blocks=[Picture(title=label, remark=remark, picture=picture)])


def _by_epoch(curve: Sequence[float | None]) -> list[tuple[float, float | None]]:
    return [(float(epoch), value) for epoch, value in enumerate(curve, 1)]


def _means(curves: Sequence[Sequence[float | None]]) -> list[float | None]:
    """The means of the epochs that all curves have."""
    return [fmean(values) if None not in values else None for values in zip(*curves, strict=False)]  # type: ignore
