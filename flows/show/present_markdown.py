"""A run's figures as Markdown, for pages that show it: the run's page in Prefect. No text of the log, no query."""

from collections.abc import Mapping, Sequence
from typing import Any

from flows.show import present
from schemas.errors import StageError
from training.wording import measure_name

_NAMES = {"model": "ours", "bm25": "BM25", "random": "random"}


def ranking(evaluation: Mapping[str, Any]) -> str:
    """The NDCG table with intervals, and how it was measured."""
    metrics = evaluation["metrics"]
    systems = metrics["systems"]
    measures = list(systems["model"])
    rows = [
        [measure_name(measure), *(_interval(values[measure]) for values in systems.values())] for measure in measures
    ]
    lines = present.protocol(metrics).splitlines()
    if evaluation["labels"].get("simulated"):
        lines.append("**All of this comes from a simulated log.**")
    header = ["", *(_NAMES.get(name, name) for name in systems)]
    return "\n\n".join([table(header, rows, numbers=range(1, len(header))), *lines])


def promotion(decision: Mapping[str, Any] | None, *, reused: bool) -> str:
    """Whether the release went live and why, with the slices that were looked at."""
    if not decision:
        return "This release was live already." if reused else "This release went live; nothing was asked of it."
    heading = "**Promoted.**" if decision["promote"] else "**Kept as a candidate.**"
    parts = [f"{heading} {decision['reason']}"]
    if rows := decision["figures"].get("slices"):
        parts.append(table(["slice", "queries", "live", "candidate", "change", "limit", ""],
                           [_slice_cells(row) for row in rows], numbers=range(1, 6)))  # fmt: skip
    if decision["figures"].get("click_derived"):
        parts.append("The judgments are derived from clicks; no judge gave them.")
    return "\n\n".join(parts)


def _slice_cells(row: Mapping[str, Any]) -> list[str]:
    """One slice of a promotion: its name, size, the two means, the change, its limit, and what it decided."""
    limit = f"-{row['limit']:.3f}" if row["decides"] else "—"
    verdict = "too much worse" if row["worse"] else "" if row["decides"] else "too few queries to decide"
    name = f"{row['slice']}: {row['part']}"
    means = [f"{row[model]:.3f}" for model in ("live", "candidate")]
    return [name, f"{row['n']:,}", *means, f"{row['difference']:+.3f}", limit, verdict]


def drift(rows: Sequence[Mapping[str, Any]]) -> str:
    """The alarms, and every figure beside its usual value."""
    found = [f"- ⚠ {row['alarm']}{' **It stopped the run.**' if row['stops'] else ''}" for row in rows if row["alarm"]]
    cells = [[row["words"], row["value"], row["usual"], row["basis"]] for row in rows]
    shown = table(["figure", "this run", "usual", "told from"], cells, numbers=(1, 2))
    return "\n\n".join(["\n".join(found) or usual(rows), shown])


def usual(rows: Sequence[Mapping[str, Any]]) -> str:
    """What is said where nothing alarms."""
    compared = sum(row["usual"] != "—" for row in rows)
    return f"Nothing unusual, of {compared} that could be compared." if compared else "Too few earlier runs to say."


def failure(error: StageError) -> str:
    """What was asked, what was found, what follows and what to do."""
    parts = {"Asked": error.asked, "Found": error.found, "What follows": error.follows, "What to do": error.do}
    return "\n\n".join(f"**{name}.** {text[0].upper()}{text[1:]}" for name, text in parts.items() if text)


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] = ()) -> str:
    """A Markdown table; the columns of `numbers` are aligned to the right."""
    rule = ["--:" if column in numbers else "---" for column in range(len(header))]
    lines = [header, rule, *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _interval(value: Mapping[str, float]) -> str:
    return f"{value['mean']:.3f} [{value['low']:.3f}, {value['high']:.3f}]"
