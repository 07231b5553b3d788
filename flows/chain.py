"""The chain of stages: log -> day -> shards -> model -> evaluation [-> comparison] -> release -> report.

Every stage runs as a process of its own (`flows.submit`) and hands on its JSON result; nothing heavy happens here. A
stage whose request is unchanged answers "reused", so running the chain again is cheap and safe; one that is being made
by another process is waited for (`schemas.claim`).

It is run by hand (run_by_hand), or as a flow of a Prefect server, with its tasks, retries and pages (pipeline).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flows import stages
from flows.config.pipeline_config import PipelineConfig, check_inputs
from flows.guards.drift import alarms_of_newest, require_usual, watched


def _to_nobody(*_: Any) -> None:
    pass


@dataclass(frozen=True, kw_only=True, slots=True)
class Steps:
    """What carries out each stage, and who is shown what comes of it."""

    ingest: Callable[..., dict] = stages.ingest
    build: Callable[..., dict] = stages.build
    train: Callable[..., dict] = stages.train
    evaluate: Callable[..., dict] = stages.evaluate
    compare: Callable[..., dict] = stages.compare
    publish: Callable[..., dict] = stages.publish
    report: Callable[..., str] = stages.report
    show_newest: Callable[..., None] = _to_nobody  # (config, results)
    show_drift: Callable[..., None] = _to_nobody  # (config, rows)
    show_links: Callable[..., None] = _to_nobody  # (config, results)


def run(config: PipelineConfig, date: str, until: str = "report", steps: Steps | None = None) -> dict:
    """The whole way, as a sentence. Returns the JSON result of each stage by name; raises a stage's own StageError.

    `until`: "ingest" only reads the day into the store, as a backfill does with all days but the last.
    """
    do = steps or Steps()
    date = config.log.date or date
    check_inputs(config, date)
    day = do.ingest(config, date)
    done = _look(config, date, {"ingest": day}, do)
    if until == "ingest":
        return done
    shards = do.build(config, day, date)
    done = _look(config, date, {**done, "build": shards}, do)
    model = do.train(config, shards)
    evaluation = do.evaluate(config, model)
    done = _look(config, date, {**done, "train": model, "evaluate": evaluation}, do)
    compared = {"compare": do.compare(config, shards)} if config.compare else {}
    release = do.publish(config, model, evaluation)
    done = _look(config, date, {**done, **compared, "publish": release}, do)
    done |= {"report": do.report(config, done)}
    do.show_links(config, done)
    return done


def _look(config: PipelineConfig, date: str, done: Mapping[str, Any], do: Steps) -> dict[str, Any]:
    """What is done so far, with `drift`: every watched figure beside what earlier runs saw.

    Raises StageError where the newest stage's figures are so far from usual that the run is to stop.
    """
    results = {name: value for name, value in done.items() if name != "drift"}
    newest = list(results)[-1]
    do.show_newest(config, results)
    rows = watched(config, date, results)
    if newest in ("build", "publish") or alarms_of_newest(rows, results):
        do.show_drift(config, rows)
    require_usual(config, date, results, rows)
    return {**results, "drift": [row.to_json() for row in rows]}
