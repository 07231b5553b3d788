"""Figures of labelled rows as a person reads them, alike in the terminal and on the page."""

from collections.abc import Mapping
from typing import Any

from training.labelled.labelled_systems import CLASSIFIER, COSINE, MAJORITY, W2, WORD_MOVERS

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
    MAJORITY: "majority",
}
VALUES = {W2: "W₂", COSINE: "cosine", WORD_MOVERS: "word mover's distance"}  # what a histogram is of
MEASURES = {"accuracy": "accuracy", "auc": "area under ROC", "spearman": "Spearman"}


def subject(system: str) -> str:
    """One of our systems inside a sentence: ours, cosine -> our cosine."""
    return SYSTEMS[system].replace("ours,", "our")


def answer(metrics: Metrics) -> tuple[str, str]:
    """(better, worse or open; a sentence): our first system against the best of the others at the first measure."""
    systems, ours = metrics["systems"], metrics["ours"]
    measure = next(iter(systems[ours]))
    value, name = systems[ours][measure], MEASURES[measure]
    n, unit = metrics["n"], metrics["unit"]
    interval = f"{value['low']:.3f} to {value['high']:.3f}"
    first = f"Over {n:,} held-out {unit} {subject(ours)} has {name} {value['value']:.3f} ({interval})."
    others = [name for name in systems if name not in OURS]
    if not others:
        return "open", first
    best = max(others, key=lambda other: systems[other][measure]["value"])
    ahead = metrics["difference"][best][measure]
    verdict = "better" if ahead["low"] > 0 else "worse" if ahead["high"] < 0 else "open"
    told = {"better": "beyond chance", "worse": "beyond chance", "open": "chance alone may give as much"}[verdict]
    return verdict, (
        f"{first} The best that saw words alone, {SYSTEMS[best]}, has {systems[best][measure]['value']:.3f}:"
        f" {ahead['value']:+.3f} ({ahead['low']:+.3f} to {ahead['high']:+.3f}), {told}."
    )


def notes(metrics: Metrics, counts: Mapping[str, int]) -> list[str]:
    """What was measured on what."""
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
    return lines


def calibration(found: Mapping[str, Any]) -> str:
    """How sure a classifier is and how often right."""
    error = found["calibration_error"]
    return f"{found['said']:.3f} sure on average, {found['right']:.3f} right; calibration error {error:.3f}"


def overlap(found: Mapping[str, Any]) -> str:
    """How much the hops of a self-attentive tower look at the same words."""
    of = f"{found['hops']} hops over {found['texts']:,} held-out texts"
    return f"overlap of attention {found['mean']:.3f}, the mean of A Aᵀ off its diagonal, {of}"


def drawn_classes(metrics: Metrics, most: int) -> list[int]:
    """Which classes a picture shows, at most so many: the most frequent, of those the most similar pairs' first."""
    (first, *_) = metrics["histograms"].values()
    ours = next(iter(metrics["histograms"]))
    frequent = sorted(range(len(metrics["classes"])), key=lambda k: -sum(first["counts"][k]))[:most]
    order = [metrics["classes"].index(name) for name in reversed(metrics["thresholds"][ours]["classes"])]
    return [k for k in order if k in frequent]
