"""The chain of stages: log -> day -> shards -> model -> evaluation [-> comparison] -> release -> report [-> prune].

Every stage runs in a process of its own (submit): its section of the config becomes the options of its command, as
JSON, and its JSON result is passed on; nothing heavy happens here. A stage whose request is unchanged answers
"reused", so running the chain again is cheap and safe; if another process is making the output, the stage waits for
it (schemas.stage).

It is run by hand (commands.pipelines), or as a flow on a Prefect server, with tasks, retries and pages (pipeline).
"""

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack, redirect_stdout
from dataclasses import asdict, replace
from functools import partial
from io import StringIO
from types import ModuleType
from typing import Any

from clicktower.flows.config.commands import call_command
from clicktower.flows.config.pipeline_config import LIVE, PipelineConfig, check_inputs, dated, is_dated, require_log
from clicktower.flows.guards.drift import alarms_of_newest, watch_figures
from clicktower.flows.report.blocks import write_page
from clicktower.flows.report.run_blocks import report_page
from clicktower.flows.show import present
from clicktower.flows.submit import options_json, run_stage_command, send_progress
from clicktower.schemas.content_filters import adult_list
from clicktower.schemas.judgments import read_qrels, read_queries
from clicktower.schemas.section import take_fields
from clicktower.schemas.stage import is_planning
from clicktower.training.model.recipe import Compute
from clicktower.training.ranking.measure import judged_qrels

# A function below: (config, results of earlier stages...) -> its JSON result.
Stage = Callable[..., Any]


def run(
    config: PipelineConfig,
    date: str,
    until: str = "report",
    *,
    wait: bool = False,
    step: Callable[[Stage], Stage] = lambda stage: stage,
    page: ModuleType | None = None,
) -> dict:
    """The whole chain. Returns the JSON result of each stage by name; raises a stage's own StageError, and before any
    stage that of judgments which do not join, and LateLog.

    until: "ingest" only reads the day into the store, as a backfill does for all days but the last. wait: for a log
    that is late, as long as `log.wait_minutes` says. step: wraps the execution of a stage. page: shows the results
    (flows.artifacts).
    """
    date, results = config.log.date or date, dict[str, Any]()
    drift = partial(_compare_with_earlier_runs, config, date, results, page)
    with ExitStack() as around:
        if config.metrics and until != "ingest":  # the figures of an ingest would hide those of the last release
            from clicktower.flows.metrics import measured

            around.enter_context(measured(config, date, results))
        check(config, date, until, minutes=config.log.wait_minutes if wait else 0.0)
        results["ingest"] = step(ingest)(config, date)
        figures = drift()
        if until == "ingest":
            return results | {"drift": figures}
        results["build"] = step(build)(config, results["ingest"], date)
        drift()
        results["train"] = step(train)(config, results["build"])
        results["evaluate"] = step(evaluate)(config, results["train"])
        drift()
        if config.compare:
            results["compare"] = step(compare)(config, results["build"])
        results["publish"] = step(publish)(config, results["train"], results["evaluate"])
        results["drift"] = drift()
        results["report"] = step(report)(config, results)
        if config.mlflow:
            from clicktower.flows.run_options import track

            step(track)(config, results)
        if config.keep:
            from clicktower.flows.run_options import prune

            results["prune"] = step(prune)(config, results, date)
        if page:
            page.links(config, results)
    return results


def check(config: PipelineConfig, date: str, until: str = "report", *, minutes: float = 0.0) -> None:
    """Refuse what a stage would refuse, before any runs; a log that is late has so many minutes to come.

    Raises UsageError and StageError: of judgments which do not join too, and LateLog.
    """
    check_inputs(config, date)
    if minutes:
        from clicktower.flows.run_options import wait_for_log

        wait_for_log(config, date, minutes)
    else:
        require_log(config, date)
    if config.mlflow:
        from clicktower.flows.tracking import require_mlflow

        require_mlflow()
    if until != "ingest":  # whether the documents are known is seen before training, where they are read
        queries, qrels = read_queries(config.judgments.queries), read_qrels(config.judgments.qrels)
        judged_qrels(queries, qrels, adult_terms=adult_list(config.build.adult_list).terms)


