"""What a model is worth on labelled rows as a person reads it in a terminal."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from flows.console import output, plain
from flows.present import stage_result

_NAMES = {
    "classifier": "ours, classifier",
    "w2": "ours, W₂",
    "model": "ours, cosine",
    "naive-bayes": "naive Bayes",
    "tf-idf": "TF-IDF cosine",
    "bm25": "BM25, symmetric",
    "word-movers": "word mover's",
    "constant": "majority",
}
_MEASURES = {"accuracy": "accuracy", "auc": "area under ROC", "spearman": "Spearman"}


def show(result: Mapping[str, Any]) -> None:
    """The result's line, its table, and where it is."""
    stage_result(dict(result))
    metrics = result["metrics"]
    output.print(similarity_table(metrics["systems"]))
    output.print(Text(_notes(metrics, result["counts"]), style="dim"), soft_wrap=True)
    output.print(plain(result["path"]), soft_wrap=True)


def _notes(metrics: Mapping[str, Any], counts: Mapping[str, int]) -> str:
    unit = metrics["unit"]
    lines = [f"{metrics['n']:,} held-out {unit}, {metrics['confidence']:.0%} intervals"]
    if metrics["thresholds"] and unit == "pairs":
        lines.append(
            f"{counts['sampled_train_rows']:,} of {counts['train_rows']:,} training pairs chose the thresholds"
            " of similarities"
        )
    if unit == "pairs":
        lines.append("rareness of words from the training part")
    if metrics["no_classifier"]:
        lines.append(f"no classifier: {metrics['no_classifier']}")
    return "\n".join(lines)


def similarity_table(systems: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Table:
    """Every measure of every system with its interval, the best in bold."""
    measures = list(next(iter(systems.values())))
    shown = Table(title="On held-out rows", title_justify="left", box=None, header_style="dim", pad_edge=False)
    shown.add_column("")
    for name in measures:
        shown.add_column(_MEASURES[name], justify="right")
    best = {name: max(row[name]["value"] for row in systems.values()) for name in measures}
    for system, row in systems.items():
        cells = []
        for name in measures:
            value = row[name]
            style = "bold green" if value["value"] == best[name] else ""
            interval = f" [{value['low']:.3f}, {value['high']:.3f}]"
            cells.append(Text.assemble((f"{value['value']:.3f}", style), (interval, "dim")))
        shown.add_row(_NAMES.get(system, system), *cells)
    return shown
