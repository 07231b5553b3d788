"""clicktower run, backfill, demo: all stages in one go, for a date or for several, here or on a Prefect server."""

import datetime
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from clicktower.flows.commands.options import Json, Seed, SetInFile
from clicktower.flows.show import console, present
from clicktower.flows.show.json_lines import as_json_lines, write_progress
from clicktower.flows.submit import progress_to, run_stage_command
from clicktower.schemas.errors import StageError, UsageError

if TYPE_CHECKING:
    from clicktower.flows.config.pipeline_config import PipelineConfig


def run(
    config: str,
    *,
    date: str | None = None,
    set: SetInFile = None,
    plan: bool = False,
    json_logs: bool = False,
    json: Json = False,
) -> int:
    """Run the whole pipeline that a TOML file describes: log -> day -> shards -> model
    -> evaluation -> release.

    The repository's pipeline.toml is a commented example with every field. A
    minimal one:

        store = "store"
        [log]
        files = ["logs/*.ndjson.gz"]           # UBI search and event lines
        [documents]
        file = "documents.tsv"                 # id<TAB>title
        [judgments]
        queries = "queries.tsv"                # id<TAB>text
        qrels = "qrels.txt"                    # TREC: query 0 document grade
        [publish]
        to = "release"

    Run it with

        clicktower run pipeline.toml

    Run it again and every stage answers "reused"; change a setting and only
    what depends on it runs.

    The same file serves development and production: ${NAME} in a text is an
    environment variable, and --set replaces a field for this run:

        clicktower run pipeline.toml --set train.workers=2 --set train.set.epochs=3

    --plan says what a run would do, and does nothing:

        clicktower run pipeline.toml --set train.set.epochs=3 --plan

    Args:
        config: The TOML file. Relative paths in it are relative to its folder.
        date: Fills {date} in log.files (2026-09-01); by default yesterday.
        plan: Only print which stages would run and why, which are reused, and how long each took last time.
        json_logs: Tell of the run on stderr as JSON lines: time, stage, event, seconds, digest.
    """
    if plan:
        if json_logs:
            raise UsageError("--json-logs tells of a run, and --plan runs nothing.", "Leave one of them out.")
        _plan(config, date, set or (), json)
        return 0
    with _json_logs(json) if json_logs else nullcontext():
        results = run_locally(config, date, assignments=set or (), wait=True)
    console.emit(present.run_json("run", results), json, present.run_results)
    return drift_exit_code(config, results, set or ())


def _plan(config_file: str, date: str | None, assignments: Sequence[str], json: bool) -> None:
    from clicktower.flows import plan
    from clicktower.flows.config.pipeline_config import read_pipeline

    config = read_pipeline(config_file, assignments)
    console.emit(plan.to_json(plan.plan(config, _day(date).isoformat())), json, present.plan)


@contextmanager
def _json_logs(json: bool) -> Iterator[None]:
    with as_json_lines(json=json), progress_to(write_progress):
        yield


def drift_exit_code(config_file: str, results: Mapping[str, Any], assignments: Sequence[str] = ()) -> int:
    """The exit code of a run that ended: 0, or what [drift] sets for one with a figure out of the usual."""
    if not any(row["alarm"] for row in results["drift"]):
        return 0
    from clicktower.flows.config.pipeline_config import read_pipeline

    return read_pipeline(config_file, assignments).drift.exit_code or 0


def run_locally(
    config_file: str,
    date: str | None = None,
    until: str = "report",
    *,
    assignments: Sequence[str] = (),
    wait: bool = False,
) -> dict:
    """The JSON result of every stage, or of the ingest alone (`until`). `assignments`: fields that replace those of
    the file. `wait`: for a log that is late, as long as the file says. Raises StageError: a stage's own.

    In this terminal, or as a flow where a Prefect server is set up.
    """
    from clicktower.flows import chain
    from clicktower.flows.config.pipeline_config import read_pipeline

    config, day = read_pipeline(config_file, assignments), _day(date)
    if not _prefect_is_set_up():
        return chain.run(config, day.isoformat(), until, wait=wait)
    # A person's terminal shows the stages, not Prefect's log; we report a failed stage once, without a traceback.
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")
    os.environ.setdefault("PREFECT_LOGGING_TO_API_ENABLED", "false")
    from clicktower.flows.pipeline import pipeline  # Prefect takes seconds to start

    file = str(Path(config_file).resolve())
    parameters = {"config": file, "data_date": day, "until": until, "wait": wait, "settings": [*assignments]}
    state: Any = pipeline(**parameters, return_state=True)
    result = state.result(raise_on_failure=False)
    if isinstance(result, BaseException):  # a stage's own, without Prefect's wrapping
        raise result
    return result