def _compare_with_earlier_runs(
    config: PipelineConfig, date: str, results: Mapping[str, Any], page: ModuleType | None
) -> list[dict[str, Any]]:
    """Compare every watched figure with those of earlier runs.

    Raises StageError if the newest stage's figures are unusual enough to stop the run.
    """
    if page:
        page.newest(config, results)
    rows = watch_figures(config, date, results)
    unusual = alarms_of_newest(rows, results)
    present.alarms([row.alarm for row in unusual])
    if page and (list(results)[-1] in ("build", "publish") or unusual):
        page.drift(config, rows)
    if unusual:
        from clicktower.flows.guards.usual_figures import require_usual

        require_usual(config, date, results, unusual)
    return [asdict(row) for row in rows]


def ingest(config: PipelineConfig, date: str) -> dict:
    """The private daily aggregate of the log."""
    settings = replace(config.ingest, date=date) if is_dated(config) else config.ingest
    logs = dated(config.log.files, date)
    return _run(config, "ingest", logs=logs, set=settings, beam_options=config.beam_options)


def build(config: PipelineConfig, day: dict, date: str) -> dict:
    """Training shards from the day; for a dated log from the days of the store, or the last of them up to the date."""
    return _run(
        config, "build",
        days=[config.store if is_dated(config) else day["path"]],
        until=date if config.window.last else None,
        **vars(config.window),
        documents=config.documents.file,
        judged_queries=config.judgments.queries,
        set=config.build,
        beam_options=config.beam_options,
    )  # fmt: skip


def train(config: PipelineConfig, shards: dict) -> dict:
    """A trained model."""
    judgments, start = config.judgments, config.train.start
    if start == LIVE:
        from clicktower.flows.run_options import live_start

        start = live_start(config, shards)
    return _run(
        config, "train",
        **{**vars(config.train), "start": start},
        shards=shards["path"],
        documents=config.documents.file,
        queries=judgments.queries,
        qrels=judgments.qrels,
        adult_list=config.build.adult_list,
    )  # fmt: skip


def evaluate(config: PipelineConfig, model: dict) -> dict:
    """The NDCG table and TREC run files."""
    settings = replace(config.evaluate, language=config.documents.language)
    return _run(config, "evaluate", model=model["path"], **_judged(config), set=settings)


def compare(config: PipelineConfig, shards: dict) -> dict:
    """The model among all baselines and towers."""
    assert config.compare
    return _run(
        config, "compare",
        **{**_judged(config), **vars(config.compare)},
        **vars(take_fields(Compute, {**vars(config.train)})),
        shards=shards["path"],
        evaluate=replace(config.evaluate, language=config.documents.language),
    )  # fmt: skip


def publish(config: PipelineConfig, model: dict, evaluation: dict) -> dict:
    """The live release, or by the promotion rules a candidate beside it."""
    return _run(
        config, "publish",
        model=model["path"],
        **_judged(config),
        to=config.publish.to,
        evaluation=evaluation["path"],
        if_better=True,
        rule=config.promotion,
        set=replace(config.publish.set, language=config.documents.language),
    )  # fmt: skip


def report(config: PipelineConfig, results: dict) -> str:
    """The path of the HTML report on a run's results."""
    commands = present.next_commands(config.publish.to, results["evaluate"], results["publish"])
    write_page(config.report, report_page(config.title, results, commands))
    present.stage_line("report", config.report)
    return config.report


def _judged(config: PipelineConfig) -> dict[str, Any]:
    return {
        "documents": config.documents.file, **vars(config.judgments), "adult_list": config.build.adult_list,
    }  # fmt: skip


def _run(config: PipelineConfig, stage: str, **options: Any) -> dict:
    """The JSON result of a stage's command with these options by name, and in the run's store."""
    options["into"] = config.store
    if is_planning():  # a stage that does no work needs no process of its own
        with redirect_stdout(StringIO()) as output:
            call_command(stage, options_json(options))
        planned: dict = json.loads(output.getvalue())
        return planned
    limits: Mapping[Any, float] = config.limits.timeout_minutes
    minutes = limits.get(stage)
    present.tell("started", stage)
    result = run_stage_command(stage, options, timeout_seconds=minutes and 60 * minutes)
    present.stage_result(result)
    for line in (f"{'reused' if result.get('reused') else 'done'}, {present.headline(result)}", *present.notes(result)):
        send_progress(f"{stage}: {line}")
    return result
