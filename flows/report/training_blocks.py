"""The model of a train stage -> blocks about its training. A result here is the JSON of a train stage."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from clicktower.flows.report.blocks import Beside, Block, Picture, Table, Text, duration
from clicktower.flows.report.figures import Line, line_chart
from clicktower.schemas import storage
from clicktower.schemas.manifest import from_bytes
from clicktower.schemas.stage import open_result
from clicktower.training.model.recipe import Recipe

HELD_OUT = {"NDCG@10": "dev_ndcg@10", "Accuracy": "dev_accuracy", "Area under ROC": "dev_area_under_roc",
            "Nats per word": "dev_word_repeat", "Nats per word, paraphrase": "dev_word_reformulate"}  # fmt: skip
NUM_POINTS = 240  # points of a picture's line: about its width in pixels
WINDOWS = 40  # a step is smoothed with its neighbours: a run has this many windows
BAND = (10, 90)  # percent of the steps of a window that are inside the band
Epochs = Sequence[Mapping[str, Any]]  # curves.json: {"epoch", "train_loss", "dev_loss", "dev_ndcg@10", ...} of each
Steps = Sequence[Mapping[str, Any]]  # steps.jsonl: {"update", "pairs", "seconds", "loss", "gradient_norm_query", ...}


def training_blocks(result: Mapping[str, Any]) -> list[Block]:
    """The curves of a training, its data and its settings, from the files of its model folder."""
    recipe = Recipe(**open_result(result["path"]).manifest.request.config["recipe"])
    lines = storage.read_bytes(storage.join(result["data"], "steps.jsonl")).splitlines()
    steps = [json.loads(line) for line in lines]
    facts = training_facts(recipe, result, read_json(result, "model.json"), steps)
    drawn = pictures(recipe, read_json(result, "curves.json"), steps, result)
    text = (
        f"Lines of steps are smoothed over a fortieth of the {len(steps):,} updates; four of five steps lie within the"
        " shade."
    )
    return [
        Beside(only="page", blocks=drawn),
        Text(text=text, tone="quiet", only="page"),
        Table(caption="What was trained, and how", rows=facts),
    ]


def read_json(result: Mapping[str, Any], name: str) -> Any:
    """A file of a stage's output."""
    return from_bytes(storage.read_bytes(storage.join(result["data"], name)))


