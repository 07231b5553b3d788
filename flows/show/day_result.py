"""What a person or a program is told about the days that an ingest makes and a build takes."""

from collections.abc import Mapping
from typing import Any

from schemas import day_version
from schemas.stage import StageResult

NUM_EXAMPLES = 5


def day_of(store: str, result: StageResult) -> dict:
    """{"day": the newest version of the ingest's date}, with the file that holds it; nothing for an undated ingest."""
    date = result.manifest.request.config.get("date")
    version = day_version.newest(store, date) if date else None
    return {"day": version.to_json() | {"path": day_version.uri_of(store, version)}} if version else {}


def notes_on_days(result: Mapping[str, Any]) -> list[str]:
    """What of a stage's JSON result somebody should look at: late files, wrong clocks, dates that are missing."""
    metrics, notes = result.get("metrics", {}), list[str]()
    if (day := result.get("day")) and day["version"] > 1:
        notes.append(
            f"{day['date']} is now version {day['version']} ({day['because']}); builds take it from here on,"
            f" and version {day['supersedes']} can still be read"
        )
    if share := metrics.get("later_than_ingest_share"):
        notes.append(f"{share:.2%} of the lines are of a time after this ingest began: a clock is wrong somewhere")
    window = metrics.get("window") or {}
    if missing := window.get("missing"):
        more = f" and {len(missing) - NUM_EXAMPLES:,} more" if len(missing) > NUM_EXAMPLES else ""
        notes.append(f"the store has nothing for {', '.join(missing[:NUM_EXAMPLES])}{more}; built without")
    if left_out := window.get("undated_left_out"):
        notes.append(f"{left_out:,} ingests without a date are not in this window")
    return notes
