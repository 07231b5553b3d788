"""Run a date as the nightly deployment of a Prefect server: on its worker, with its limits, on its pages."""

from pathlib import Path
from typing import Any

from flows.config.settings import Surroundings
from schemas.errors import StageError, UsageError

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
