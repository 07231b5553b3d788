"""The chain of stages, run by hand: in the terminal of a person, or as a flow where a Prefect server is set up."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from beam_jobs.ingest.windows import parse_date
from flows.chain import run
from flows.config.pipeline_config import read_pipeline
from flows.config.settings import Surroundings
from schemas.signals import sigterm_as_exit


def run_locally(config_file: str, date: str | None = None, until: str = "report") -> dict:
    """The JSON result of every stage, or of the ingest alone (`until`). Raises StageError: a stage's own."""
    config = read_pipeline(config_file)
    yesterday = (datetime.now(UTC) - timedelta(days=1)).date().isoformat()
    day = parse_date(date or yesterday, f"{config_file} was to be run for a date")
    if not _prefect_is_set_up():
        with sigterm_as_exit():
            return run(config, day.isoformat(), until)
    # A person's terminal shows the stages, not Prefect's log; a failed stage is told once, by us, without a traceback.
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")
    os.environ.setdefault("PREFECT_LOGGING_TO_API_ENABLED", "false")
    from flows.pipeline import pipeline  # Prefect takes seconds to start

    state: Any = pipeline(config=str(Path(config_file).resolve()), data_date=day, until=until, return_state=True)
    result = state.result(raise_on_failure=False)
    if isinstance(result, BaseException):  # a stage's own, without Prefect's wrapping
        raise result
    return result


def _prefect_is_set_up() -> bool:
    """Whether a server is named by the environment or by the person's profile, as Prefect itself would find it."""
    around = Surroundings()
    if around.prefect_api_url:
        return True
    profiles = Path(around.prefect_home or Path.home() / ".prefect") / "profiles.toml"
    return profiles.is_file() and "PREFECT_API_URL" in profiles.read_text(encoding="utf-8", errors="replace")
