"""Where the time of a training run went, as a person reads it in a terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from flows.console import errors, output, plain
from flows.present import from_here

PLACES = {
    "loop": "The run, by the clock",
    "compute": "Inside the micro-batches, all threads together (of {threads})",
    "beside": "Meanwhile, on threads of their own",
}
LEAST_SHARE = 0.0005  # of a place's time that is worth a row


def show_profile(profile: Mapping[str, Any]) -> None:
    """Print the tables of a profile (training_profile) and where its files are."""
    updates, seconds = profile["updates"], profile["seconds"]
    output.print()
    output.print(Text(f"Where the time went: {updates:,} updates in {seconds:,.1f} s", style="bold"))
    if profile["resumed_at"]:
        output.print(Text(f"(the part of the run from update {profile['resumed_at'] + 1:,} on)", style="dim"))
    for place in PLACES:
        if rows := [row for row in profile["phases"] if row["where"] == place]:
            output.print()
            output.print(Text(PLACES[place].format(**profile), style="italic"), soft_wrap=True)
            output.print(_table(place, rows, profile))
    output.print(f"\n{plain(from_here(profile['path']))}", soft_wrap=True)
    output.print(Text("trace.json beside it opens in chrome://tracing and https://ui.perfetto.dev", style="dim"))


def show_nothing_ran(has_profile: bool) -> None:
    """Say that a profile was asked for and nothing was run, because the model was there."""
    which = "The profile below is of the run that made it." if has_profile else "So there is nothing to profile."
    errors.print(
        Text(f"  nothing was run: this model was there already. {which} To measure a run, train into an empty store "
             "(--into)", style="yellow"), soft_wrap=True)  # fmt: skip


def _table(place: str, rows: Sequence[Mapping[str, Any]], profile: Mapping[str, Any]) -> Table:
    seconds = profile["seconds"] * (profile["threads"] if place == "compute" else 1)
    table = Table(box=None, header_style="dim", pad_edge=False)
    for name in ("", "seconds", "share", "calls", "each", "", ""):
        table.add_column(name, justify="right" if name else "left")
    for row in rows:
        if row["share"] >= LEAST_SHARE:
            table.add_row(
                row["phase"], f"{row['seconds']:,.2f}", f"{row['share']:.1%}", f"{row['calls']:,}",
                _short(row["seconds"] / row["calls"]), Text("█" * round(row["share"] * 10), style="green"),
                Text(row["what"], style="dim"),
            )  # fmt: skip
    rest = seconds - sum(row["seconds"] for row in rows)
    if rest / seconds >= LEAST_SHARE and place != "beside":
        name = "between phases" if place == "loop" else "idle"
        table.add_row(Text(name, style="dim"), f"{rest:,.2f}", f"{rest / seconds:.1%}", "", "", "", "")
    return table


def _short(seconds: float) -> str:
    """A duration with the unit that suits it: 12 µs, 3.4 ms, 1.2 s."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size or unit == "µs":
            value = seconds / size
            return f"{value:.1f} {unit}" if value < 10 else f"{value:,.0f} {unit}"
    raise AssertionError
