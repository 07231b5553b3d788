"""The guards of a run as blocks: what a promotion compared, and figures beside those of earlier runs."""

from collections.abc import Mapping, Sequence
from typing import Any

from clicktower.flows.report.blocks import Block, Cell, Items, Table, Text, num_compared
from clicktower.training.ranking.ndcg import measure_name


def compared(figures: Mapping[str, Any], click_derived: bool) -> list[Block]:
    """The slices of the queries on which a promotion compared two models."""
    blocks: list[Block] = []
    if click_derived:
        blocks.append(Text(text="The two models were judged by clicks; no judge compared them."))
    if slices := figures.get("slices"):
        rows: list[list[Cell | str]] = [
            [
                Cell(text=row["part"], aside=row["slice"]), f"{row['n']:,}", f"{row['live']:.3f}",
                f"{row['candidate']:.3f}",
                Cell(text=f"{row['difference']:+.3f}", aside="too much worse" if row["worse"] else ""),
                f"{-row['limit']:.3f}" if row["decides"] else Cell(text="too few to decide", tone="quiet"),
            ]
            for row in slices
        ]  # fmt: skip
        caption = f"{measure_name(figures.get('measure', 'ndcg@10'))} on parts of the queries; a part that falls by"
        header = ("Part", "Queries", "Live", "Candidate", "Change", "Limit")
        blocks.append(Table(caption=f"{caption} more than its limit keeps the candidate", header=header, rows=rows))
    return blocks


def drift(rows: Sequence[Mapping[str, Any]]) -> list[Block]:
    """The alarms, or that there are none, and every figure beside its usual value."""
    alarms = [row["alarm"] + (" It stopped the run." if row.get("stops") else "") for row in rows if row["alarm"]]
    return [
        Items(items=alarms, tone="alarm") if alarms else Text(text=usual(rows)),
        Table(
            caption="Figures of this run beside the median of earlier ones",
            header=("Figure", "This run", "Usual", "From"),
            rows=[[row["words"], row["value"], row["usual"], row["basis"]] for row in rows],
            left=(0, 3),
            strong=[at for at, row in enumerate(rows) if row["alarm"]],
        ),
    ]


def usual(rows: Sequence[Mapping[str, Any]]) -> str:
    """The sentence if no figure raises an alarm."""
    if not (compared := num_compared(rows)):
        return "There are too few earlier runs to say what is unusual."
    return f"No figure is unusual, of {compared} compared with earlier runs."
