"""clicktower sweep"""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

from rich.text import Text

from clicktower.flows.commands.options import Json
from clicktower.flows.report.blocks import quantity
from clicktower.flows.show import console, present
from clicktower.flows.show.console import output, plain
from clicktower.flows.tracking import require_mlflow
from clicktower.schemas import storage
from clicktower.schemas.manifest import FILE_NAME
from clicktower.schemas.section import take_fields
from clicktower.schemas.stage import StageResult
from clicktower.training.model.label_settings import Classify
from clicktower.training.model.recipe import Compute, Sources
from clicktower.training.sweep.sweep_table import Point, Trial, chosen_row, direction, point_text, train_options

if TYPE_CHECKING:
    from clicktower.flows.config.sweep_config import SweepConfig


def sweep(config: str, *, plan: bool = False, json: Json = False) -> int:
    """Train many variants of a recipe that a TOML file describes, and rank them on held-out
    data.

    The repository's sweep.toml is a commented example, benchmarks/sweep-*.toml are the papers' own. A minimal one:

        shards = "store/build/DIGEST"
        into = "store"
        seeds = [1, 2, 3]                  # a single seed misleads
        [fields]
        optimiser.step = [0.001, 0.002, 0.004]       # any field of the recipe
        tower.cells = [64, 96]

    Start it, or continue it, with

        clicktower sweep sweep.toml

    Each trial is an ordinary training: one that is in the store is reused, a killed
    sweep continues with what is missing, and one that diverges stops no other.
    With RAY_ADDRESS set, as in a Ray job, trials run on the nodes of that cluster:

        ray job submit --address http://127.0.0.1:8265 -- clicktower sweep $PWD/sweep.toml

    In the sweep's folder are the table (sweep.json, sweep.md), a page with curves
    (sweep.html) and the best recipe (best.toml, for train --recipe). Exit code 1 means
    that none was chosen: trials failed, or all diverged.

    Args:
        config: The TOML file. Relative paths in it are relative to its folder.
        plan: Only print what would be trained, and what is there already.
    """
    from clicktower.flows.config.settings import Surroundings
    from clicktower.flows.config.sweep_config import expand_points, measure_of, read_sweep
    from clicktower.flows.report.sweep_page import pages
    from clicktower.schemas.judgments import Judged
    from clicktower.training.sweep import sweep_stage

    settings = read_sweep(config)
    if settings.mlflow:
        require_mlflow()
    points = expand_points(settings)
    measure = measure_of(settings, points)
    around: Literal["ray", "processes"] = "ray" if Surroundings().ray_address else "processes"
    arguments: dict[str, Any] = {
        "store": settings.into,
        "measure": measure,
        "judged": Judged(**asdict(settings.judged)) if settings.judged else None,
        "compute": take_fields(Compute, {**vars(settings)}),
        "sources": take_fields(Sources, {**vars(settings)}),
        "engine": around if settings.engine == "auto" else settings.engine,
    }
    if plan:
        planned = sweep_stage.plan(settings.shards, points, **arguments)
        console.emit(plan_json(settings, measure, planned), json, show_plan)
        return 0
    try:
        with console.progress_bar("sweep") as progress:
            result = sweep_stage.sweep(
                settings.shards,
                points,
                **arguments,
                halving=settings.halving,
                at_once=settings.at_once,
                progress=progress,
                trial_ended=trial_line(measure),
                render=pages,
            )
    except sweep_stage.UnfinishedSweep as error:
        if error.rows and not json:
            rows = [asdict(row) for row in error.rows]
            watched = "judgments" if settings.judged else "held-out clicks"
            _table({"measure": measure, "watched": watched, "rungs": [], "rows": rows, "labels": {}})
            output.print()
        raise
    if settings.mlflow:
        from clicktower.flows.tracking import track

        rows = result.manifest.outcome.metrics["rows"]
        trials = [storage.join(settings.into, "train", trial["digest"]) for row in rows for trial in row["trials"]]
        finished = [trial for trial in trials if storage.exists(storage.join(trial, FILE_NAME))]  # not halved away
        track(settings.mlflow, finished)
    value = result_json(result, settings)
    console.emit(value, json, show)
    return int(value["best"] is None)


