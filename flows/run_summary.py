"""The results of a run's stages -> what its report tells."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from flows import present
from flows.pipeline_config import PipelineConfig
from flows.report import Example, RankedTitle, RunSummary, StageSummary
from flows.training_summary import read_json, training_summary
from schemas.ledger import Ledger
from schemas.release import read_decision
from schemas.stage import open_result


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
        settings=manifest.request.config["recipe"] | {"release": release["digest"]},
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
