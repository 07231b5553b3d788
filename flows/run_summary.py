"""The results of a run's stages -> what its report tells."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from flows.config.pipeline_config import PipelineConfig
from flows.report import Example, RankedTitle, RunSummary, StageSummary, TrainingSummary
from flows.show import present
from schemas import storage
from schemas.release import read_decision
from schemas.search_log import Ledger
from schemas.stage import open_result
from training.recipes.objectives import Classify, Clicks, Generate, ObjectiveSettings
from training.recipes.recipe import Nesterov, Recipe
from training.recipes.section import flat
from training.wording import duration


def summarise(config: PipelineConfig, results: Mapping[str, Any]) -> RunSummary:
    """The summary of a run, from each stage's JSON result and the files that it points to."""
    build, train, evaluation, release = (results[name] for name in ("build", "train", "evaluate", "publish"))
    manifest = open_result(train["path"]).manifest
    return RunSummary(
        title=config.title,
        simulated=bool(evaluation["labels"].get("simulated")),
        click_derived=evaluation["labels"].get("judgments") == "click-derived",
        description=_description(results),
        stages=[_stage(result) for result in results.values() if isinstance(result, dict)],
        ledger=Ledger.from_json(build["ledger"]),
        privacy=build["metrics"]["left_at_k"],
        k=open_result(build["path"]).manifest.request.config["k"],
        training=training_summary(train),
        table=evaluation["metrics"],
        comparison=results["compare"]["metrics"] if "compare" in results else None,
        examples=[_example(value) for value in read_json(evaluation, "examples.json")],
        promotion=promotion_of(release),
        drift=results.get("drift", ()),
        release=config.publish.to,
        commands=present.next_commands(config.publish.to, evaluation),
        settings=flat(manifest.request.config["recipe"], Recipe) | {"release": release["digest"]},
        versions=manifest.software,
    )


def promotion_of(release: Mapping[str, Any]) -> dict[str, Any] | None:
    """What was decided about a run's release, now or when it went live; None where nothing was asked."""
    metrics = release["metrics"]
    decision = metrics.get("decision")
    if decision is None and release["reused"] and (found := read_decision(metrics["release"], release["digest"])):
        decision = asdict(found)
    return decision and {"live": metrics.get("live", True), **decision}


def _description(results: Mapping[str, dict]) -> str:
    log, build, metrics = results["ingest"]["counts"], results["build"]["counts"], results["ingest"]["metrics"]
    first, last = metrics["first_time"], metrics["last_time"]  # None for a log without times (ORCAS)
    when = f" from {first[:10]} to {last[:10]}" if first and last else ""
    return (
        f"{results['build']['ledger']['total']:,} log lines{when}: {log['queries']:,} different queries, "
        f"{build['train_pairs']:,} training pairs."
    )


def _stage(result: dict) -> StageSummary:
    return StageSummary(
        name=result["stage"],
        digest=result["digest"],
        path=result["path"],
        reused=result["reused"],
        duration_seconds=result["duration_seconds"],
        headline=present.headline(result),
    )


def _example(value: Mapping[str, Any]) -> Example:
    ours, bm25 = (
        [RankedTitle(title=t["title"], grade=t["grade"], score=t["score"]) for t in value["rankings"][system]]
        for system in ("model", "bm25")
    )
    return Example(query=value["query"], ours=ours, bm25=bm25, why=value["why"])


HELD_OUT = {"NDCG@10": "dev_ndcg@10", "Accuracy": "dev_accuracy", "Area under ROC": "dev_area_under_roc",
            "Nats per word": "dev_word_repeat", "Nats per word, paraphrase": "dev_word_reformulate"}  # fmt: skip
NUM_POINTS = 240  # of a picture's line: its width in pixels, about
WINDOWS = 40  # a step is smoothed with its neighbours: this many windows make a run
BAND = (10, 90)  # percent of the steps of a window that are inside the band
TOWERS = {"lstm": "LSTM", "rnn": "RNN", "bilstm": "bidirectional LSTM", "dssm": "DSSM", "clsm": "CLSM",
          "bag": "bag of trigrams", "self_attentive": "self-attention over a bidirectional LSTM",
          "max_pooled": "maximum over a bidirectional LSTM", "variational": "normal distribution"}  # fmt: skip

SHOWN = 8  # classes by name
ARITHMETIC = {"compiled": "the compiled path", "torch": "the reference path", "triton": "Triton kernels"}


