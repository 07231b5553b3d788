"""One thin function per stage: the section of the config that concerns it, as the arguments of its command."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from flows.config.guard_rules import PromotionRules
from flows.config.pipeline_config import PipelineConfig, dated, is_dated
from flows.show import present
from flows.submit import run_stage_command, tell


def ingest(config: PipelineConfig, date: str) -> dict:
    """The private daily aggregate of the log."""
    return _run(
        config,
        ["ingest", *dated(config.log.files, date), "--format", config.log.format,
         *(["--date", date] if is_dated(config) else []), "--into", config.store],
        config.ingest, config.beam_options)  # fmt: skip


def build(config: PipelineConfig, day: dict, date: str) -> dict:
    """Training shards from the day; of a dated log from the days of the store, or the last of them up to the date."""
    days = ["--days", config.store if is_dated(config) else day["path"]]
    days += ["--to", date, "--last", str(config.window.last)] if config.window.last else []
    days += ["--allow-missing-days"] if config.window.allow_missing_days else []
    return _run(
        config,
        ["build", *days, "--documents", config.documents.file, "--judged-queries", config.judgments.queries,
         "--into", config.store],
        config.build, config.beam_options)  # fmt: skip


def train(config: PipelineConfig, shards: dict) -> dict:
    """A trained model."""
    optional = ["--threads", str(config.train.threads)] if config.train.threads else []
    optional += ["--word-vectors", config.train.word_vectors] if config.train.word_vectors else []
    return _run(
        config,
        ["train", "--shards", shards["path"], "--recipe", config.train.recipe, "--workers", str(config.train.workers),
         *optional, "--documents", config.documents.file, "--queries", config.judgments.queries,
         "--qrels", config.judgments.qrels, "--into", config.store],
        config.train.set)  # fmt: skip


def evaluate(config: PipelineConfig, model: dict) -> dict:
    """The NDCG table and TREC run files."""
    return _run(
        config,
        ["evaluate", "--model", model["path"], "--documents", config.documents.file,
         *_judgments(config), "--into", config.store],
        config.evaluate)  # fmt: skip


def compare(config: PipelineConfig, shards: dict) -> dict:
    """The model among all baselines and towers."""
    section = config.compare
    assert section
    words = [["--rows", *section.rows], ["--seeds", *map(str, section.seeds)]]
    words += [["--logged", section.logged or ""], ["--frequencies", section.frequencies or ""]]
    threads = ["--threads", str(config.train.threads)] if config.train.threads else []
    judged = [word for name, value in config.evaluate.items() for word in ("--evaluate", f"{name}={_text(value)}")]
    return _run(
        config,
        ["compare", "--shards", shards["path"], "--documents", config.documents.file,
         "--queries", config.judgments.queries, "--qrels", config.judgments.qrels, "--against", section.against,
         *(word for option, *given in words if any(given) for word in (option, *given)), *threads, *judged,
         "--into", config.store],
        section.set)  # fmt: skip


def publish(config: PipelineConfig, model: dict, evaluation: dict) -> dict:
    """The live release, or by the rules of a promotion a candidate beside it."""
    rules = [
        word
        for name, value in asdict(config.promotion).items()
        if value != getattr(PromotionRules(), name)
        for word in ("--rule", f"{name}={_text(value)}")
    ]
    promotion = ["--if-better", *_judgments(config), "--into", config.store, *rules]
    return _run(
        config,
        ["publish", "--model", model["path"], "--documents", config.documents.file, "--to", config.publish.to,
         "--evaluation", evaluation["path"], *promotion],
        config.publish.set)  # fmt: skip


def report(config: PipelineConfig, results: dict) -> str:
    """The path of the HTML report on a run's results."""
    from flows.report import write_report
    from flows.run_summary import summarise

    write_report(config.report, summarise(config, results))
    present.stage_line("report", config.report)
    return config.report


def _judgments(config: PipelineConfig) -> list[str]:
    judgments = config.judgments
    given = ["--frequencies", judgments.frequencies] if judgments.frequencies else []
    return ["--queries", judgments.queries, "--qrels", judgments.qrels, *given]


def _run(
    config: PipelineConfig, arguments: list[str], fields: Mapping[str, Any], beam_options: tuple[str, ...] = ()
) -> dict:
    sets = [word for name, value in fields.items() for word in ("--set", f"{name}={_text(value)}")]
    engine = ["--", *beam_options] if beam_options else []
    minutes = config.limits.timeout_minutes.get(arguments[0])
    result = run_stage_command([*arguments, *sets, *engine], timeout_seconds=minutes and 60 * minutes)
    present.stage_result(result)
    for said in (f"{'reused' if result.get('reused') else 'done'}, {present.headline(result)}", *present.notes(result)):
        tell(f"{arguments[0]}: {said}")
    return result


def _text(value: Any) -> str:
    """A TOML value as `--set` reads it: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value)
