"""Artifacts: what a run's page in Prefect shows beside its stages, as soon as it is known.

A failed run therefore shows what was known by then, and what went wrong. The keys are stable, TITLE-NAME, so Prefect
keeps the history of each. A page must not end a run: if an artifact cannot be created, the terminal says so.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from prefect import runtime
from prefect.artifacts import create_markdown_artifact
from prefect.events import emit_event

from clicktower.flows.config.pipeline_config import PipelineConfig
from clicktower.flows.guards.drift import WatchedFigure, alarms
from clicktower.flows.report.blocks import Block, Table, Text
from clicktower.flows.report.guard_blocks import drift as drift_blocks
from clicktower.flows.report.guard_blocks import usual
from clicktower.flows.report.markdown import escaped, markdown
from clicktower.flows.report.run_blocks import ledger_table, promotion, ranking
from clicktower.flows.show.console import errors
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError
from clicktower.schemas.ledger import Ledger
from clicktower.schemas.release import CARD

NAMES = ("ledger", "ndcg", "drift", "promotion", "model-card", "links", "failure")


def newest(config: PipelineConfig, results: Mapping[str, Any]) -> None:
    """What the newest result shows."""
    name = list(results)[-1]
    shown = {"build": _ledger, "evaluate": _ranking, "publish": _release}
    if name in shown:
        shown[name](config, results[name])


def _ledger(config: PipelineConfig, shards: Mapping[str, Any]) -> None:
    ledger = Ledger(**shards["ledger"])
    about = f"The fate of all {ledger.total:,} lines. Privacy gate: {shards['metrics']['privacy_gate']}."
    _keep(config, "ledger", "Ledger", [ledger_table(ledger)], about)


def _ranking(config: PipelineConfig, evaluation: Mapping[str, Any]) -> None:
    about = f"NDCG over {evaluation['metrics']['n']:,} judged queries, with intervals"
    blocks = ranking(evaluation["metrics"])
    if evaluation["labels"].get("simulated"):
        blocks.append(Text(text="All of this comes from a simulated log.", tone="open"))
    _keep(config, "ndcg", "NDCG", blocks, about)


def drift(config: PipelineConfig, rows: Sequence[WatchedFigure]) -> None:
    """Every watched figure beside its usual value."""
    count, shown = len(alarms(rows)), [asdict(row) for row in rows]
    if count:
        _emit("clicktower.run.drift", {"alarms": "; ".join(row.alarm for row in alarms(rows))})
    about = f"{count} figure{'s' * (count != 1)} out of the usual" if count else usual(shown)
    _keep(config, "drift", "Drift", drift_blocks(shown), about)


def _release(config: PipelineConfig, published: Mapping[str, Any]) -> None:
    """The decision on the release, and its model card."""
    metrics = published["metrics"]
    decision, was = metrics.get("decision"), "was live already" if published["reused"] else "went live"
    blocks: list[Block] = [Text(text=f"This release {was}; nothing was asked of it.")]
    if decision:
        blocks = promotion({"live": metrics["live"], **decision}, bool(decision["figures"].get("click_derived")))
    event = "clicktower.release.live" if metrics["live"] else "clicktower.release.kept"
    _emit(event, {"release": published["digest"], "reason": (decision or {}).get("reason", "")})
    about = "The release is live" if metrics["live"] else "The candidate was kept; what was live stays live"
    blocks.append(Text(text=f"Release {published['digest']}"))
    _keep(config, "promotion", "Promotion", blocks, about)

    def card() -> str:
        text = storage.read_bytes(storage.join(published["path"], CARD)).decode()
        return re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)

    _create(config, "model-card", card, "The model card of the release")


def links(config: PipelineConfig, results: Mapping[str, Any]) -> None:
    """Links to every output."""
    stages = [value for value in results.values() if isinstance(value, Mapping) and "reused" in value]
    new = ["was damaged and made again" if result.get("repaired") else "new" for result in stages]
    rows = [[r["stage"], "reused" if r["reused"] else how, r["path"]] for r, how in zip(stages, new, strict=True)]
    rows.append(["report", "", str(results["report"])])
    table = Table(caption="outputs", header=("stage", "", "output"), rows=rows, left=range(3))
    blocks: list[Block] = [table, Text(text=f"Served from {config.publish.to}")]
    _keep(config, "links", config.title, blocks, "The report, the release, and the output of every stage")


def show_failure(config: PipelineConfig | None, error: StageError) -> None:
    """Why a run failed, and what to do. Without a config: it could not be read."""
    blocks: list[Block] = [Text(text=error.problem), Text(text=f"What to do: {error.fix}")]
    _keep(config, "failure", "This run failed", blocks, "What to do")


def key_of(config: PipelineConfig | None, name: str) -> str:
    """The key of an artifact: the run's title in Prefect's spelling, and what it shows."""
    title = re.sub(r"[^a-z0-9]+", "-", config.title.lower()).strip("-") if config else ""
    return f"{title or 'clicktower'}-{name}"


def _keep(config: PipelineConfig | None, name: str, title: str, blocks: Sequence[Block], about: str) -> None:
    _create(config, name, lambda: f"# {escaped(title)}\n\n{markdown(blocks)}", about)


def _emit(event: str, facts: Mapping[str, str]) -> None:
    """Emit an event of this run, for automations (deploy/alerts.yaml)."""
    if runtime.flow_run.id:
        emit_event(
            event, resource={"prefect.resource.id": f"prefect.flow-run.{runtime.flow_run.id}"}, payload={**facts}
        )


def _create(config: PipelineConfig | None, name: str, text: Callable[[], str], about: str) -> None:
    if not runtime.flow_run.id:  # called by hand, outside a run: there is no page
        return
    try:
        create_markdown_artifact(markdown=text(), key=key_of(config, name), description=about)
    except Exception as error:  # the server may be down, or its database's disk full
        errors.print(f"[dim]the run's page has no {name}: {type(error).__name__}[/]")
