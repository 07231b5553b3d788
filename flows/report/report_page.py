"""A RunSummary -> report.html: one file with its style and pictures inside, nothing loaded, nothing run."""

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from flows.report import report_comparison, report_training, report_wording
from flows.report.figures import ChartRow, dot_of, row_chart
from flows.report.summary import RunSummary, StageSummary
from flows.report.templates import style, templates
from schemas import storage
from schemas.ledger import FATES, Ledger
from training.wording import duration, measure_name, visible

KINDS = {"kept": "Kept", "dropped": "Dropped by a rule", "unreadable": "Unreadable"}
MEASURES_DRAWN = ("ndcg@1", "ndcg@3", "ndcg@10", "collection_ndcg@10")


def write_report(path: str, run: RunSummary) -> None:
    """Write the report of a run; it replaces an older one as a whole. Raises OSError where it cannot be written."""
    storage.write_atomic(path, render(run).encode("utf-8"))


def render(run: RunSummary) -> str:
    """The report as HTML. Every text of the run is escaped."""
    pages = templates()
    pages.filters |= {"duration": duration, "measure": measure_name, "system": report_wording.system_name}
    pages.filters["visible"] = visible
    pages.globals["grade_names"] = report_wording.GRADE_NAMES
    return pages.get_template("report.html").render(
        run=run,
        style=style("report.css"),
        result=report_wording.result(run),
        verdict=report_wording.verdict(run),
        percent=report_wording.percent,
        why=report_wording.WHY,
        stages=_stages(run),
        total_seconds=sum(stage.duration_seconds or 0 for stage in run.stages if not stage.reused),
        ledger=_ledger_groups(run.ledger) if run.ledger else [],
        privacy=sorted(run.privacy, key=lambda row: row["k"]),
        pictures=report_training.pictures(run.training) if run.training else [],
        compared=report_comparison.told(run.comparison) if run.comparison else None,
        measures=_measures(run),
        whiskers=_whiskers(run),
        rules=_sentences(run.table.get("rules")) + _sentences(run.table.get("warnings")) if run.table else [],
        settings=report_wording.flatten(run.settings),
    )


TAKES = {
    "build": ("ingest",), "train": ("build",), "compare": ("build",), "evaluate": ("train",),
    "publish": ("train", "evaluate"),
}  # fmt: skip


def _stages(run: RunSummary) -> list[tuple[StageSummary, str, float]]:
    """Each stage with those that it takes from, and its share of the longest time."""
    names, longest = [stage.name for stage in run.stages], max((s.duration_seconds or 0 for s in run.stages), default=0)
    return [
        (
            stage,
            ", ".join(name for name in TAKES.get(stage.name, ()) if name in names),
            (stage.duration_seconds or 0) / (longest or 1),
        )
        for stage in run.stages
    ]


def _ledger_groups(ledger: Ledger) -> list[dict]:
    """The fates by kind, kept first, each kind's largest first."""
    groups = []
    for kind, name in KINDS.items():
        rows = sorted(((n, f) for f, n in ledger.lines.items() if n and FATES[f][0] == kind), reverse=True)
        fates = [{"name": fate, "words": FATES[fate][1], "lines": lines} for lines, fate in rows]
        groups.append({"kind": kind, "name": name, "lines": ledger.of_kind(kind), "fates": fates})
    return groups


def _measures(run: RunSummary) -> list[str]:
    systems = run.table["systems"] if run.table else {}
    return list(dict.fromkeys(measure for measures in systems.values() for measure in measures))


def _whiskers(run: RunSummary) -> list[tuple[str, Markup]]:
    systems = run.table["systems"] if run.table else {}
    pictures = []
    for measure in MEASURES_DRAWN:
        rows = [
            ChartRow(
                name=report_wording.system_name(key),
                dots=[dot_of(values[measure])],
                remark=f"{values[measure]['mean']:.3f}",
                ours=key == "model",
            )
            for key, values in systems.items()
            if measure in values
        ]
        if rows:
            pictures.append((measure, row_chart(rows, measure_name(measure))))
    return pictures


def _sentences(value: object) -> list[str]:
    """Rules as they come: one text, several, or several by name."""
    if not value:
        return []
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [f"{name.replace('_', ' ')}: {text}" for name, text in value.items()]
    return [str(text) for text in value] if isinstance(value, list | tuple) else [str(value)]


# A comparison as a page for people: compare.html, one file with nothing to load from elsewhere.


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
