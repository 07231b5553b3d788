"""clicktower run: all stages in one go, here or as a flow where a Prefect server is set up."""

import datetime
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from clicktower.flows.commands.options import Json, SetInFile
from clicktower.flows.show import console, present
from clicktower.flows.submit import progress_to
from clicktower.schemas.errors import UsageError


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
    with ExitStack() as around:
        if json_logs:
            from clicktower.flows.show.json_lines import as_json_lines

            around.enter_context(progress_to(around.enter_context(as_json_lines(json=json))))
        results = run_locally(config, date, assignments=set or (), wait=True)
    console.emit(present.run_json("run", results), json, present.run_results)
    if not any(row["alarm"] for row in results["drift"]):
        return 0
    from clicktower.flows.config.pipeline_config import read_pipeline

    return read_pipeline(config, set or ()).drift.exit_code or 0


def _plan(config_file: str, date: str | None, assignments: Sequence[str], json: bool) -> None:
    from clicktower.flows import plan
    from clicktower.flows.config.pipeline_config import read_pipeline
    from clicktower.flows.show.store_results import plan as show_plan

    config = read_pipeline(config_file, assignments)
    console.emit(plan.plan(config, _day(date).isoformat()), json, show_plan)


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
    from clicktower.flows.pipeline import run_here  # Prefect takes seconds to start

    return run_here(config_file, day, until, wait=wait, settings=assignments)


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