def training_page(result: Mapping[str, Any]) -> RunSummary:
    """A report about training alone. result: the JSON of a train stage."""
    manifest = open_result(result["path"]).manifest
    settings = manifest.request.config["recipe"]
    recipe = Recipe(**settings)
    return RunSummary(
        title=f"Training of {recipe.name}",
        simulated=bool(result["labels"].get("simulated")),
        description=f"{result['counts']['pairs']:,} {recipe.objective.learns}, "
        f"{result['counts']['updates']:,} updates, finished {manifest.created[:16].replace('T', ' ')} UTC.",
        training=training_summary(result),
        settings=flat(settings, Recipe) | {"model": result["data"], "digest": result["digest"]},
        versions=manifest.software,
    )


def training_summary(result: Mapping[str, Any]) -> TrainingSummary:
    """What the model folder knows of its training. result: the JSON of a train stage."""
    config = open_result(result["path"]).manifest.request.config
    recipe, metrics, counts = Recipe(**config["recipe"]), result["metrics"], result["counts"]
    steps = _read_lines(result, "steps.jsonl")
    return TrainingSummary(
        figures=_figures(recipe, metrics, result["duration_seconds"]),
        facts=_facts(recipe, metrics, counts, read_json(result, "model.json"), steps),
        epochs=read_json(result, "curves.json"),
        steps=smoothed(steps, counts["updates"] // recipe.epochs),
        num_steps=len(steps),
        clip_norm=recipe.optimiser.clip_norm,
        watched=metrics["watched"],
        unit=recipe.objective.unit,
    )


def smoothed(steps: Sequence[Mapping[str, Any]], steps_per_epoch: int) -> list[dict[str, float]]:
    """At most 240 points along the steps: means of the steps around each, and what most of those lie between.

    `epoch` is a fraction: 1.5 is the middle of the second epoch. Speed is of the time all steps around took together.
    """
    if not steps:
        return []
    names = [name for name in steps[0] if name == "loss" or name.startswith("gradient_norm_")]
    columns = {name: np.array([step[name] for step in steps]) for name in (*names, "pairs", "seconds", "update")}
    reach = len(steps) // WINDOWS // 2
    points = []
    for at in np.unique(np.linspace(0, len(steps) - 1, NUM_POINTS).round().astype(int)):
        window = slice(max(0, at - reach), at + reach + 1)
        point = {"epoch": float(columns["update"][at]) / steps_per_epoch}
        for name in names:
            around = columns[name][window]
            point[name] = float(around.mean())
            if reach:
                low, high = np.percentile(around, BAND)
                point |= {f"{name}_low": float(low), f"{name}_high": float(high)}
        seconds = columns["seconds"][window].sum()
        point["pairs_per_second"] = float(columns["pairs"][window].sum() / seconds) if seconds else 0.0
        points.append(point)
    return points


def _figures(recipe: Recipe, metrics: Mapping[str, Any], seconds: float | None) -> list[tuple[str, str, str]]:
    after, unit = f"after epoch {metrics['epoch']}", recipe.objective.unit
    figures = []
    for name, key in HELD_OUT.items():
        if metrics.get(key) is not None:
            figures.append((name, f"{metrics[key]:.3f}", f"on {metrics['watched']}"))
    if metrics.get("dev_loss") is not None:
        figures.append(("Held-out loss", f"{metrics['dev_loss']:.3f}", f"per {unit}, {after}"))
    figures.append(("Training loss", f"{metrics['train_loss']:.3f}", f"per {unit}, in epoch {metrics['epoch']}"))
    figures.append(("Speed", f"{metrics['pairs_per_second']:,.0f}", f"{unit}s per second, in the last epoch"))
    figures.append(("Time", duration(seconds), f"for {recipe.epochs} epochs, all counted"))
    return figures


def _facts(
    recipe: Recipe,
    metrics: Mapping[str, Any],
    counts: Mapping[str, int],
    model: Mapping[str, Any],
    steps: Sequence[Mapping[str, Any]],
) -> list[tuple[str, str]]:
    tower, optimiser, unit = recipe.tower, recipe.optimiser, recipe.objective.unit
    one = len(recipe.objective.towers) == 1
    shared = "one tower for both sides" if one else "a tower each for queries and titles"
    workers, threads = metrics["workers"], metrics["threads"]
    return [
        ("Recipe", f"{recipe.name}: {TOWERS.get(tower.kind, tower.kind)}, {tower.cells} cells, {shared}"),
        ("Parameters", f"{model['parameters']:,}"),
        ("Data", f"{counts['pairs']:,} {unit}s, {recipe.epochs} times"),
        ("Updates", f"{counts['updates']:,}, each of {recipe.minibatch:,} {unit}s in micro-batches of "
                    f"{recipe.micro_batch:,}"),
        *_learnt(recipe.objective, model.get("outputs") or {}),
        ("Step", f"ε {optimiser.step:g}, {_rule(recipe)}, "
                 + (f"th_G {optimiser.clip_norm:g}" if optimiser.clip_norm else "no th_G")),
        ("Computed by", _computed_by(metrics, recipe)),
        ("Workers", f"{workers} with {threads} thread{'s' if threads > 1 else ''}{' each' if workers > 1 else ''}, "
                    f"{recipe.reduction} sum"
                    + _sent(steps)),
        ("Interruptions", _interruptions(metrics)),
        ("Watched on", metrics["watched"]),
    ]  # fmt: skip


def _learnt(objective: ObjectiveSettings, outputs: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What each example is set against: negatives, classes, or the words of a text."""
    match objective:
        case Classify(features=features, head=head, dropout=dropout):
            classes = outputs["classes"]
            shown = ", ".join(classes[:SHOWN]) + (f" and {len(classes) - SHOWN:,} more" if len(classes) > SHOWN else "")
            above = f"{features.kind} features, {head.kind} head" + (f", dropout {dropout:g}" if dropout else "")
            return [("Classes", f"of {outputs['unit']}: {shown}"), ("Above the tower", above)]
        case Generate():
            kappa = f"κ = sigmoid({objective.kappa_rate:g} (update - {objective.kappa_middle:,}))"
            words = f"a decoder of {objective.decoder_cells:,} cells and {len(outputs['vocabulary']):,} words"
            again = "themselves and in other words" if objective.reformulate else "themselves"
            return [("Said again", f"texts as {again}"), ("Above the tower", f"{words}, {kappa}")]
        case Clicks(num_negatives=n, negatives=negatives):
            return [("Negatives", f"{n} for each pair, {negatives.kind}")]
    return []


def _rule(recipe: Recipe) -> str:
    if not isinstance(recipe.optimiser, Nesterov):
        return recipe.optimiser.kind.capitalize()
    gamma = f", γ {recipe.objective.gamma:g}" if isinstance(recipe.objective, Clicks) else ""
    return f"μ {recipe.optimiser.momentum_middle:g} ({recipe.optimiser.momentum_edge:g} at both ends){gamma}"


def _computed_by(metrics: Mapping[str, Any], recipe: Recipe) -> str:
    arithmetic = metrics.get("arithmetic", "")
    named = next((name for start, name in ARITHMETIC.items() if arithmetic.startswith(start)), arithmetic)
    parts = [named, metrics.get("instructions"), metrics.get("device"), recipe.dtype]
    return ", ".join(part for part in parts if part)


def _sent(steps: Sequence[Mapping[str, Any]]) -> str:
    mean = sum(step["sent_bytes"] for step in steps) / max(1, len(steps))
    return f"; each sends {mean / 1e6:,.2f} MB an update" if mean else ""


def _interruptions(metrics: Mapping[str, Any]) -> str:
    refused = metrics.get("refused_checkpoints") or []
    resumed = [f"{start['update']:,} ({_counted(start['workers'])})" for start in metrics.get("resumed") or []]
    told = ["taken up again after update " + ", ".join(resumed) if resumed else "none"]
    return "; ".join(told + [f"a checkpoint was refused: {reason}" for reason in refused])


def _counted(workers: int) -> str:
    return f"{workers} worker{'s' if workers > 1 else ''}"


def read_json(result: Mapping[str, Any], name: str) -> Any:
    """A file of the model folder; None where there is none."""
    where = storage.join(result["data"], name)
    return json.loads(storage.read_bytes(where)) if storage.exists(where) else None


def _read_lines(result: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """The lines of a file of the model folder; none where there is none (models of before they were kept)."""
    where = storage.join(result["data"], name)
    lines: Iterable[bytes] = storage.read_bytes(where).splitlines() if storage.exists(where) else ()
    return [json.loads(line) for line in lines]
