"""The same flow over a range of dates, one after the other.

Every date is ingested; what follows (shards, model, evaluation, release) is made once, for the last one, since `build`
takes the days of the store as they are then: in between it would make releases that nobody is to see. `every` does the
whole for each date, as the nights would have done.

Going on is running it again: a date that is in the store answers "reused". A date that fails (its log is missing, say)
does not keep the later ones from being ingested, but nothing is made from a window with a hole in it. `ingest_only`
makes nothing at all: where the nights have gone on meanwhile, the next one takes the days, and a release of an older
window would replace the live one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich.text import Text

from beam_jobs.ingest.windows import parse_date
from flows.config.pipeline_config import PipelineConfig
from flows.config.settings import Surroundings
from flows.show.console import errors, output, plain
from schemas.errors import StageError, UsageError

# Run the flow for a date, until "ingest" or "report": the result of each stage. Raises StageError.
RunDate = Callable[[str, str], Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class DateResult:
    """What became of a date. `state`: done, reused (all of it was there), failed, or waiting: what comes after the
    ingest of the last date was left out, since another date failed.
    """

    date: str
    state: str
    results: Mapping[str, Any] = field(default_factory=dict)
    found: str = ""  # of a date that failed: what its error says

    def to_json(self) -> dict[str, Any]:
        return {"date": self.date, "state": self.state, "results": dict(self.results), "found": self.found}


def dates(first: str, until: str) -> list[str]:
    """All dates from the first to the last, ISO 8601. Raises UsageError."""
    asked = f"the dates from {first} to {until} were to be run"
    begin, end = parse_date(first, asked), parse_date(until, asked)
    if begin > end:
        raise UsageError(asked=asked, found="the first is after the last", do="give --from the earlier of them")
    return [(begin + timedelta(days=number)).isoformat() for number in range((end - begin).days + 1)]


def require_date_in_log(config: PipelineConfig, path: str) -> None:
    """Raises UsageError where every date would read the same files."""
    if not any("{date}" in name for name in config.log.files):
        raise UsageError(
            asked=f"{path} was to be run for several dates",
            found="its log.files do not say where the log of a date is",
            follows="every date would be the same log",
            do='write {date} where it belongs: files = ["logs/{date}/*.ndjson.gz"]',
        )


def backfill(
    days: Sequence[str],
    run: RunDate,
    *,
    every: bool = False,
    ingest_only: bool = False,
    ended: Callable[[DateResult], None] = lambda _: None,
) -> list[DateResult]:
    """The outcome of each date; `ended` is called with each as it ends. A date that fails raises nothing."""
    done: list[DateResult] = []
    for date in days:
        is_last = date == days[-1]
        failed_before = any(one.state == "failed" for one in done)
        wanted = not ingest_only and (every or is_last)
        until = "report" if wanted and (every or not failed_before) else "ingest"
        one = _end(date, until, run, left_out=wanted and until == "ingest")
        done.append(one)
        ended(one)
    return done


def _end(date: str, until: str, run: RunDate, *, left_out: bool) -> DateResult:
    try:
        results = run(date, until)
    except StageError as error:
        return DateResult(date=date, state="failed", found=str(error))
    made = [result["reused"] for result in results.values() if isinstance(result, Mapping) and "reused" in result]
    state = "waiting" if left_out else "reused" if made and all(made) else "done"
    return DateResult(date=date, state=state, results=results)


_MARKS = {"done": ("✓ ", "green"), "reused": ("✓ ", "green"), "waiting": ("· ", "yellow"), "failed": ("✗ ", "bold red")}


def date_line(one: DateResult) -> None:
    """The line of a date that has ended, on stderr."""
    what = {
        "done": ", ".join(name for name, result in one.results.items() if _is_new(result)),
        "reused": "all of it was there",
        "waiting": "ingested; nothing is made of it, since another date failed",
        "failed": one.found,
    }[one.state]
    line = Text.assemble(_MARKS[one.state], (f"{one.date}  ", "bold"), (f"{one.state:<8}", "dim"), plain(what))
    errors.print(line, soft_wrap=True)


def as_one(done: Sequence[DateResult]) -> dict[str, Any]:
    """The JSON object of a backfill."""
    return {
        "stage": "backfill",
        "dates": [one.to_json() for one in done],
        "failed": [one.date for one in done if one.state == "failed"],
    }


def summary(value: dict[str, Any]) -> None:
    """What came of all of it, and what to do about it."""
    failed = value["failed"]
    output.print(
        f"{len(value['dates']):,} dates, {len(failed):,} failed" if failed else f"{len(value['dates']):,} dates"
    )
    if failed:
        output.print(f"Mend what is said above of {', '.join(failed)}, and run the same command again to go on.")


def _is_new(result: Any) -> bool:
    return isinstance(result, dict) and not result.get("reused", True)


DEPLOYMENT = "clicktower/nightly"


def run_on_server(config_file: str, date: str, until: str = "report") -> dict:
    """{"flow_run": its id} when a run of the deployment has ended well.

    Raises UsageError where no server or no deployment is there, StageError with what the run's page says otherwise.
    """
    asked = f"{date} was to be run by the deployment {DEPLOYMENT}"
    if not Surroundings().prefect_api_url:
        raise UsageError(
            asked=asked,
            found="PREFECT_API_URL names no server",
            do="set it (http://127.0.0.1:4200/api), or leave out --server to run here",
        )
    from prefect.deployments import run_deployment
    from prefect.exceptions import ObjectNotFound

    parameters = {"config": str(Path(config_file).resolve()), "data_date": date, "until": until}
    try:
        run: Any = run_deployment(DEPLOYMENT, parameters=parameters, poll_interval=2)  # outside of a loop: no coroutine
    except ObjectNotFound:
        raise UsageError(
            asked=asked,
            found="the server has no such deployment",
            do="deploy it: the comments of deploy/prefect.yaml say how",
        ) from None
    state = run.state
    if not state.is_completed():
        raise StageError(
            asked=asked,
            found=f"its run {run.name} ended as {state.name}: {state.message or 'nothing more is known'}",
            do="see its page; run the same command again to go on",
        )
    return {"flow_run": str(run.id)}
