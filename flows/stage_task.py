"""A stage as a Prefect task: tried again where that can help, and ended by a sentence instead of a traceback.

    ingest = stage_task(stages.ingest)
    day = ingest(config, date)          # its JSON result, or its StageError

Under a deployment the stage's progress goes to the run's log. A run typed by a person shows it in the terminal, and
tries nothing again: whoever sees the error decides.
"""

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

from prefect import get_run_logger, runtime, task
from prefect.client.schemas.objects import State
from prefect.states import Failed

from flows.pipeline_config import PipelineConfig
from flows.submit import told_to
from schemas.errors import StageError, TransientError


def stage_task(run: Callable[..., Any]) -> Callable[..., Any]:
    """A task that calls `run(config, ...)`. Raises the StageError that it raised last."""

    @task(name=run.__name__)
    @wraps(run)
    def one_try(*arguments: Any) -> Any:
        try:
            with told_to(get_run_logger().info if is_deployed() else None):
                return run(*arguments)
        except StageError as error:
            return failed(error)

    @wraps(run)
    def until_it_passes(config: PipelineConfig, *arguments: Any) -> Any:
        retries = config.limits.retries if is_deployed() else 0

        def try_again(_task: Any, task_run: Any, state: State) -> bool:
            return isinstance(state.data, TransientError) and task_run.run_count <= retries

        # Where a task has no retries left Prefect logs the trace of an exception that there is not: it has one more.
        tried = one_try.with_options(
            retries=retries + 1, retry_delay_seconds=config.limits.retry_seconds, retry_condition_fn=try_again
        )
        return tried(config, *arguments, return_state=True).result()

    return until_it_passes


def failed(error: StageError) -> State:
    """The state of a task or run that ends with this error. Its message is what the run's page says."""
    logging.getLogger("prefect.flow_runs").addFilter(_is_untold)
    return Failed(message=str(error), data=error)


def _is_untold(record: logging.LogRecord) -> bool:
    """Prefect raises the error of a failed run once more as the run's process ends, and logs its trace on the page."""
    return not (record.exc_info and isinstance(record.exc_info[1], StageError))


def is_deployed() -> bool:
    """Whether this run is one of a deployment, and not one typed by a person."""
    return bool(runtime.deployment.id)