def pictures(recipe: Recipe, epochs: Epochs, steps: Steps, result: Mapping[str, Any]) -> list[Picture]:
    """Each figure; one without data is left out when the page is rendered."""
    points = smoothed(steps, result["counts"]["updates"] // recipe.epochs)
    watched = "judged queries" if result["metrics"]["watched"] == "judgments" else "held-out clicks"
    clip, after = recipe.optimiser.clip_norm, "after each epoch"
    level = ("th_G", clip) if clip else None
    shares = [point["clipped_share"] for point in epochs if point.get("clipped_share") is not None]
    clipped = f"held down to th_G in {sum(shares) / len(shares):.0%} of the steps; " if clip and shares else ""
    norms = sorted((name for name in steps[0] if name.startswith("gradient_norm_")), reverse=True) if steps else []
    # The mean of an epoch's steps is drawn at its middle: at its end it would look late beside the steps.
    means = [(epoch - 0.5, value) for epoch, value in _epoch_curve(epochs, "train_loss")]
    by_step, held_out = _step_curve(points, "loss", "train"), _epoch_curve(epochs, "dev_loss")
    trained = _epoch_curve(epochs, "train_loss_after")
    losses = [
        Line(name="train", points=by_step.points or means, band=by_step.band, dots=means),
        Line(name="held out", points=held_out, dots=held_out),
        *([Line(name="train, after it", points=trained, dots=trained)] if any(value for _, value in trained) else []),
    ]

    def chart(title: str, remark: str, lines: Sequence[Line], **options: Any) -> Picture:
        return Picture(title=title, remark=remark, picture=partial(line_chart, lines, title, **options))

    def curves(names: Mapping[str, str]) -> list[Line]:
        return [Line(name=name, points=_epoch_curve(epochs, key)) for name, key in names.items()]

    return [
        chart(f"Loss per {recipe.objective.unit}", "dots: train, the mean of an epoch; held out, after it", losses,
              log=_is_steep(epochs, points)),
        chart(f"NDCG on {watched}", after, curves({f"@{k}": f"dev_ndcg@{k}" for k in (10, 3, 1)}), most=1.0),
        chart("Accuracy and area under ROC", f"on held-out labels, {after}",
              curves({"area": "dev_area_under_roc", "accuracy": "dev_accuracy"}), most=1.0),
        chart("Cross-entropy per word", f"in nats, of reconstructed held-out texts, {after}",
              curves({"reformulate": "dev_word_reformulate", "repeat": "dev_word_repeat"})),
        chart("KL divergence", f"from N(0, I), in nats, of held-out texts, {after}", curves({"KL": "dev_kl"})),
        chart("Norm of the gradient", f"{clipped}before re-normalisation",
              [_step_curve(points, name, name.removeprefix("gradient_norm_")) for name in norms],
              log=True, level=level, show="{:.3g}".format),
    ]  # fmt: skip


def _is_steep(epochs: Epochs, points: Sequence[Mapping[str, float]]) -> bool:
    """Whether the loss falls so far that its end looks like zero on a linear scale."""
    losses = [point["train_loss"] for point in epochs]
    return bool(losses) and 0 < 10 * min(losses) < max(losses + [point["loss"] for point in points])


def _epoch_curve(epochs: Epochs, key: str) -> list[tuple[float, float | None]]:
    return [(float(point["epoch"]), point.get(key)) for point in epochs]


def _step_curve(points: Sequence[Mapping[str, float]], key: str, name: str) -> Line:
    return Line(
        name=name,
        points=[(point["epoch"], point[key]) for point in points],
        band=[(point["epoch"], point[f"{key}_low"], point[f"{key}_high"]) for point in points if f"{key}_low" in point],
    )


def smoothed(steps: Steps, steps_per_epoch: int) -> list[dict[str, float]]:
    """At most 240 points along the steps: means of the steps around each, and the range of most of them.

    `epoch` is a fraction: 1.5 is the middle of the second epoch.
    """
    if not steps:
        return []
    names = [name for name in steps[0] if name == "loss" or name.startswith("gradient_norm_")]
    columns = {name: np.array([step[name] for step in steps]) for name in names}
    reach = len(steps) // WINDOWS // 2
    points = []
    for at in np.unique(np.linspace(0, len(steps) - 1, NUM_POINTS).round().astype(int)):
        point = {"epoch": steps[at]["update"] / steps_per_epoch}
        for name in names:
            around = columns[name][max(0, at - reach) : at + reach + 1]
            point[name] = float(around.mean())
            if reach:
                low, high = np.percentile(around, BAND)
                point |= {f"{name}_low": float(low), f"{name}_high": float(high)}
        points.append(point)
    return points


def training_facts(
    recipe: Recipe, result: Mapping[str, Any], model: Mapping[str, Any], steps: Steps
) -> list[tuple[str, str]]:
    """(name, value): the results of a training, and its settings. model: model.json of its folder."""
    metrics, counts, unit = result["metrics"], result["counts"], recipe.objective.unit
    towers = "one tower for both sides" if len(recipe.objective.towers) == 1 else "a tower each for queries and titles"
    held_out = f", {metrics['dev_loss']:.3f} on held-out ones" if metrics.get("dev_loss") is not None else ""
    measured = {name: metrics[key] for name, key in HELD_OUT.items() if metrics.get(key) is not None}
    speed = f"{metrics['pairs_per_second']:,.0f} {unit}s per second in the last epoch"
    updates = f"each of {recipe.minibatch:,} {unit}s in micro-batches of {recipe.micro_batch:,}"
    computed = [metrics.get(name) for name in ("arithmetic", "instructions", "device")]
    return [
        *((name, f"{value:.3f} on {metrics['watched']}") for name, value in measured.items()),
        ("Loss", f"{metrics['train_loss']:.3f} per {unit}{held_out}, of epoch {metrics['epoch']}"),
        ("Time", f"{duration(result['duration_seconds'])} for {recipe.epochs} epochs, {speed}"),
        ("Recipe", f"{recipe.name}: {recipe.tower.kind}, {recipe.tower.cells} cells, {towers}"),
        ("Parameters", f"{model['parameters']:,}"),
        ("Data", f"{counts['pairs']:,} {unit}s, {recipe.epochs} times"),
        ("Updates", f"{counts['updates']:,}, {updates}"),
        ("Computed by", ", ".join(filter(None, [*computed, recipe.dtype]))),
        ("Workers", _workers(metrics, recipe, steps)),
        ("Interruptions", _interruptions(metrics)),
    ]


def _workers(metrics: Mapping[str, Any], recipe: Recipe, steps: Steps) -> str:
    workers, threads = metrics["workers"], metrics["threads"]
    each = f"{workers} with {threads} thread{'s' * (threads > 1)}{' each' * (workers > 1)}, {recipe.reduction} sum"
    sent = sum(step["sent_bytes"] for step in steps) / max(1, len(steps))
    return f"{each}; each sends {sent / 1e6:,.2f} MB an update" if sent else each


def _interruptions(metrics: Mapping[str, Any]) -> str:
    resumed = [
        f"{start['update']:,} ({start['workers']} worker{'s' * (start['workers'] > 1)})"
        for start in metrics.get("resumed") or []
    ]
    text = f"resumed after update {', '.join(resumed)}" if resumed else "none"
    refused = [f"a checkpoint was refused: {reason}" for reason in metrics.get("refused_checkpoints") or []]
    return "; ".join([text, *refused])
