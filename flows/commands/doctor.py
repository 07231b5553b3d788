"""clicktower doctor"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table
from rich.text import Text

from flows.doctor.finding import Finding
from flows.show import console
from flows.show.console import errors, output


def doctor(*, into: str = ".", json: bool = False) -> int:
    """Say whether this machine can run it, which path training takes and why, and what to
    do about what is missing.

    Nothing is changed, and nothing private is shown. Exit code 1 says that
    something is in the way of a run on this machine.

        clicktower doctor
        clicktower doctor --into store --json

    Parameters
    ----------
    into
        The store that is to be used: its disk is looked at.
    json
        Print the findings as one JSON object.
    """
    import time

    from flows.doctor.examine import examine

    begun = time.perf_counter()
    groups = examine(into)
    result = as_result(groups, time.perf_counter() - begun)
    console.emit(result, json, show)
    return 0 if result["ready"] else 1


# What the doctor found, as JSON and as a person reads it.


_MARKS = {"bad": ("✗", "bold red"), "look": ("!", "bold yellow"), "good": ("✓", "green"), "note": ("·", "dim")}


def as_result(groups: Mapping[str, Sequence[Finding]], seconds: float) -> dict[str, Any]:
    """The JSON object of an examination."""
    findings = [{"group": group, **asdict(finding)} for group, found in groups.items() for finding in found]
    path: Mapping[str, Any] = next((one["facts"] for one in findings if one["name"] == "path"), {})
    return {
        "stage": "doctor",
        "ready": not any(one["state"] == "bad" for one in findings),
        "training_path": path.get("path", "unknown"),
        "instructions": path.get("instructions", ""),
        "findings": findings,
        "duration_seconds": round(seconds, 3),
    }


def show(result: Mapping[str, Any]) -> None:
    """The verdict, then every finding by group."""
    findings = result["findings"]
    bad, look = (sum(one["state"] == state for one in findings) for state in ("bad", "look"))
    verdict = Text("✓ this machine can run it", "bold green")
    if bad:
        verdict = Text(f"✗ in the way of a run on this machine: {_count(bad, 'thing')}", "bold red")
    if look:
        verdict.append(f"; {_count(look, 'thing')} to look at", "bold yellow")
    output.print(verdict, soft_wrap=True)
    width = max(len(one["name"]) for one in findings)
    for group in dict.fromkeys(one["group"] for one in findings):
        output.print(f"\n[bold]{group}[/]")
        output.print(_table([one for one in findings if one["group"] == group], width))
    errors.print(Text(f"looked for {result['duration_seconds']:.1f} s; nothing was changed", "dim"))


def _table(findings: Sequence[Mapping[str, Any]], width: int) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(width=1)
    table.add_column(width=width, no_wrap=True)
    table.add_column()
    for one in findings:
        mark, style = _MARKS[one["state"]]
        table.add_row(
            Text(mark, style), one["name"], Text(_shown(one["found"]), "dim" if one["state"] == "note" else "")
        )
        if one["follows"]:
            table.add_row("", "", Text(_shown(one["follows"]), "dim"))
        if one["do"]:
            table.add_row("", "", Text(f"→ {_shown(one['do'])}"))
    return table


def _shown(text: str) -> str:
    return "".join(char if char.isprintable() else "�" for char in text)


def _count(number: int, one: str) -> str:
    return f"{number} {one}" if number == 1 else f"{number} {one}s"
