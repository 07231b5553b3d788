"""clicktower backfill: the pipeline for several dates, here or on a Prefect server."""

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from clicktower.flows.commands.pipelines import run_locally
from clicktower.flows.show import console
from clicktower.schemas.day_version import list_dates
from clicktower.schemas.errors import StageError, UsageError

if TYPE_CHECKING:
    from clicktower.flows.config.pipeline_config import PipelineConfig


def backfill(
    config: str,
    *,
    first: Annotated[str | None, Parameter(name="--from")] = None,
    until: Annotated[str | None, Parameter(name="--to")] = None,
    missing: bool = False,
    every: bool = False,
    ingest_only: bool = False,
    server: bool = False,
    json: bool = False,
) -> int:
    """Run the pipeline for a range of dates, one after the other: nights that were
    missed, or the past.

    Every date is ingested; shards, model, evaluation and release are made once,
    for the last date, from the days that the store then has, since nobody would
    see the releases in between. If a date fails, the later ones are still
    ingested, but nothing is made from them.

        clicktower backfill pipeline.toml --from 2026-09-01 --to 2026-09-07
        clicktower backfill pipeline.toml --from 2026-09-01 --to 2026-09-07 --server
        clicktower backfill pipeline.toml --missing

    Run it again to continue: a date that is there already answers "reused".

    Args:
        config: The TOML file, with {date} in log.files.
        first: First date (2026-09-01).
        until: Last date.
        missing: The dates from the store's first to yesterday that it has nothing for, and whose logs are there now;
            then the newest date, for what is made from the days.
        every: Make everything up to a release for every date, as nightly runs would have done.
        ingest_only: Only ingest the dates. Use this if nightly runs went on meanwhile: the next one takes these days
            too, while a release of an older window would replace the live one.
        server: Run the dates as runs of the nightly deployment on the Prefect server that PREFECT_API_URL names, one
            after the other. Its worker's machine reads the TOML file at the same path.
        json: Print the outcome of each date as one JSON object; progress goes to stderr.
    """
    if every and ingest_only:
        raise UsageError(
            "--every makes everything for each date, and --ingest-only makes nothing but ingests.", "Give one of them."
        )
    from clicktower.flows.config.pipeline_config import read_pipeline

    pipeline = read_pipeline(config)
    require_date_in_log(pipeline.log.files, config)
    how = run_on_server if server else run_locally
    if missing == bool(first or until) or bool(first) != bool(until) or (missing and every):
        raise UsageError(
            "Which dates to run is not clear.", "Give --from and --to, or --missing alone or with --ingest-only."
        )
    days = missing_dates(pipeline, ingest_only=ingest_only) if missing else dates(first or "", until or "")
    results = run_dates(days, lambda *date: how(config, *date), every=every, ingest_only=ingest_only, ended=_show_date)
    failed = [result.date for result in results if result.state == "failed"]
    console.emit(
        {"stage": "backfill", "dates": [asdict(result) for result in results], "failed": failed}, json, _show_backfill
    )
    return int(bool(failed))


@dataclass(frozen=True, kw_only=True)
class DateResult:
    """What became of a date. `state`: done, reused (all of it was there), failed, or waiting: what comes after the
    ingest of the last date was left out, since another date failed.
    """

    date: str
    state: str
    results: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""  # the error of a failed date


def dates(first: str, until: str) -> list[str]:
    """All dates from the first to the last, ISO 8601. Raises UsageError."""
    from clicktower.beam_jobs.ingest import windows

    if not (result := windows.dates(first, until)):
        raise UsageError(f"The first date, {first}, is after the last, {until}.", "Give --from the earlier of them.")
    return result


def missing_dates(config: "PipelineConfig", *, ingest_only: bool, today: datetime.date | None = None) -> list[str]:
    """The holes of a store until yesterday whose logs are there, and its newest date, unless only ingests are to be
    made. Says which holes stay.
    """
    from clicktower.beam_jobs.ingest.windows import list_holes
    from clicktower.flows.config.pipeline_config import LateLog, require_log

    with_log, still_missing = list[str](), list[str]()
    for date in list_holes(config.store, today):
        try:
            require_log(config, date)
        except LateLog:
            still_missing.append(date)
        else:
            with_log.append(date)
    if still_missing:
        more = f" and {len(still_missing) - 5:,} more" if len(still_missing) > 5 else ""
        text = f"no log yet: {', '.join(still_missing[:5])}{more}"
        console.ended("waiting", "missing", f"{len(still_missing):,} dates", text)
    newest = list_dates(config.store)[-1:]
    return with_log if ingest_only or not with_log else sorted({*with_log, *newest})


