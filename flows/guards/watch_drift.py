"""A run's figures set beside those of earlier runs, after each stage that makes more of them known.

What was seen is kept in the store (observations). An alarm that section [drift] names under `stop` ends
the run.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from flows.config.guard_rules import FIGURES
from flows.config.pipeline_config import PipelineConfig
from flows.guards import observations
from flows.guards.drift import Watched, alarms, watch
from flows.show.console import errors
from schemas.errors import StageError


def watched(config: PipelineConfig, date: str, results: Mapping[str, Any]) -> list[Watched]:
    """Every figure of the stages done so far beside its usual value. `results`: theirs, the newest last.

    Tells what the newest stage alarms.
    """
    now = observations.observe(config, date, results)
    before = observations.earlier(config.store, now, days=config.drift.days + 7)  # a week more, for a slow drift
    rows = watch(now, before, config.drift)
    observations.write(config.store, now)
    for row in alarms_of_newest(rows, results):
        errors.print(Text(f"  drift: {row.alarm}", style="yellow"), soft_wrap=True)
    return rows


def require_usual(config: PipelineConfig, date: str, results: Mapping[str, Any], rows: Sequence[Watched]) -> None:
    """Raises StageError where what the newest stage alarms is to stop the run."""
    stopping = [row for row in alarms_of_newest(rows, results) if row.stops]
    if not stopping:
        return
    names, key = ", ".join(row.figure for row in stopping), observations.key_of(config, date, results["ingest"])
    raise StageError(
        asked=f"the figures of {key} were to be as usual before the run goes on",
        found="; ".join(row.alarm for row in stopping),
        follows=f"the run stops here, since [drift] stop names {names}; what is live stays live",
        do=f'look at that log; if it is right, set accept = ["{key}"] in [drift] and run again: what is done is reused',
    )


def alarms_of_newest(rows: Sequence[Watched], results: Mapping[str, Any]) -> list[Watched]:
    """What the newest stage is the first to know."""
    return [row for row in alarms(rows) if FIGURES[row.figure].stage == list(results)[-1]]
