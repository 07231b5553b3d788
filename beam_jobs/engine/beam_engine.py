"""How the jobs run on Beam: the default runner, quietly, with errors that keep their type.

    run_pipeline(lambda pipeline: pipeline | ..., beam_options)

An exception crosses a runner as the text of a traceback. So functions that may raise a StageError on a worker are
decorated with `relay_stage_errors`, which puts the error into the exception's text; `run_pipeline` finds it there.
"""

import base64
import functools
import inspect
import json
import logging
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions, TestOptions, TypeOptions
from apache_beam.runners.runner import PipelineResult, PipelineRunner

from clicktower.beam_jobs.engine.engine_options import runner_name
from clicktower.beam_jobs.engine.engine_start import cancel, flink_job, name_job, started
from clicktower.beam_jobs.engine.forked_workers import ForkedWorkers
from clicktower.schemas.errors import (
    JobGoesOn,
    LaterVersionError,
    LostSight,
    StageError,
    TransientError,
    UnknownVersionError,
    UsageError,
    store_error,
)
from clicktower.schemas.process import asked_to_end_by, keep_folder, kept_path, raise_if_asked_to_end, signals_raising
from clicktower.schemas.stage import Progress, silent

OWN_LOG = "beam.log"
LISTENER_SECONDS = 5.0
_MARK = re.compile(r"clicktower-error:([A-Za-z0-9+/]+=*)")
_ENDED = {
    "FAILED": "The runner reports that the Beam job failed",
    "CANCELLED": "The Beam job was cancelled from the runner's side",
    "DRAINED": "The Beam job was drained from the runner's side",
}
_RAISED = (StageError, UsageError, TransientError, UnknownVersionError, LaterVersionError)  # by workers
_KINDS = {kind.__name__: kind for kind in _RAISED}
Function = TypeVar("Function", bound=Callable[..., Any])


class HandedOver(JobGoesOn):
    """The job was described and left for another program to start: no failure (exit code 0), and no result yet."""

    exit_code = 0


def run_pipeline(
    build: Callable[[beam.Pipeline], None],
    beam_options: Sequence[str],
    *,
    job_name: str = "",
    has_committed: Callable[[], bool] = lambda: False,
    progress: Progress = silent,
    workers: ForkedWorkers | None = None,
) -> None:
    """Run the pipeline that `build` makes to its end.

    If a job with the same `job_name` already runs on the cluster (the client that submitted it was killed), wait for
    it, and submit another one only if it has not committed.

    Without a `--runner` it runs in this process, or in `workers` if the options ask for processes and the caller has
    started them. Raises the StageError that a worker raised, UsageError for options that Beam refuses or a missing
    engine, StageError if the runner ends the job in any other way. If the caller is interrupted (Ctrl-C, SIGTERM) the
    job is cancelled; if it is killed, a job on a cluster goes on.
    """
    name, options = runner_name(beam_options), _options(beam_options)
    name_job(name, options, job_name)

    def is_done() -> bool:
        """Whether the request is committed, once no job of this name runs any more."""
        if same := flink_job(name, options):
            try:
                same.wait(lambda activity: progress(activity, 0, None))
            except (KeyboardInterrupt, SystemExit):  # an interrupt of our own job cancels this one too
                cancel(None, name, options)
                raise
        return has_committed()

    with signals_raising(), engine_log() as log:
        if is_done():
            return
        with started(name, options, log.folder, workers) as runner:
            pipeline = _pipeline(build, runner, options)
            _refuse_dry_run(name, pipeline, options)
            if is_done():  # a killed client's submission may have reached the cluster while the engine started
                return
            try:
                if isinstance(runner, PipelineRunner):  # in this process: `run` returns at the end
                    pipeline.run().wait_until_finish()
                else:
                    _submit_and_wait(pipeline, name, options, log)
            except Exception as error:
                if carried := _find_carried(error):
                    raise carried from None
                raise


def _refuse_dry_run(name: str, pipeline: beam.Pipeline, options: PipelineOptions) -> None:
    """With the option `--dry_run`, translate the job as for running and raise UsageError."""
    if not options.view_as(TestOptions).dry_run:
        return
    if name == "DataflowRunner":
        result: Any = pipeline.run()  # it stops before it talks to Google
        proto = result.job.proto_pipeline
    else:
        proto = pipeline.to_runner_api()
    names = [transform.unique_name for transform in proto.components.transforms.values()]
    steps = dict.fromkeys(name.partition("/")[0] for name in names if name)
    raise UsageError(
        f"With --dry_run the job is only translated: it has {len(names)} transforms for {name}, in the steps"
        f" {', '.join(steps)}. Nothing ran.",
        "Leave out --dry_run to run it.",
    )


def _submit_and_wait(pipeline: beam.Pipeline, name: str, options: PipelineOptions, log: "EngineLog") -> None:
    """Return when the runner reports DONE; cancel the job if this process is interrupted."""
    result: PipelineResult | None = None
    cause: Exception | None = None
    try:
        result = pipeline.run()
        _leave_to_launcher(name, options)
        state = str(result.wait_until_finish())
    except HandedOver:
        raise
    except BaseException as error:
        if asked_to_end_by() or not isinstance(error, Exception):  # Beam may make an error of an interrupt
            cancel(result, name, options)
            raise_if_asked_to_end()
            raise
        cause, state = error, _last_state(result)  # RuntimeError, with the runner's text, for any end but DONE
    if state == "DONE":
        return
    if carried := _find_carried(cause):
        raise carried from None
    where = log.keep_if_engines_wrote()
    kept = f" (the engine's output, which may quote data, is in {where})" if where else ""
    on_flink = flink_job(name, options)
    if state not in _ENDED:
        if result is None and cause and not isinstance(cause, grpc.RpcError):  # not submitted: not the engine's fault
            raise cause
        if on_flink:
            raise LostSight(
                f"The Beam job cannot be followed any more; its last known state: {state}. If it reached the cluster,"
                " it goes on and commits its result.",
                f"Run the same command again, which waits for it{kept}.",
            )
        cancel(result, name, options)
    if on_flink and on_flink.was_cancelled():  # Beam cannot tell this from a failure
        state = "CANCELLED"
    ended = _ENDED.get(state, f"The Beam job cannot be followed any more; its last known state: {state}")
    kind = StageError if state == "CANCELLED" else TransientError  # a user who cancelled it does not want a retry
    raise kind(f"{ended}. Nothing was committed.", f"Run the same command again{kept}.")