def require_date_in_log(files: Sequence[str], path: str) -> None:
    """Raise UsageError where every date would read the same files."""
    if not any("{date}" in name for name in files):
        raise UsageError(
            f"In {path}, log.files does not say where the log of a date is: every date would be the same log.",
            'Write {date} where it belongs: files = ["logs/{date}/*.ndjson.gz"].',
        )


def run_dates(
    days: Sequence[str],
    run: Callable[[str, str], Mapping[str, Any]],
    *,
    every: bool = False,
    ingest_only: bool = False,
    ended: Callable[[DateResult], None] = lambda _: None,
) -> list[DateResult]:
    """The outcome of each date; `ended` is called with each as it ends. A date that fails raises nothing.

    run: (date, until "ingest" or "report") -> the result of each stage, or StageError. The last date goes on to a
    release, unless one before it failed: nothing is made from a window with a hole in it.
    """
    outcomes: list[DateResult] = []
    for date in days:
        failed_before = any(result.state == "failed" for result in outcomes)
        is_made = not ingest_only and (every or date == days[-1])
        until = "report" if is_made and (every or not failed_before) else "ingest"
        try:
            results = run(date, until)
        except StageError as error:
            result = DateResult(date=date, state="failed", error=str(error))
        else:
            reused = [
                stage_result["reused"]
                for stage_result in results.values()
                if isinstance(stage_result, Mapping) and "reused" in stage_result
            ]
            state = "waiting" if is_made and until == "ingest" else "reused" if reused and all(reused) else "done"
            result = DateResult(date=date, state=state, results=results)
        outcomes.append(result)
        ended(result)
    return outcomes


def _show_date(result: DateResult) -> None:
    """The line of a date that has ended, on stderr."""
    stages = [
        name for name, value in result.results.items() if isinstance(value, dict) and not value.get("reused", True)
    ]
    outcome = {
        "done": ", ".join(stages),
        "reused": "all of it was there",
        "waiting": "ingested; nothing is made of it, since another date failed",
        "failed": result.error,
    }[result.state]
    console.ended(result.state, result.date, result.state, outcome)


def _show_backfill(result: dict[str, Any]) -> None:
    count, failed = f"{len(result['dates']):,} dates", result["failed"]
    console.output.print(f"{count}, {len(failed):,} failed" if failed else count)
    if failed:
        console.output.print(f"Fix what failed on {', '.join(failed)}, and run the same command again to continue.")


DEPLOYMENT = "clicktower/nightly"


def run_on_server(config_file: str, date: str, until: str = "report") -> dict:
    """{"flow_run": its id} when a run of the deployment has ended well.

    Raises UsageError where no server or no deployment is there, StageError with what the run's page says otherwise.
    """
    from clicktower.flows.config.settings import Surroundings

    if not Surroundings().prefect_api_url:
        raise UsageError(
            "No server is named by PREFECT_API_URL.",
            "Set it (http://127.0.0.1:4200/api), or leave out --server to run here.",
        )
    from prefect.deployments import run_deployment
    from prefect.exceptions import ObjectNotFound

    parameters = {"config": str(Path(config_file).resolve()), "data_date": date, "until": until, "wait": False}
    try:
        run: Any = run_deployment(DEPLOYMENT, parameters=parameters, poll_interval=2)  # outside a loop: no coroutine
    except ObjectNotFound:
        raise UsageError(
            f"The server has no deployment {DEPLOYMENT}.", "Deploy it: the comments of deploy/prefect.yaml say how."
        ) from None
    state = run.state
    if not state.is_completed():
        raise StageError(
            f"The run {run.name} for {date} ended as {state.name}: {state.message or 'no reason is known'}.",
            "See its page; run the same command again to go on.",
        )
    return {"flow_run": str(run.id)}
