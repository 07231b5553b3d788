"""Run the flow on this machine, with whatever Prefect is set up here, or with one that lives as long as the run."""

import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from beam_jobs.windows import parse_date
from flows.console import errors
from flows.pipeline_config import read_pipeline

# For a run typed by a person: their terminal shows the stages, not Prefect's log, and nobody is told about it.
QUIET = {
    "PREFECT_LOGGING_LEVEL": "CRITICAL",  # a failed stage is told once, by us, without a traceback
    "PREFECT_LOGGING_TO_API_ENABLED": "false",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "true",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "PREFECT_CLI_COLORS": "false",
    "DO_NOT_TRACK": "1",
}


def run_locally(config_file: str, date: str | None = None, until: str = "report") -> dict:
    """The JSON result of every stage, or of the ingest alone (`until`). Raises StageError: a stage's own."""
    read_pipeline(config_file)  # a typing error is told before Prefect, which takes seconds to start, is asked
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)

    if "prefect" not in sys.modules:
        errors.print("[dim]starting Prefect (embedded, unless PREFECT_API_URL names a server)[/]")
    from flows.pipeline import pipeline

    yesterday = (datetime.now(UTC) - timedelta(days=1)).date().isoformat()
    day = parse_date(date or yesterday, f"{config_file} was to be run for a date")
    state = pipeline(config=str(Path(config_file).resolve()), data_date=day, until=until, return_state=True)
    return _result_of(state)


def _result_of(state) -> dict:
    """What the flow returned; its stage's own error if it failed, without Prefect's wrapping."""
    result = state.result(raise_on_failure=False)
    if isinstance(result, BaseException):
        raise result
    return result
