"""The DAG: log -> day -> shards -> model -> evaluation [-> comparison] -> release -> report.

Prefect decides when and where.

Every task runs a stage as a process of its own (`flows.submit`) and hands on its JSON result; nothing heavy happens
here. A stage whose request is unchanged answers "reused", so running the flow again is cheap and safe; one that is
being made by another process is waited for (`schemas.claim`).
"""

import datetime
from typing import Any, Literal

from prefect import flow, runtime

from flows import artifacts, stages
from flows.console import explain
from flows.guards.watch_drift import alarms_of_newest, require_usual, watched
from flows.pipeline_config import PipelineConfig, check_inputs, read_pipeline
from flows.pointer_slot import pointer_slot
from flows.stage_task import failed, stage_task
from schemas.errors import StageError

ingest = stage_task(stages.ingest)
build = stage_task(stages.build)
train = stage_task(stages.train)
evaluate = stage_task(stages.evaluate)
compare = stage_task(stages.compare)
report = stage_task(stages.report)


@stage_task
def publish(config: PipelineConfig, model: dict, evaluation: dict) -> dict:
    """The live release; one run at a time moves a pointer."""
    with pointer_slot(config.publish.to):
        return stages.publish(config, model, evaluation)


@flow(name="clicktower", log_prints=False)
def pipeline(config: str, data_date: datetime.date | None = None, until: Literal["ingest", "report"] = "report") -> Any:
    """Run the pipeline that a TOML file describes, for one date of data.

    Returns the JSON result of each stage by name. A stage that fails ends the run with what it said as its state.

    Args:
        config: Path of a pipeline.toml, as the machine that runs the flow sees it.
        data_date: The day of the log to ingest. Empty: the day before the scheduled time, so that a run that is late
            still takes its own day.
        until: ingest: only read the day into the store, as a backfill does with all days but the last.
    """
    known = None
    try:
        known = read_pipeline(config)
        return run(known, data_date.isoformat() if data_date else _day_before_schedule(), until)
    except StageError as error:
        artifacts.failed(known, error)
        return failed(error)
    except Exception as error:
        artifacts.failed(known, explain(error))
        raise


def run(config: PipelineConfig, date: str, until: str = "report") -> dict:
    """The whole way, as a sentence. Returns the JSON result of each stage by name."""
    date = config.log.date or date
    check_inputs(config, date)
    day = ingest(config, date)
    done = look(config, date, {"ingest": day})
    if until == "ingest":
        return done
    shards = build(config, day, date)
    done = look(config, date, {**done, "build": shards})
    model = train(config, shards)
    evaluation = evaluate(config, model)
    done = look(config, date, {**done, "train": model, "evaluate": evaluation})
    compared = {"compare": compare(config, shards)} if config.compare else {}
    release = publish(config, model, evaluation)
    done = look(config, date, {**done, **compared, "publish": release})
    done |= {"report": report(config, done)}
    artifacts.links(config, done)
    return done


def look(config: PipelineConfig, date: str, done: dict[str, Any]) -> dict[str, Any]:
    """What is done so far, with `drift`: every watched figure beside what earlier runs saw. The run's page shows it.

    Raises StageError where the newest stage's figures are so far from usual that the run is to stop.
    """
    results = {name: value for name, value in done.items() if name != "drift"}
    newest = list(results)[-1]
    artifacts.newest(config, results)
    rows = watched(config, date, results)
    if newest in ("build", "publish") or alarms_of_newest(rows, results):
        artifacts.drift(config, rows)
    require_usual(config, date, results, rows)
    return {**results, "drift": [row.to_json() for row in rows]}


def _day_before_schedule() -> str:
    scheduled = runtime.flow_run.scheduled_start_time or datetime.datetime.now(datetime.UTC)
    return (scheduled - datetime.timedelta(days=1)).date().isoformat()
