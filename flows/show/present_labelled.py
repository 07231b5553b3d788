"""What a model is worth on labelled rows as a person reads it in a terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from flows.report.figures import shortened
from flows.show.console import output, plain
from flows.show.present import from_here, stage_result
from training.labelled import labelled_wording

CLASSES_DRAWN = 3  # of a histogram
CLASSES_CROSSED = 6  # of the table of what was said to be what
BARS = " ▁▂▃▄▅▆▇█"
NAME = 14  # characters of a class


def show(result: Mapping[str, Any]) -> None:
    """The result's line, its table, how the similarities lie, what was said to be what, and where it is."""
    stage_result(dict(result))
    metrics = result["metrics"]
    output.print(similarity_table(metrics["systems"]))
    output.print(Text("\n".join(labelled_wording.notes(metrics, result["counts"])), style="dim"), soft_wrap=True)
    if own := {name: one for name, one in metrics["histograms"].items() if name in labelled_wording.OURS}:
        output.print(_histograms(own, metrics))
    if classifier := metrics["classifier"]:
        if classifier["confusion"] and len(metrics["classes"]) <= CLASSES_CROSSED:
            output.print(_confusion(classifier["confusion"], metrics["classes"]))
        output.print(Text(f"classifier: {labelled_wording.calibration(classifier)}", "dim"))
    if metrics["overlap"]:
        output.print(Text(labelled_wording.overlap(metrics["overlap"]), "dim"), soft_wrap=True)
    for path in filter(None, (result["path"], result.get("report"))):
        output.print(plain(from_here(path)), soft_wrap=True)


def similarity_table(systems: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Table:
    """Every measure of every system with its interval, the best in bold."""
    measures = list(next(iter(systems.values())))
    shown = _table("On held-out rows")
    shown.add_column("")
    for name in measures:
        shown.add_column(labelled_wording.MEASURES[name], justify="right")
    best = {name: max(row[name]["value"] for row in systems.values()) for name in measures}
    for system, row in systems.items():
        cells = []
        for name in measures:
            value = row[name]
            style = "bold green" if value["value"] == best[name] else ""
            interval = f" [{value['low']:.3f}, {value['high']:.3f}]"
            cells.append(Text.assemble((f"{value['value']:.3f}", style), (interval, "dim")))
        shown.add_row(labelled_wording.SYSTEMS[system], *cells)
    return shown


def _histograms(histograms: Mapping[str, Mapping[str, Any]], metrics: Mapping[str, Any]) -> Table:
    """A line of bars for each class, of the least value to the most; heights are shares of the class."""
    shown = _table("Where the classes lie")
    shown.show_header = False
    for _ in range(4):
        shown.add_column("", no_wrap=True)
    for name, found in histograms.items():
        of = [f"{found['edges'][0]:.3g} to {found['edges'][-1]:.3g}"]
        of += [f"threshold {', '.join(f'{cut:.3g}' for cut in found['cuts'])}"] if found["cuts"] else []
        for number, k in enumerate(labelled_wording.drawn_classes(metrics, CLASSES_DRAWN)):
            told = of[number] if number < len(of) else ""
            first = f"ours, {labelled_wording.VALUES[name]}" if not number else ""
            label = plain(shortened(metrics["classes"][k], NAME))
            shown.add_row(first, label, Text(_bars(found["counts"][k])), Text(told, "dim"))
    return shown


def _bars(counts: Sequence[int]) -> str:
    most = max(counts) or 1
    return "".join(BARS[-(-(len(BARS) - 1) * count // most)] for count in counts)


def _confusion(counts: Sequence[Sequence[int]], classes: Sequence[str]) -> Table:
    names = [plain(shortened(name, NAME)) for name in classes]
    shown = _table("What the classifier said")
    shown.add_column("labelled")
    for name in names:
        shown.add_column(name, justify="right")
    shown.add_column("right", justify="right")
    for k, (name, row) in enumerate(zip(names, counts, strict=True)):
        share = f"{row[k] / sum(row):.1%}" if sum(row) else "—"
        shown.add_row(name, *(Text(f"{n:,}", "bold" if at == k else "") for at, n in enumerate(row)), share)
    return shown


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", min_width=len(title), box=None, header_style="dim", pad_edge=False)