def _leave_to_launcher(name: str, options: PipelineOptions) -> None:
    """If Dataflow's template launcher requested the job, its description is written: raise HandedOver."""
    if name == "DataflowRunner" and options.view_as(GoogleCloudOptions).template_location:
        raise HandedOver(
            "The job is written down for Dataflow's template launcher (--template_location) and starts after this"
            " command has ended. Its last step writes the manifest; the same command on any machine then answers"
            " 'reused'.",
            "Follow the job on Dataflow's own page.",
        )


def _last_state(result: PipelineResult | None) -> str:
    try:
        return str(result.state) if result else "not submitted"
    except Exception:  # the server is gone
        return "submitted"


def _pipeline(
    build: Callable[[beam.Pipeline], None], runner: PipelineRunner | str, options: PipelineOptions
) -> beam.Pipeline:
    try:
        pipeline = beam.Pipeline(runner=runner, options=options)
    except (ValueError, ImportError) as error:  # missing options or packages of this runner
        raise UsageError(
            f"Beam does not start the job with --runner={runner}: {' '.join(str(error).split())}",
            "See docs/running.md, and the options of your runner in Beam's documentation.",
        ) from None
    build(pipeline)
    return pipeline


def _options(beam_options: Sequence[str]) -> PipelineOptions:
    try:
        options = PipelineOptions(flags=list(beam_options))
        options.get_all_options()  # makes Beam check every option now
    except SystemExit:  # argparse has printed what it did not like
        raise UsageError(
            f"Beam refuses one of the options {' '.join(beam_options)}.",
            "See the line above, and the options of your runner in Beam's documentation.",
        ) from None
    if not options.view_as(TestOptions).dry_run:  # it checks them, as the tests of the graphs do: half a second
        options.view_as(TypeOptions).pipeline_type_check = False
    return options


class CarriedError(Exception):
    """A StageError on its way through a runner, as text that survives being quoted in a traceback."""


def relay_stage_errors(function: Function) -> Function:
    """Decorates a function (or generator function) so that its StageErrors reach the caller of `run_pipeline`."""
    if not inspect.isgeneratorfunction(function):
        return _relaying_stage_errors()(function)

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Iterator[Any]:
        with _relaying_stage_errors():
            yield from function(*args, **kwargs)

    return wrapped  # type: ignore[return-value]


@contextmanager
def _relaying_stage_errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        stage_error = error if isinstance(error, StageError) else store_error(error)
        if not stage_error:
            raise
        facts = [type(stage_error).__name__, stage_error.problem, stage_error.fix]
        text = base64.b64encode(json.dumps(facts).encode()).decode()
        raise CarriedError(f"clicktower-error:{text}") from None


def _find_carried(error: BaseException | None) -> StageError | None:
    while error is not None:
        if isinstance(error, StageError):
            return error
        if match := _MARK.search(str(error)):
            kind, problem, fix = json.loads(base64.b64decode(match[1]))
            return _KINDS.get(kind, StageError)(problem, fix)
        error = error.__cause__ or error.__context__
    return None


class EngineLog:
    """The folder where Beam and the engines write their logs while a job runs. It is private, since a traceback may
    quote data, and is removed with the job unless it is kept.
    """

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="engine-")
        self.keep = False

    def keep_if_engines_wrote(self) -> str:
        """Keep the folder if another process wrote into it; returns its path, or None."""
        engine_logs = (name for name in os.listdir(self.folder) if name.endswith(".log") and name != OWN_LOG)
        self.keep = any(os.path.getsize(os.path.join(self.folder, name)) for name in engine_logs)
        return kept_path(self.folder) if self.keep else ""


@contextmanager
def engine_log() -> Iterator[EngineLog]:
    """A log folder for one job; nothing goes to the terminal, since errors arrive as exceptions.

    If an unexpected exception leaves the block, the log is kept and the exception names it. Beam logs to its own
    loggers, to the root logger (what a runner reports) and to one for each server, and logs each exception with its
    traceback at every level.
    """
    log = EngineLog()
    handler = logging.FileHandler(os.path.join(log.folder, OWN_LOG), delay=True, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    handlers, root.handlers = root.handlers, [handler]
    hook, threading.excepthook = threading.excepthook, _log_failed_thread
    try:
        yield log
    except Exception as error:
        if not isinstance(error, StageError) and (where := log.keep_if_engines_wrote()):
            error.add_note(f"What the engine said is in {where}.")
        raise
    finally:
        for thread in threading.enumerate():
            if thread.name.startswith("wait_until_finish"):
                thread.join(LISTENER_SECONDS)
        threading.excepthook, root.handlers = hook, handlers
        handler.close()
        if log.keep:
            keep_folder(log.folder)
        else:
            shutil.rmtree(log.folder, ignore_errors=True)


def _log_failed_thread(arguments: threading.ExceptHookArgs) -> None:
    """Log the failure of Beam's threads, which listen to a server and fail when it ends."""
    logging.getLogger(__name__).warning("%s in thread %s", arguments.exc_type.__name__, arguments.thread)
