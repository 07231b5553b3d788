"""What an erasure did, as JSON and as a person reads it. Never who it was about."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from flows import present
from flows.console import errors, output, plain

if TYPE_CHECKING:
    from beam_jobs.ingest.erase import Erasure


def as_result(store: str, erasure: "Erasure") -> dict[str, Any]:
    """The JSON object of an erasure. `reused`: there was nothing to change."""
    return {
        "stage": "erase",
        "digest": "",  # an erasure has no name of its own: what names it would name the person
        "path": store,
        "reused": not erasure.num_ingests,
        "counts": {
            "ingests_changed": erasure.num_ingests,
            "queries_removed": erasure.num_queries,
            "queries_with_one_person_less": erasure.num_sets,
            "lines_removed": erasure.num_lines,
        },
        "days": dict(erasure.dates),
        "without_key": list(erasure.keyless),
        "unfinished": list(erasure.unfinished),
        "made_before": [asdict(made) for made in erasure.made_before],
    }


def show(result: dict[str, Any]) -> None:
    """What was removed, what could not be, and what was made before."""
    counts = result["counts"]
    if result["reused"]:
        present.stage_line("erase", "nothing to remove: no day whose key is there holds these people")
    else:
        present.stage_line(
            "erase",
            f"{counts['queries_removed']:,} queries that nobody else typed are removed"
            f" ({counts['lines_removed']:,} lines), {counts['queries_with_one_person_less']:,} count fewer people,"
            f" in {counts['ingests_changed']:,} ingests",
        )
    for date, version in result["days"].items():
        output.print(f"{date} is now version {version}")
    _list("Cannot be changed any more, since the key of their window is gone:", result["without_key"])
    _list("Left behind by ingests that did not finish; run them again, or remove these folders:", result["unfinished"])
    made = [f"{one['stage']:<9} {one['path']} ({one['created']})" for one in result["made_before"]]
    _list("Made before from days that an erasure has changed since; build, train and publish again, then remove:", made)
    errors.print("[dim]Raw logs, and copies of the store, are not touched: remove the person from them too.[/]")


def _list(title: str, lines: list[str]) -> None:
    if lines:
        output.print(f"\n{title}")
        for line in lines:
            output.print(f"  {plain(line)}", soft_wrap=True)
