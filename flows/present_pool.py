"""A sheet for assessors, and what assessors said, as a person reads it."""

from typing import Any

from rich.table import Table
from rich.text import Text

from flows.console import output, plain
from flows.present import stage_line
from training.judging.sheet import GRADES


def show_sheet(result: dict[str, Any]) -> None:
    """What the sheet holds, and what to do with it."""
    c = result["counts"]
    state = "reused" if result["reused"] else "new"
    stage_line(
        "pool", f"{c['pairs']:,} pairs of {c['queries']:,} queries to judge, from {c['runs']:,} runs", state=state
    )
    lines = [f"the best {result['metrics']['depth']:,} of each run: {c['results']:,} results"]
    lines += [f"{c['found_by_several']:,} of them repeat another run's"] if c["found_by_several"] else []
    lines += [f"{c['judged_before']:,} pairs are judged already and left out"] if c["judged_before"] else []
    output.print(Text("; ".join(lines), style="dim"))
    output.print(plain(result["path"]), soft_wrap=True)
    grades = ", ".join(f"{grade} {word.capitalize()}" for grade, word in enumerate(GRADES))
    output.print(Text(f"write {grades} into the column grade, save as CSV, and read it with --read", style="dim"))


def show_judged(result: dict[str, Any]) -> None:
    """How many judgments there are, of which grades, and how far assessors agree."""
    c, metrics = result["counts"], result["metrics"]
    state = "reused" if result["reused"] else "new"
    stage_line("pool", f"{c['judgments']:,} judgments of {c['queries']:,} queries by people", state=state)
    grades = ", ".join(f"{c[f'grade_{grade}']:,} {word.capitalize()}" for grade, word in enumerate(GRADES))
    output.print(Text(grades, style="dim"))
    if open_rows := c["rows_without_grade"] + c["rows_missing"]:
        output.print(Text(f"not judged: {open_rows:,} of {c['judgments'] + open_rows:,}", style="yellow"))
    if metrics["agreement"]:
        output.print(_agreement_table(metrics["agreement"]))
        output.print(
            Text("kappa: Cohen's, agreement beyond chance; weighted: by the square of the steps apart", style="dim")
        )
        output.print(Text(f"one grade of several: {metrics['merge']}", style="dim"))
    output.print(plain(result["path"]), soft_wrap=True)


def _agreement_table(agreement: list[dict[str, Any]]) -> Table:
    table = Table(title="Agreement of assessors", title_justify="left", box=None, header_style="dim", pad_edge=False)
    table.add_column("")
    for name in ("both judged", "the same", "kappa", "weighted"):
        table.add_column(name, justify="right")
    for row in agreement:
        kappas = ("-" if row[name] is None else f"{row[name]:.2f}" for name in ("kappa", "weighted_kappa"))
        same = f"{row['num_same'] / row['num_pairs']:.0%}"
        table.add_row(plain(f"{row['one']} and {row['other']}"), f"{row['num_pairs']:,}", same, *kappas)
    return table
