"""The chain of stages as a Prefect flow: it retries tasks, and its page shows the result of each.

Prefect decides when and where.
"""

import datetime
import hashlib
import logging
import os
import re
import select
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import wraps
from pathlib import Path
from typing import Any, Literal, NoReturn

import httpx
from prefect import flow, get_run_logger, runtime, task
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.concurrency.asyncio import ConcurrencySlotAcquisitionError
from prefect.concurrency.sync import concurrency
from prefect.context import FlowRunContext
from prefect.events import emit_event
from prefect.exceptions import ObjectAlreadyExists, Pause
from prefect.settings import get_current_settings
from prefect.states import AwaitingRetry, Failed

from clicktower.flows import artifacts, chain
from clicktower.flows.config.pipeline_config import LateLog, PipelineConfig, read_pipeline
from clicktower.flows.show.failures import explain
from clicktower.flows.submit import progress_to, send_progress
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, TransientError

LEASE_SECONDS = 60.0  # the slot of a killed holder is free again after this; Prefect's minimum
SERVER_SECONDS = 600.0  # a longer outage of the server ends the run
LOOK_SECONDS = 2.0


def emit_end(flow: Any, flow_run: Any, state: State) -> None:
    """Emit the event that a run has ended; it follows no other event (deploy/lost-runs.yaml says why)."""
    role = {"prefect.resource.role": "flow", "prefect.resource.name": flow.name}
    emit_event(
        "clicktower.run.ended",
        resource={"prefect.resource.id": f"prefect.flow-run.{flow_run.id}"},
        related=[role | {"prefect.resource.id": f"prefect.flow.{flow_run.flow_id}"}],
    )


@flow(name="clicktower", log_prints=False, on_completion=[emit_end], on_failure=[emit_end])
def pipeline(
    config: str,
    data_date: datetime.date | None = None,
    until: Literal["ingest", "report"] = "report",
    wait: bool = True,
    settings: list[str] | None = None,
) -> Any:
    """Run the pipeline that a TOML file describes, for one date of data.

    Returns the JSON result of each stage by name. A stage that fails ends the run with its error as the state.

    Args:
        config: Path of a pipeline.toml, as the machine that runs the flow sees it.
        data_date: The day of the log to ingest. Empty: the day before the scheduled time, so that a run that is late
            still takes its own day.
        until: ingest: only read the day into the store, as a backfill does with all days but the last.
        wait: Wait for a log that is late, as long as [log] wait_minutes says.
        settings: section.field=value in place of the file's, one a line.
    """
    pipeline_config = None
    if is_deployed():
        survive_worker()
    try:
        pipeline_config = read_pipeline(config, settings or ())
        date = data_date.isoformat() if data_date else _day_before_schedule()
        return chain.run(pipeline_config, date, until, wait=wait and not is_deployed(), step=step, page=artifacts)
    except LateLog as error:
        assert pipeline_config
        if wait and is_deployed() and _minutes_late() < pipeline_config.log.wait_minutes:
            put_off(error, pipeline_config.limits.retry_seconds)
        artifacts.show_failure(pipeline_config, error)
        return failed_state(error)
    except StageError as error:
        artifacts.show_failure(pipeline_config, error)
        return failed_state(error)
    except Exception as error:
        artifacts.show_failure(pipeline_config, explain(error))
        raise


def run_here(config: str, day: datetime.date, until: str, *, wait: bool, settings: Sequence[str]) -> dict:
    """The results of the flow in this process, for a person. Raises StageError: a stage's own."""
    parameters = {"config": str(Path(config).resolve()), "data_date": day, "until": until, "wait": wait}
    state: Any = pipeline(**parameters, settings=[*settings], return_state=True)
    result = state.result(raise_on_failure=False)
    if isinstance(result, BaseException):  # a stage's own, without Prefect's wrapping
        raise result
    return result


def is_deployed() -> bool:
    """Whether this run belongs to a deployment, and was not started by hand."""
    return bool(runtime.deployment.id)


def _day_before_schedule() -> str:
    scheduled = runtime.flow_run.scheduled_start_time or datetime.datetime.now(datetime.UTC)
    return (scheduled - datetime.timedelta(days=1)).date().isoformat()


def _minutes_late() -> float:
    due = runtime.flow_run.scheduled_start_time
    return (datetime.datetime.now(datetime.UTC) - due).total_seconds() / 60


