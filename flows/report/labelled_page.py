"""A model's results on labelled rows -> blocks. result: the JSON of an evaluate-labelled stage."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from clicktower.flows.report.blocks import (
    SIMULATED,
    Beside,
    Block,
    Cell,
    Heading,
    Items,
    Page,
    Picture,
    Section,
    Table,
    Text,
    capital,
    sentence,
    write_page,
)
from clicktower.flows.report.explain_page import attention_blocks
from clicktower.flows.report.figures import SERIES, interval_pictures, shorten
from clicktower.flows.report.heat_maps import histogram
from clicktower.schemas import storage
from clicktower.schemas.manifest import from_bytes
from clicktower.training.evaluation.evaluate_labelled_stage import EXAMPLES
from clicktower.training.evaluation.labelled_systems import CLASSIFIER, COSINE, MAJORITY, VECTOR_MOVERS, W2, WORD_MOVERS

Metrics = Mapping[str, Any]  # of evaluate_labelled_stage
OURS = (CLASSIFIER, W2, COSINE)
SYSTEMS = {
    CLASSIFIER: "ours, classifier",
    W2: "ours, W₂",
    COSINE: "ours, cosine",
    "naive-bayes": "naive Bayes",
    "tf-idf": "TF-IDF cosine",
    "bm25": "BM25, symmetric",
    WORD_MOVERS: "word mover's",
    VECTOR_MOVERS: "word mover's, given vectors",
    MAJORITY: "majority",
}
VALUES = {
    W2: "W₂",
    COSINE: "cosine",
    WORD_MOVERS: "word mover's distance",
    VECTOR_MOVERS: "the same, given vectors",
}  # what a histogram is of
MEASURES = {"accuracy": "accuracy", "auc": "area under ROC", "spearman": "Spearman"}
KINDS = {
    "surest_right": ("Surest, and right", "the highest probability of the label"),
    "surest_wrong": ("Surest, and wrong", "the highest probability of a class that is not the label"),
    "least_sure": ("Least sure", "the lowest probability of what was said, right or wrong"),
}
SHADE = 0.55  # background of a cell that holds all rows of its class
CLASSES_CROSSED = 6  # classes of the confusion table in a terminal
NAME = 56  # characters of a class

Examples = Mapping[str, Sequence[Mapping[str, Any]]]  # labelled_examples


def write_labelled_page(path: str, result: Mapping[str, Any]) -> None:
    """Write the page, replacing an older one completely. Raises OSError if it cannot be written."""
    examples: Examples = {}
    if result["metrics"]["classifier"]:
        examples = from_bytes(storage.read_bytes(storage.join(result["data"], EXAMPLES)))
    write_page(path, labelled_page(result, examples))


def labelled_page(result: Mapping[str, Any], examples: Examples) -> Page:
    """The page, with the rows where the model was surest, right or wrong."""
    metrics = result["metrics"]
    rules = [
        f"{SYSTEMS.get(name, name.replace('_', ' '))}: {rule}."
        for name, rule in metrics["rules"].items()
        if name not in SYSTEMS or name in metrics["systems"]
    ]
    output = Text(text=f"Output {result['digest']} in {result['path']}", tone="quiet")
    return Page(
        kind=f"labelled {metrics['unit']}",
        title=f"{metrics['n']:,} held-out {metrics['unit']}",
        banners=[SIMULATED] * bool(result["labels"].get("simulated")),
        blocks=[
            *labelled_blocks(result),
            *(_examples(metrics, *KINDS[kind], rows) for kind, rows in examples.items() if rows),
            Section(title="How it was measured", blocks=[Items(items=rules), output]),
        ],
    )


def labelled_blocks(result: Mapping[str, Any]) -> list[Block]:
    """Everything but texts, section by section."""
    metrics = result["metrics"]
    verdict, answer = _answer(metrics)
    pictures = [
        Text(text=answer, tone=verdict), Beside(blocks=_pictures(metrics), only="page"), _table(metrics),
        Items(items=_notes(metrics, result["counts"])),
    ]  # fmt: skip
    blocks: list[Block] = [Section(title="Beside what words alone can do", blocks=pictures)]
    if metrics["histograms"]:
        blocks.append(Section(title="Where the classes lie", blocks=_histograms(metrics), only="page"))
    if metrics["classifier"]:
        blocks.append(Section(title="What the classifier said", blocks=_classifier(metrics)))
    if overlap := metrics["overlap"]:
        summary = (
            f"Overlap of attention {overlap['mean']:.3f}, the mean of A Aᵀ off its diagonal, {overlap['hops']} hops"
            f" over {overlap['texts']:,} held-out texts. 0: no two hops share a word; 1: all look at one and the same."
        )
        blocks.append(Section(title="Do the hops look at different words?", blocks=[Text(text=summary)]))
    return blocks


def _answer(metrics: Metrics) -> tuple[str, str]:
    """(better, worse or open; a sentence): our first system against the best of the others on the first measure."""
    systems, ours = metrics["systems"], metrics["ours"]
    measure = next(iter(systems[ours]))
    value, name = systems[ours][measure], MEASURES[measure]
    n, unit = metrics["n"], metrics["unit"]
    interval = f"{value['low']:.3f} to {value['high']:.3f}"
    first = f"Over {n:,} held-out {unit} {_ours(metrics)} has {name} {value['value']:.3f} ({interval})."
    baselines = [name for name in systems if name not in OURS]
    if not baselines:
        return "open", first
    best = max(baselines, key=lambda baseline: systems[baseline][measure]["value"])
    ahead = metrics["difference"][best][measure]
    verdict = "better" if ahead["low"] > 0 else "worse" if ahead["high"] < 0 else "open"
    summary = {"better": "beyond chance", "worse": "beyond chance", "open": "chance alone may give as much"}[verdict]
    return verdict, (
        f"{first} The best that saw words alone, {SYSTEMS[best]}, has {systems[best][measure]['value']:.3f}:"
        f" {ahead['value']:+.3f} ({ahead['low']:+.3f} to {ahead['high']:+.3f}), {summary}."
    )


def _ours(metrics: Metrics) -> str:
    """Our system's name within a sentence: our cosine."""
    return SYSTEMS[metrics["ours"]].replace("ours,", "our")


