"""What a model is worth on labelled rows -> a page: one file with its style and pictures inside, nothing loaded."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from flows.report.explain_page import attention_pictures
from flows.report.figures import SERIES, ChartRow, Dot, histogram, reliability_chart, row_chart
from flows.report.templates import style, templates
from schemas import storage
from training.evaluate.evaluate_labelled_stage import EXAMPLES
from training.labelled import labelled_wording
from training.labelled.labelled_systems import MAJORITY
from training.wording import visible

KINDS = {
    "surest_wrong": ("Surest, and wrong", "the highest probability of a class that is not the label"),
    "least_sure": ("Least sure", "the lowest probability of what was said, right or wrong"),
}
SHADE = 0.55  # of the ground of a cell that holds all rows of its class


def write_labelled_page(path: str, result: Mapping[str, Any]) -> None:
    """Write the page; it replaces an older one as a whole. result: the JSON of an evaluate-labelled stage.

    Raises OSError where it cannot be written.
    """
    examples = {}
    if result["metrics"]["classifier"]:
        examples = json.loads(storage.read_bytes(storage.join(result["data"], EXAMPLES)))
    storage.write_atomic(path, render(result, examples).encode("utf-8"))


def render(result: Mapping[str, Any], examples: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """The page as HTML. examples: labelled_examples. Every text is escaped, what cannot be printed a mark."""
    pages = templates()
    pages.filters |= {"printable": visible, "sentence": lambda text: text[:1].upper() + text[1:]}
    metrics = result["metrics"]
    verdict, answer = labelled_wording.answer(metrics)
    classifier = metrics["classifier"]
    return pages.get_template("labelled.html").render(
        style=style("report.css", "explain.css"),
        title=f"{metrics['n']:,} held-out {metrics['unit']}",
        simulated=bool(result["labels"].get("simulated")),
        metrics=metrics,
        verdict=verdict,
        answer=answer,
        subject=labelled_wording.subject(metrics["ours"]),
        systems=labelled_wording.SYSTEMS,
        measures=[(name, labelled_wording.MEASURES[name]) for name in next(iter(metrics["systems"].values()))],
        pictures=_pictures(metrics),
        notes=labelled_wording.notes(metrics, result["counts"]),
        histograms=_histograms(metrics),
        classes=[visible(name) for name in metrics["classes"]],
        confusion=_shaded(classifier["confusion"]) if classifier and classifier["confusion"] else [],
        reliability=reliability_chart(classifier) if classifier else "",
        calibration=labelled_wording.calibration(classifier) if classifier else "",
        overlap=labelled_wording.overlap(metrics["overlap"]) if metrics["overlap"] else "",
        examples=[(*KINDS[kind], [_example(row) for row in rows]) for kind, rows in examples.items() if rows],
        rules=metrics["rules"],
        digest=result["digest"],
        path=result["path"],
    )


def _pictures(metrics: labelled_wording.Metrics) -> list[tuple[str, Markup]]:
    """(measure, means with whiskers) for each measure; what one score for all rows gives is a line."""
    found = []
    for measure in next(iter(metrics["systems"].values())):
        rows = [
            ChartRow(
                name=labelled_wording.SYSTEMS[system],
                dots=[Dot(value=of["value"], low=of["low"], high=of["high"])],
                remark=f"{of['value']:.3f}",
                ours=system in labelled_wording.OURS,
            )
            for system, values in metrics["systems"].items()
            for of in [values[measure]]
        ]
        name = labelled_wording.MEASURES[measure]
        majority = metrics["systems"].get(MAJORITY)
        level = majority[measure]["value"] if majority else None
        found.append((name, row_chart(rows, name, level=level)))
    return found


def _histograms(metrics: labelled_wording.Metrics) -> dict[str, Any] | None:
    """Every similarity's picture, and which classes they show; None where there is none."""
    if not metrics["histograms"]:
        return None
    classes = [(k, visible(metrics["classes"][k])) for k in labelled_wording.drawn_classes(metrics, len(SERIES))]
    (first, *_) = metrics["histograms"].values()
    return {
        "classes": [(name, sum(first["counts"][k])) for k, name in classes],
        "left_out": len(metrics["classes"]) - len(classes),
        "pictures": [
            (labelled_wording.SYSTEMS[name], histogram(found, classes, labelled_wording.VALUES[name]))
            for name, found in metrics["histograms"].items()
        ],
    }


def _shaded(counts: Sequence[Sequence[int]]) -> list[tuple[list[tuple[int, float]], str]]:
    """(each count with the strength of its ground, the share that was right) of each class."""
    rows = []
    for k, row in enumerate(counts):
        total = sum(row) or 1
        rows.append(([(n, SHADE * n / total) for n in row], f"{row[k] / total:.1%}" if sum(row) else "—"))
    return rows


def _example(row: Mapping[str, Any]) -> dict[str, Any]:
    attention = [attention_pictures(np.array(text["hops"]), text["words"]) for text in row.get("attention", ())]
    return {**row, "attention": attention}