def put_off(error: StageError, seconds: float) -> NoReturn:
    """End this process, and let a worker take the run up again after some seconds. Until then it has no place in the
    pool. Raises Pause.
    """
    context = FlowRunContext.get()
    run = context and context.flow_run
    assert run
    state: State = AwaitingRetry(
        scheduled_time=datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds),
        message=f"{error.problem} The run looks again in {seconds:,.0f} s.",
    )
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(run.id, state, force=True)
    emit_end(pipeline, run, state)  # it has not ended, but from here on it gives no sign of life
    raise Pause(state.message, state=state)


def step(stage: chain.Stage) -> chain.Stage:
    """A stage of the chain as a Prefect task: its JSON result, or the StageError that it raised last.

    Under a deployment the stage's progress goes to the run's log, and a stage that may succeed later is retried. A run
    started by hand shows its progress in the terminal and retries nothing: the person who sees the error decides.
    """

    @task(name=stage.__name__)
    @wraps(stage)
    def attempt(config: PipelineConfig, *arguments: Any) -> Any:
        try:
            with (
                progress_to(get_run_logger().info) if is_deployed() else nullcontext(),
                pointer_slot(config.publish.to) if stage is chain.publish else nullcontext(),
            ):
                return stage(config, *arguments)
        except StageError as error:
            return failed_state(error)

    def until_it_passes(config: PipelineConfig, *arguments: Any) -> Any:
        retries = config.limits.retries if is_deployed() else 0

        def should_retry(_task: Any, task_run: Any, state: State) -> bool:
            return isinstance(state.data, TransientError) and task_run.run_count <= retries

        # Prefect logs a meaningless trace for a task without retries left: it has one more.
        tried = attempt.with_options(
            retries=retries + 1, retry_delay_seconds=config.limits.retry_seconds, retry_condition_fn=should_retry
        )
        return tried(config, *arguments, return_state=True).result()

    return until_it_passes


def failed_state(error: StageError) -> State:
    """The state of a task or run that fails with this error. The run's page shows its message."""
    logging.getLogger("prefect.flow_runs").addFilter(_is_no_stage_error)
    return Failed(message=str(error), data=error)


def _is_no_stage_error(record: logging.LogRecord) -> bool:
    """Prefect raises the error of a failed run again as the run's process ends, and logs its trace on the page."""
    return not (record.exc_info and isinstance(record.exc_info[1], StageError))


@contextmanager
def pointer_slot(uri: str) -> Iterator[None]:
    """Hold the slot of a release URI, of which the Prefect server that is set up here gives one; waits for it.

    The pointer itself is swapped by compare-and-swap: without the slot, the second of two publishers would do its work
    in vain. The slot covers all runs of one server. Without a server there is nothing to share, and a server that
    restarts ends no run: the run waits for it before the release, and does not need it after.
    """
    if not get_current_settings().api.url:
        yield
        return
    name = slot_name(uri)
    send_progress(f"publish: takes the slot {name}, and waits where another run has it")
    slot = _acquired(name)
    try:
        yield
    finally:
        with suppress(httpx.TransportError):  # the lease ends by itself
            slot.close()


def _acquired(name: str) -> ExitStack:
    """The slot, which the caller closes. A Prefect client waits for a server that it has reached before, so these are
    new.
    """
    until = time.monotonic() + SERVER_SECONDS
    while True:
        try:
            with get_client(sync_client=True) as client, suppress(ObjectAlreadyExists):
                client.upsert_global_concurrency_limit_by_name(name, 1)  # a missing one would limit nothing
            with ExitStack() as slot:
                slot.enter_context(
                    concurrency(name, lease_duration=LEASE_SECONDS, strict=True, raise_on_lease_renewal_failure=False)
                )
                return slot.pop_all()
        except (httpx.TransportError, ConcurrencySlotAcquisitionError) as error:
            away = isinstance(error, httpx.TransportError) or isinstance(error.__cause__, httpx.TransportError)
            if not away or time.monotonic() > until:
                raise
            time.sleep(LOOK_SECONDS)


def slot_name(uri: str) -> str:
    """The name of a URI's limit: readable, and without characters that Prefect refuses."""
    where = storage.absolute(uri).rstrip("/")
    readable = "-".join(re.findall(r"[\w.]+", where)[-2:])
    return f"clicktower-pointer-{readable}-{hashlib.sha256(where.encode()).hexdigest()[:8]}"


def survive_worker() -> None:
    """Let this process go on when the worker that reads its output is killed.

    Otherwise the next line that any library prints would end this process.
    """
    readers = select.poll()
    for stream in (sys.stdout, sys.stderr):
        readers.register(stream.fileno(), 0)  # poll always reports an error: the pipe has no reader

    def watch() -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        while True:
            for stream, _ in readers.poll():
                os.dup2(nowhere, stream)

    threading.Thread(target=watch, daemon=True).start()