def _notes(metrics: Metrics, counts: Mapping[str, int]) -> list[str]:
    """What was measured, and on what."""
    lines = []
    if metrics["unit"] == "pairs":
        if metrics["thresholds"]:
            rows = f"{counts['sampled_train_rows']:,} of {counts['train_rows']:,} training pairs"
            lines.append(f"{rows} chose the thresholds of similarities.")
        lines.append("Rareness of words from the training part.")
    if metrics["no_classifier"]:
        lines.append(sentence(f"no classifier: {metrics['no_classifier']}"))
    return lines


def _table(metrics: Metrics) -> Table:
    """Every system's measures, and how far ours is ahead of it."""
    systems, ours = metrics["systems"], metrics["ours"]
    ahead = capital(f"{_ours(metrics)} ahead by")
    header, rows = ["System"], []
    for measure in systems[ours]:
        header += [capital(MEASURES[measure]), ahead]
    for system, values in systems.items():
        row: list[Cell | str] = [SYSTEMS[system]]
        for measure, value in values.items():
            best = value["value"] == max(figures[measure]["value"] for figures in systems.values())
            between = metrics["difference"][system][measure]
            row.append(_cell(value, "{:.3f}", best))
            row.append("" if system == ours else _cell(between, "{:+.3f}", False))
        rows.append(row)
    strong = [list(systems).index(ours)]
    caption = f"Every system, with {metrics['confidence']:.0%} intervals"
    return Table(caption=caption, header=header, rows=rows, strong=strong)


def _cell(value: Mapping[str, float], form: str, best: bool) -> Cell:
    aside = " to ".join(form.format(value[end]) for end in ("low", "high"))
    return Cell(text=form.format(value["value"]), aside=aside, strong=best)


def _pictures(metrics: Metrics) -> list[Picture]:
    """Every system's measures; a line shows what the same score for all rows gives."""
    systems = metrics["systems"]
    titles = {measure: capital(MEASURES[measure]) for measure in systems[metrics["ours"]]}
    remark = f"with {metrics['confidence']:.0%} intervals{'; dotted: majority' if MAJORITY in systems else ''}"
    return interval_pictures(systems, SYSTEMS, titles, ours=OURS, remark=remark, level_of=MAJORITY)