def _day(date: str | None) -> datetime.date:
    """A date as a person types it, by default yesterday (UTC). Raises UsageError."""
    from clicktower.beam_jobs.ingest.days import parse_date

    yesterday = (datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)).date().isoformat()
    return parse_date(date or yesterday)


def _prefect_is_set_up() -> bool:
    """Whether a server is named by the environment or by the person's profile, as Prefect itself would find it."""
    from clicktower.flows.config.settings import Surroundings

    around = Surroundings()
    if around.prefect_api_url:
        return True
    profiles = Path(around.prefect_home or Path.home() / ".prefect") / "profiles.toml"
    return profiles.is_file() and "PREFECT_API_URL" in profiles.read_text(encoding="utf-8", errors="replace")


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
    from clicktower.flows.config.pipeline_config import read_pipeline

    if every and ingest_only:
        raise UsageError(
            "--every makes everything for each date, and --ingest-only makes nothing but ingests.", "Give one of them."
        )
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
    found: str = ""  # the error of a failed date


def dates(first: str, until: str) -> list[str]:
    """All dates from the first to the last, ISO 8601. Raises UsageError."""
    from clicktower.beam_jobs.ingest import days

    if not (result := days.dates(first, until)):
        raise UsageError(f"The first date, {first}, is after the last, {until}.", "Give --from the earlier of them.")
    return result


def missing_dates(config: "PipelineConfig", *, ingest_only: bool, today: datetime.date | None = None) -> list[str]:
    """The holes of a store until yesterday whose logs are there, and its newest date, unless only ingests are to be
    made. Says which holes stay.
    """
    from clicktower.beam_jobs.ingest.days import list_holes
    from clicktower.flows.config.pipeline_config import LateLog, require_log
    from clicktower.schemas.day_version import list_dates

    found, still_missing = list[str](), list[str]()
    for date in list_holes(config.store, today):
        try:
            require_log(config, date)
        except LateLog:
            still_missing.append(date)
        else:
            found.append(date)
    if still_missing:
        more = f" and {len(still_missing) - 5:,} more" if len(still_missing) > 5 else ""
        text = f"no log yet: {', '.join(still_missing[:5])}{more}"
        console.ended("waiting", "missing", f"{len(still_missing):,} dates", text)
    newest = list_dates(config.store)[-1:]
    return found if ingest_only or not found else sorted({*found, *newest})


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
    done: list[DateResult] = []
    for date in days:
        failed_before = any(result.state == "failed" for result in done)
        is_made = not ingest_only and (every or date == days[-1])
        until = "report" if is_made and (every or not failed_before) else "ingest"
        try:
            results = run(date, until)
        except StageError as error:
            result = DateResult(date=date, state="failed", found=str(error))
        else:
            reused = [
                stage_result["reused"]
                for stage_result in results.values()
                if isinstance(stage_result, Mapping) and "reused" in stage_result
            ]
            state = "waiting" if is_made and until == "ingest" else "reused" if reused and all(reused) else "done"
            result = DateResult(date=date, state=state, results=results)
        done.append(result)
        ended(result)
    return done


def _show_date(result: DateResult) -> None:
    """The line of a date that has ended, on stderr."""
    stages = [
        name for name, value in result.results.items() if isinstance(value, dict) and not value.get("reused", True)
    ]
    outcome = {
        "done": ", ".join(stages),
        "reused": "all of it was there",
        "waiting": "ingested; nothing is made of it, since another date failed",
        "failed": result.found,
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


def demo(*, work: str = "clicktower-demo", searches: int = 30_000, seed: Seed = 0, json: Json = False) -> None:
    """Simulate a log and run everything, up to a searchable release and a report,
    in minutes.

    Beam and two training workers really run, on this machine; only the log
    is simulated, and everything made from it says so. A second run reuses what is
    there.

        clicktower demo --work clicktower-demo

    Args:
        work: Folder for the simulated data, the store, the release and the report.
        searches: Size of the simulated log.
        seed: The seed of the simulated shop.
    """
    folder = Path(work)
    folder.mkdir(parents=True, exist_ok=True)
    simulated = run_stage_command(["simulate", str(folder / "data"), "--searches", str(searches), "--seed", str(seed)])
    present.stage_result(simulated)
    config = folder / "pipeline.toml"
    config.write_bytes((resources.files("clicktower.flows.commands") / "demo.toml").read_bytes())
    results = {"simulate": simulated, **run_locally(str(config))}
    console.emit(present.run_json("demo", results), json, present.run_results)
