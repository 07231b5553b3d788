"""In a terminal: what `prune` removed, what a run would do (`run --plan`), and findings of `check` and `doctor`."""

from collections.abc import Mapping, Sequence
from typing import Any

from clicktower.flows.report.blocks import Cell, Table, Text, duration
from clicktower.flows.show.console import show


def pruning(result: Mapping[str, Any]) -> None:
    """What went, or would go, by kind, and what stays."""
    removed = result["removed"]
    rows: list[list[Cell | str]] = []
    for stage in sorted({*result["kept_bytes"], *(gone["stage"] for gone in removed)}):
        of_stage = [gone for gone in removed if gone["stage"] == stage]
        dates = sorted(gone["date"] for gone in of_stage if gone["date"])
        which = f"{dates[0]} to {dates[-1]}" if dates else "; ".join(sorted({gone["reason"] for gone in of_stage}))
        size = sum(gone["num_bytes"] for gone in of_stage)
        kept = megabytes(result["kept_bytes"].get(stage, 0))
        rows.append([stage, f"{len(of_stage):,}" if of_stage else "", megabytes(size) if of_stage else "", kept, which])
    going = "would go" if result["dry_run"] else "removed"
    header = ("", going, "MB", "MB kept", "")
    show([Table(caption="", header=header, rows=rows, left=(0, 4)), *(Text(text=f"{w}.") for w in result["waits"])])


def pruned_headline(result: Mapping[str, Any]) -> str:
    """A removal in one line."""
    removed = result["removed"]
    kept = f"{megabytes(sum(result['kept_bytes'].values()))} MB stay"
    went = f"{len(removed):,} outputs removed, {megabytes(result['removed_bytes'])} MB" if removed else "nothing to go"
    return "; ".join([f"{went}, {kept}", *result["waits"]])


def megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.1f}"


def plan(result: Mapping[str, Any]) -> None:
    """What each stage of a run would do and why, how long it took last time, and how long those that run took."""
    rows: list[list[Cell | str]] = [
        [
            row["stage"],
            Cell(text="runs", tone="open") if row["runs"] else Cell(text="reused", tone="quiet"),
            row["because"],
            "unknown" if row["seconds"] is None else duration(row["seconds"]),
        ]
        for row in result["plan"]
    ]
    number, unknown = sum(row["runs"] for row in result["plan"]), ", ".join(result["unknown"])
    seconds = [duration(result["seconds"])] if number > len(result["unknown"]) else []
    time = " and ".join([*seconds, *([f"an unknown time for {unknown}"] if unknown else [])])
    total = f"{number} of {len(rows)} stages would run: {time}" if number else "No stage would run: all is reused"
    header = ("stage", "", "because", "last time took")
    show([Table(caption="", header=header, rows=rows, left=(0, 1, 2)), Text(text=f"{total}.")])


MARKS = {
    **dict.fromkeys(("bad", "fails"), ("✗", "worse")),
    "look": ("!", "open"),
    "good": ("✓", "better"),
    "note": ("·", "quiet"),
}


def finding_rows(state: str, names: Sequence[str], text: Cell | str, fix: str) -> list[list[Cell | str]]:
    """The rows of a finding: its mark, what is wrong, and below it what to do, if anything."""
    mark, tone = MARKS[state]
    rows: list[list[Cell | str]] = [[Cell(text=mark, tone=tone), *names, text]]
    return [*rows, ["", *[""] * len(names), f"→ {fix}"]] if fix else rows
