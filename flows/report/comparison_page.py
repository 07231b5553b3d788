"""A comparison as a page for people: compare.html, one file with nothing to load from elsewhere."""

from collections.abc import Mapping
from typing import Any

from flows.report.report_page import write_report
from flows.report.summary import RunSummary


def write_comparison(path: str, result: Mapping[str, Any]) -> None:
    """Write the page of a comparison; it replaces an older one as a whole. result: the JSON of a compare stage.

    Raises OSError where it cannot be written.
    """
    write_report(path, comparison_page(result))


def comparison_page(result: Mapping[str, Any]) -> RunSummary:
    """A report of a comparison alone. result: the JSON of a compare stage."""
    comparison = result["metrics"]
    where = {name: result[name] for name in ("digest", "path") if result[name]}  # one with failed rows is not kept
    num_rows, n = len(comparison["rows"]), comparison["n"]
    return RunSummary(
        kind="comparison",
        title=f"{num_rows} {'row' if num_rows == 1 else 'rows'} on {n:,} judged {'query' if n == 1 else 'queries'}",
        simulated=bool(result["labels"].get("simulated")),
        click_derived=comparison["judgments"] == "click-derived",
        comparison=comparison,
        settings={**where, **result["counts"]},
    )