def trial_line(measure: str) -> Callable[[Point, Trial, int, int], None]:
    """Return a function that prints an ended trial's line on stderr."""

    def tell(point: Point, trial: Trial, number: int, total: int) -> None:
        where = f"{point_text(point.fields)}, seed {trial.seed}" if len(point.recipes) > 1 else point_text(point.fields)
        came = trial.failed or f"{measure} {(trial.measures or {})[measure]:.4f}"
        if 0 < trial.epochs < trial.of_epochs:
            came += f" after {trial.epochs} of {quantity(trial.of_epochs, 'epoch')}"
        time = "reused" if trial.reused else f"{trial.seconds:.1f} s" if trial.seconds else ""
        console.ended("failed" if trial.failed else "done", f"{number}/{total}", time, f"{where}: {came}")

    return tell


def result_json(result: StageResult, config: "SweepConfig") -> dict[str, Any]:
    """The JSON object of a sweep: the stage's, its page, the best recipe as TOML, and the commands that make, judge and
    publish the best."""
    value = result.to_json()
    best = chosen_row(value["metrics"])
    page, recipe = (storage.join(value["data"], name) for name in ("sweep.html", "best.toml"))
    return value | {
        "page": page,
        "best": recipe if best else None,
        "commands": _commands(best, config, value["metrics"]["measure"]) if best else {},
    }


def plan_json(
    config: "SweepConfig", measure: str, planned: Sequence[tuple[Point, Sequence[tuple[str, bool]]]]
) -> dict[str, Any]:
    """The JSON object of a sweep's plan."""
    trials = [
        {"fields": dict(point.fields), "seed": recipe.seed, "digest": digest, "reused": there}
        for point, trainings in planned
        for recipe, (digest, there) in zip(point.recipes, trainings, strict=True)
    ]
    return {
        "stage": "sweep",
        "plan": True,
        "measure": measure,
        "counts": {
            "points": len(planned),
            "trials": len(trials),
            "trials_reused": sum(bool(trial["reused"]) for trial in trials),
        },
        "trials": trials,
        "path": storage.join(config.into, "sweep"),
    }


def show_plan(result: Mapping[str, Any]) -> None:
    """Print every trial, and which are there already."""
    counts = result["counts"]
    for trial in result["trials"]:
        there = Text("there   " if trial["reused"] else "to train", "dim" if trial["reused"] else "bold")
        output.print(there, plain(f" {point_text(trial['fields'])}, seed {trial['seed']}"), soft_wrap=True)
    output.print(
        f"{counts['trials']:,} trials of {counts['points']:,} points, {counts['trials_reused']:,} of them there;"
        f" {result['measure']} chooses, {direction(result['measure'])}. Nothing was trained.",
        soft_wrap=True,
    )


def show(result: dict[str, Any]) -> None:
    """The table, what to know about it, and the commands for the best."""
    present.stage_result(result)
    output.print()
    _table(result["metrics"] | {"labels": result["labels"]})
    if result["commands"]:
        to_publish = ", and to publish" if "publish" in result["commands"] else ""
        output.print(f"\nThe first of them, to make, to judge{to_publish}:", style="bold")
        for words in result["commands"].values():
            output.print(f"  {plain(_typed(words))}", soft_wrap=True)
    output.print()
    for label, where in (("page", result["page"]), ("recipe", result["best"])):
        if where:
            output.print(f"{label:<8} {plain(present.relative_path(where))}", soft_wrap=True)


def _table(table: Mapping[str, Any]) -> None:
    from clicktower.flows.report.sweep_page import table_blocks

    console.show(table_blocks(table))


def _commands(best: Mapping[str, Any], config: "SweepConfig", measure: str) -> dict[str, list[str]]:
    into, judged = ["--into", config.into], config.judged
    documents = ["--documents", judged.documents if judged else "documents.tsv"]
    watched = [*documents, "--queries", judged.queries, "--qrels", judged.qrels] if judged else []
    where = ["--workers", str(config.workers)] if config.workers > 1 else []
    where += ["--device", config.device] if config.device != "auto" else []
    where += ["--path", config.path] if config.path != "auto" else []
    train = ["train", "--shards", config.shards, *where, *train_options(best), *watched, *into]
    model = ["--model", storage.join(config.into, "train", best["trials"][0]["digest"])]
    if measure in Classify.measures:
        labelled = ["--labelled", "build-labelled/DIGEST-of-other-rows"]
        return {"train": train, "evaluate": ["evaluate-labelled", *model, *labelled, *into]}
    test = ["--queries", "test-queries.tsv", "--qrels", "test-qrels.txt"]
    return {
        "train": train,
        "evaluate": ["evaluate", *model, *documents, *test, *into],
        "publish": ["publish", *model, *documents, "--to", "release"],
    }


def _typed(words: Sequence[str]) -> str:
    return " ".join([present.program(), *(shlex.quote(present.relative_path(word)) for word in words)])
