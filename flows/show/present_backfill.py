"""A backfill as a person reads it: a line for each date as it ends, and what is left to do."""

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from flows.backfill import DateResult
from flows.console import errors, output, plain

_MARKS = {"done": ("✓ ", "green"), "reused": ("✓ ", "green"), "waiting": ("· ", "yellow"), "failed": ("✗ ", "bold red")}


def date_line(one: DateResult) -> None:
    """The line of a date that has ended, on stderr."""
    what = {
        "done": ", ".join(name for name, result in one.results.items() if _is_new(result)),
        "reused": "all of it was there",
        "waiting": "ingested; nothing is made of it, since another date failed",
        "failed": one.found,
    }[one.state]
    line = Text.assemble(_MARKS[one.state], (f"{one.date}  ", "bold"), (f"{one.state:<8}", "dim"), plain(what))
    errors.print(line, soft_wrap=True)


def as_one(done: Sequence[DateResult]) -> dict[str, Any]:
    """The JSON object of a backfill."""
    return {
        "stage": "backfill",
        "dates": [one.to_json() for one in done],
        "failed": [one.date for one in done if one.state == "failed"],
    }


def summary(value: dict[str, Any]) -> None:
    """What came of all of it, and what to do about it."""
    failed = value["failed"]
    output.print(
        f"{len(value['dates']):,} dates, {len(failed):,} failed" if failed else f"{len(value['dates']):,} dates"
    )
    if failed:
        output.print(f"Mend what is said above of {', '.join(failed)}, and run the same command again to go on.")


def _is_new(result: Any) -> bool:
    return isinstance(result, dict) and not result.get("reused", True)
