"""clicktower sweep"""

from typing import Literal

from flows import console, present_sweep


def sweep(config: str, *, plan: bool = False, json: bool = False) -> None:
    """Train many variants of a recipe that a TOML file describes, and rank them on held-out
    data.

    The repository's sweep.toml is a commented example. The least that works:

        shards = "store/build/DIGEST"
        into = "store"
        seeds = [1, 2, 3]                  # a single seed misleads
        [fields]
        step = [0.001, 0.002, 0.004]       # any field of the recipe
        cells = [64, 96]

    It is begun, and gone on with, by

        clicktower sweep sweep.toml

    Each trial is an ordinary training: one that is in the store counts, a killed
    sweep goes on with what is missing, and one that diverges stops nobody else.
    With RAY_ADDRESS set, as in a Ray job, trials run on the nodes of that cluster:

        ray job submit --address http://127.0.0.1:8265 -- clicktower sweep $PWD/sweep.toml

    In the sweep's folder are the table (sweep.json, sweep.md), a page with curves
    (sweep.html) and the best recipe (best.toml, for train --recipe).

    Parameters
    ----------
    config
        The TOML file. Relative paths in it are relative to its folder.
    plan
        Only say what would be trained, and what is there already.
    json
        Print the table as one JSON object; progress goes to stderr.
    """
    from flows.report.sweep_page import render
    from flows.sweep_config import read_sweep
    from flows.sweep_points import measure_of, points_of
    from training.ranking.judged_collection import Judged
    from training.sweep import sweep_stage
    from training.sweep.halving import Halving

    asked = read_sweep(config)
    points = points_of(asked)
    measure = measure_of(asked, points)
    files = asked.judged
    judged = Judged(documents=files.documents, queries=files.queries, qrels=files.qrels) if files else None
    halving = Halving(eta=asked.halving.eta, min_epochs=asked.halving.min_epochs) if asked.halving else None
    if plan:
        planned = sweep_stage.plan(
            asked.shards,
            points,
            store=asked.into,
            measure=measure,
            judged=judged,
            workers=asked.workers,
            device=asked.device,
            path=asked.path,
        )
        console.emit(present_sweep.as_plan(asked, measure, planned), json, present_sweep.show_plan)
        return
    try:
        with console.progress_bar("sweep") as progress:
            result = sweep_stage.sweep(
                asked.shards,
                points,
                store=asked.into,
                measure=measure,
                judged=judged,
                halving=halving,
                workers=asked.workers,
                threads=asked.threads,
                device=asked.device,
                path=asked.path,
                engine=_engine(asked.engine),
                at_once=asked.at_once,
                progress=progress,
                trial_ended=present_sweep.trial_line(measure),
                render=render,
            )
    except sweep_stage.Unfinished as error:
        if not json:
            present_sweep.show_unfinished(error.rows, measure, "judgments" if judged else "held-out clicks")
        raise
    console.emit(present_sweep.as_result(result, asked), json, present_sweep.show)


def _engine(asked: Literal["auto", "processes", "ray"]) -> Literal["processes", "ray"]:
    from flows.settings import Surroundings

    if asked == "auto":
        return "ray" if Surroundings().ray_address else "processes"
    return asked
