"""The results of a run's stages -> its report."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from clicktower.flows.report.blocks import (
    BY_CLICKS,
    SIMULATED,
    Beside,
    Block,
    Cell,
    Code,
    Heading,
    Items,
    Page,
    Section,
    Table,
    Text,
    duration,
    grade_legend,
    ranking_table,
    record,
)
from clicktower.flows.report.run_blocks import (
    SYSTEM_NAMES,
    Results,
    drift,
    gate_table,
    headline,
    ledger_table,
    notes,
    num_compared,
    promotion,
    ranking,
    result,
    verdict,
)
from clicktower.schemas.ledger import Ledger
from clicktower.schemas.release import read_decision
from clicktower.schemas.stage import open_result

WHY = {
    "gain": "among those where we gain most",
    "loss": "among those where we lose most",
    "no shared word": "shares no word with a relevant title",
    "drawn": "drawn at random",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """The content of a run's report.

    k: of the privacy gate. examples: examples.json of the evaluation. promotion: {"live", "reason", "figures"}, None
    without a decision. commands: what to try next.
    """

    title: str
    results: Results
    k: int
    training: Sequence[Block]
    examples: Sequence[Mapping[str, Any]]
    promotion: Mapping[str, Any] | None = None
    commands: Sequence[str] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)


def read_run(title: str, results: Results, commands: Sequence[str] = ()) -> Run:
    """A run from its results and the files that they name."""
    from clicktower.flows.report.training_page import (  # numpy and the recipes take long to load
        read_json,
        training_blocks,
    )
    from clicktower.schemas.section import flat
    from clicktower.training.model.recipe import Recipe

    build, train, release = results["build"], results["train"], results["publish"]
    manifest = open_result(train["path"]).manifest
    return Run(
        title=title,
        results=results,
        k=open_result(build["path"]).manifest.request.config["k"],
        training=training_blocks(train),
        examples=read_json(results["evaluate"], "examples.json"),
        promotion=_promotion_of(release),
        commands=commands,
        settings=flat(manifest.request.config["recipe"], Recipe) | {"release": release["digest"]},
        versions=manifest.software,
    )


def _promotion_of(release: Mapping[str, Any]) -> dict[str, Any] | None:
    """The decision about a run's release, now or when it went live; None without one."""
    metrics = release["metrics"]
    decision = metrics.get("decision")
    if (
        decision is None
        and release["reused"]
        and (earlier_decision := read_decision(metrics["release"], release["digest"]))
    ):
        decision = asdict(earlier_decision)
    return decision and {"live": metrics["live"], **decision}


def run_page(run: Run) -> Page:
    """The report, section by section."""
    results = run.results
    evaluation, build = results["evaluate"], results["build"]
    by_clicks = evaluation["labels"].get("judgments") == "click-derived"
    stages = [result for result in results.values() if isinstance(result, Mapping)]
    text = f"A query is learned from only if at least k people typed it; here k = {run.k}."
    unusual = drift(results["drift"]) if num_compared(results["drift"]) else []
    noted = [f"{stage['stage']}: {note}" for stage in stages for note in notes(stage)]
    outputs = [[stage["stage"], stage["digest"], stage["path"]] for stage in stages]
    blocks = [
        Section(title="Result", blocks=_result(run)),
        Section(title="Ranking", blocks=ranking(evaluation["metrics"])),
        *([Section(title="Promotion", blocks=promotion(run.promotion, by_clicks))] if run.promotion else []),
        *([Section(title="To look at", blocks=[Items(items=noted)])] if noted else []),
        *([Section(title="Unusual since the last runs", blocks=unusual)] if unusual else []),
        Section(title="How it was made", blocks=_stages(stages)),
        Section(title="What became of every line", blocks=[ledger_table(Ledger.from_json(build["ledger"]))]),
        Section(title="What privacy costs", blocks=[Text(text=text), gate_table(build["metrics"]["left_at_k"], run.k)]),
        Section(title="Training", blocks=run.training),
        *_comparison(results),
        Section(title="Queries to look at", blocks=_examples(run.examples, by_clicks)),
        record(run.settings, run.versions, outputs),
    ]
    simulated = bool(evaluation["labels"].get("simulated"))
    banners = [BY_CLICKS] * by_clicks + [SIMULATED] * simulated
    return Page(kind="report of a run", title=run.title, lead=_lead(results), banners=banners, blocks=blocks)


def _comparison(results: Results) -> Sequence[Block]:
    if "compare" not in results:
        return ()
    from clicktower.flows.report.comparison_page import comparison_blocks

    return comparison_blocks(results["compare"]["metrics"])


def _lead(results: Results) -> str:
    ingest, build = results["ingest"], results["build"]
    first, last = ingest["metrics"]["first_time"], ingest["metrics"]["last_time"]
    when = f" from {first[:10]} to {last[:10]}" if first and last else ""  # a log may have no times (ORCAS)
    queries, pairs = ingest["counts"]["queries"], build["counts"]["train_pairs"]
    return f"{build['ledger']['total']:,} log lines{when}: {queries:,} different queries, {pairs:,} training pairs."


def _result(run: Run) -> list[Block]:
    metrics, release = run.results["evaluate"]["metrics"], run.results["publish"]["metrics"]
    serves = "The release that serves it" if release["live"] else "It is a candidate; an earlier release stays live at"
    return [
        Text(text=result(metrics), tone=verdict(metrics)),
        Text(text=f"{serves}: {release['release']}"),
        *([Heading(text="Try next"), *(Code(text=command) for command in run.commands)] if run.commands else []),
    ]


def _stages(stages: Sequence[Mapping[str, Any]]) -> list[Block]:
    longest = max(stage["duration_seconds"] or 0 for stage in stages)
    worked = duration(sum(stage["duration_seconds"] or 0 for stage in stages if not stage["reused"]))
    text = f"This run worked for {worked}."
    if all(stage["reused"] for stage in stages):
        text = "Every output was there already, so this run had nothing to do."
    if any(stage["reused"] for stage in stages):
        text += " What is marked reused was finished before; its time is that of the first run."
    rows: list[list[Cell | str]] = [
        [
            stage["stage"],
            Cell(text=duration(stage["duration_seconds"]), aside="reused" if stage["reused"] else ""),
            Cell(share=(stage["duration_seconds"] or 0) / (longest or 1), tone="" if stage["reused"] else "kept"),
            headline(stage),
        ]
        for stage in stages
    ]
    header = ("Stage", "Time", "", "Outcome")
    return [Text(text=text), Table(caption="Stages and what each did", header=header, rows=rows, left=(0, 2, 3))]


def _examples(examples: Sequence[Mapping[str, Any]], click_derived: bool) -> list[Block]:
    blocks: list[Block] = [grade_legend(click_derived)]
    for example in examples:
        rankings = [ranking_table(SYSTEM_NAMES[system], example["rankings"][system]) for system in ("model", "bm25")]
        blocks += [
            Heading(text=example["query"]), Text(text=WHY[example["why"]], tone="quiet"), Beside(blocks=rankings),
        ]  # fmt: skip
    return blocks
