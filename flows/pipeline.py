"""The DAG: log -> day -> shards -> model -> evaluation [-> comparison] -> release -> report.

Prefect decides when and where.

Every task runs a stage as a process of its own (`flows.submit`) and hands on its JSON result; nothing heavy happens
here. A stage whose request is unchanged answers "reused", so running the flow again is cheap and safe.
"""

from datetime import UTC, datetime, timedelta

from prefect import flow, runtime, task

from flows import stages
from flows.pipeline_config import PipelineConfig, check_inputs, read_pipeline

ingest = task(stages.ingest)
build = task(stages.build)
train = task(stages.train)
evaluate = task(stages.evaluate)
compare = task(stages.compare)
publish = task(stages.publish)
report = task(stages.report)


@flow(name="clicktower", log_prints=False)
def pipeline(config: str, data_date: str | None = None) -> dict:
    """Run the pipeline that a TOML file describes, for one date of data.

    config: path of a pipeline.toml, as the machine that runs the flow sees it.
    data_date: ISO 8601; by default the day before the *scheduled* time, so that a late run still takes its own day.
    """
    return run(read_pipeline(config), data_date or _day_before_schedule())


def run(config: PipelineConfig, date: str) -> dict:
    """The whole way, as a sentence. Returns the JSON result of each stage by name."""
    date = config.log.date or date
    check_inputs(config, date)
    day = ingest(config, date)
    shards = build(config, day, date)
    model = train(config, shards)
    evaluation = evaluate(config, model)
    compared = {"compare": compare(config, shards)} if config.compare else {}
    release = publish(config, model, evaluation)
    results = {"ingest": day, "build": shards, "train": model, "evaluate": evaluation, **compared, "publish": release}
    return results | {"report": report(config, results)}


def _day_before_schedule() -> str:
    scheduled = runtime.flow_run.scheduled_start_time or datetime.now(UTC)
    return (scheduled - timedelta(days=1)).date().isoformat()