def _histograms(metrics: Metrics) -> list[Block]:
    """A picture for every similarity."""
    classes = [(k, metrics["classes"][k]) for k in _drawn_classes(metrics)]
    (first, *_) = metrics["histograms"].values()
    legend = [
        (tone, f"class {name}, {sum(first['counts'][k]):,} {metrics['unit']}")
        for (k, name), tone in zip(classes, SERIES, strict=False)
    ]
    left_out = len(metrics["classes"]) - len(classes)
    summary = (
        "Shares of each class in equal bins; the first and the last bin hold also the hundredth of all rows that lies"
        " beyond each end. What lies apart can be told apart; the dotted lines are the thresholds that the training"
        " rows chose."
    )
    if left_out:
        summary += f" The most frequent classes; {left_out} more are not drawn."
    pictures = [
        Picture(
            title=capital(SYSTEMS[name]),
            remark=", ".join(f"threshold {cut:.3g}" for cut in counts["cuts"]),
            picture=partial(histogram, counts, classes, VALUES[name]),
            legend=legend,
        )
        for name, counts in metrics["histograms"].items()
    ]
    return [Text(text=summary), Beside(blocks=pictures)]


def _drawn_classes(metrics: Metrics) -> list[int]:
    """The classes that a picture shows: the most frequent, the most similar pairs' first."""
    (first, *_) = metrics["histograms"].values()
    ours = next(iter(metrics["histograms"]))
    frequent = sorted(range(len(metrics["classes"])), key=lambda k: -sum(first["counts"][k]))[: len(SERIES)]
    order = [metrics["classes"].index(name) for name in reversed(metrics["thresholds"][ours]["classes"])]
    return [k for k in order if k in frequent]


def _classifier(metrics: Metrics) -> list[Block]:
    classifier, classes, unit = metrics["classifier"], metrics["classes"], metrics["unit"]
    blocks: list[Block] = []
    if classifier["confusion"]:
        crossed: list[list[Cell | str]] = []
        for k, counts in enumerate(classifier["confusion"]):
            total = sum(counts) or 1
            shaded = [
                Cell(text=f"{n:,}", shade=SHADE * n / total * (1 if at == k else -1)) for at, n in enumerate(counts)
            ]
            right = f"{counts[k] / total:.1%}" if sum(counts) else "—"
            crossed.append([shorten(classes[k], NAME), *shaded, right])
        blocks.append(
            Table(
                caption=f"Held-out {unit} by their label and by what was said, shaded by the share of the label’s rows",
                header=["Label", *(f"said {shorten(name, NAME)}" for name in classes), "right"],
                rows=crossed,
                only="" if len(classes) <= CLASSES_CROSSED else "page",
            )
        )
    else:
        summary = (
            f"There are {len(classes):,} classes, too many for a table of what was said to be what; scores.arrow has"
        )
        blocks.append(Text(text=f"{summary} every row."))
    bins = [
        [
            f"{interval['low']:.3g} to {interval['high']:.3g}",
            f"{interval['n']:,}",
            f"{interval['said']:.3f}",
            f"{interval['right']:.3f}",
        ]
        for interval in classifier["bins"]
        if interval["n"]
    ]
    summary = f"{classifier['said']:.3f} sure on average, {classifier['right']:.3f} right; calibration error"
    header = ("Probability", unit.capitalize(), "Mean", "Share right")
    return [
        *blocks,
        Heading(text="Do its probabilities hold?"),
        Text(text=f"{summary} {classifier['calibration_error']:.3f}."),
        Table(caption=f"{unit.capitalize()} by the probability of what was said", header=header, rows=bins),
    ]


def _examples(metrics: Metrics, title: str, why: str, rows: Sequence[Mapping[str, Any]]) -> Section:
    blocks: list[Block] = [
        Text(
            text=f"{capital(why)}; at most ten {metrics['unit']}. The texts are those of your own labelled data, with"
            " no privacy gate before them: this page is as private as they are."
        )
    ]
    for row in rows:
        wrong = f" at {row['of_label']:.3f}" if row["said"] != row["label"] else ""
        blocks.append(Heading(text=f"Said {row['said']} at {row['probability']:.3f}, labelled {row['label']}{wrong}"))
        blocks += [Text(text=text) for text in row["texts"]]
        for which, text in zip(("first", "second"), row.get("attention", ()), strict=False):
            blocks += attention_blocks(f"Attention in the {which} text", text["hops"], text["words"])
    return Section(title=title, blocks=blocks)
