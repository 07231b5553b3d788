"""The chain of stages (flows.chain) as a Prefect flow: its tasks are tried again, its page shows what comes of each.

Prefect decides when and where.
"""

import datetime
from typing import Any, Literal

from prefect import flow, runtime

from flows import artifacts, stages
from flows.chain import Steps, run
from flows.console import explain
from flows.pipeline_config import PipelineConfig, read_pipeline
from flows.pointer_slot import pointer_slot
from flows.stage_task import failed, stage_task
from schemas.errors import StageError


@stage_task
def publish(config: PipelineConfig, model: dict, evaluation: dict) -> dict:
    """The live release; one run at a time moves a pointer."""
    with pointer_slot(config.publish.to):
        return stages.publish(config, model, evaluation)


STEPS = Steps(
    ingest=stage_task(stages.ingest),
    build=stage_task(stages.build),
    train=stage_task(stages.train),
    evaluate=stage_task(stages.evaluate),
    compare=stage_task(stages.compare),
    publish=publish,
    report=stage_task(stages.report),
    show_newest=artifacts.newest,
    show_drift=artifacts.drift,
    show_links=artifacts.links,
)


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
        return run(known, data_date.isoformat() if data_date else _day_before_schedule(), until, STEPS)
    except StageError as error:
        artifacts.failed(known, error)
        return failed(error)
    except Exception as error:
        artifacts.failed(known, explain(error))
        raise


def _day_before_schedule() -> str:
    scheduled = runtime.flow_run.scheduled_start_time or datetime.datetime.now(datetime.UTC)
    return (scheduled - datetime.timedelta(days=1)).date().isoformat()
