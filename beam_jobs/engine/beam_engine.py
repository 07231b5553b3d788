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
from pkgutil import resolve_name
from typing import Any, TypeVar

import apache_beam as beam
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, TestOptions, TypeOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.runner import PipelineRunner

from clicktower.beam_jobs.engine.engine_options import runner_name
from clicktower.schemas.errors import LaterVersionError, StageError, TransientError, UnknownVersionError, UsageError
from clicktower.schemas.process import keep_folder, kept_path, signals_raising
from clicktower.schemas.stage import Progress, silent

OWN_LOG = "beam.log"
LISTENER_SECONDS = 5.0
_MARK = re.compile(r"clicktower-error:([A-Za-z0-9+/]+=*)")
_RAISED = (StageError, UsageError, TransientError, UnknownVersionError, LaterVersionError)  # by workers
_KINDS = {kind.__name__: kind for kind in _RAISED}
_STORE_ERROR = "clicktower.schemas.object_store:store_error"
Function = TypeVar("Function", bound=Callable[..., Any])


def run_pipeline(
    build: Callable[[beam.Pipeline], None],
    beam_options: Sequence[str],
    *,
    job_name: str = "",
    has_committed: Callable[[], bool] = lambda: False,
    progress: Progress = silent,
    workers: Any = None,
) -> None:
    """Run the pipeline that `build` makes to its end.

    If a job with the same `job_name` already runs on the cluster (the client that submitted it was killed), wait for
    it, and submit another one only if it has not committed.

    Without a `--runner` it runs in this process, or in `workers` if the options ask for processes and the caller has
    started them. Raises the StageError that a worker raised, UsageError for options that Beam refuses or a missing
    engine, StageError if the runner ends the job in any other way. If the caller is interrupted (Ctrl-C, SIGTERM) the
    job is cancelled; if it is killed, a job on a cluster goes on.
    """
    name, options = runner_name(beam_options), options_of(beam_options)
    is_here = name == "FnApiRunner" and options.view_as(DirectOptions).direct_running_mode != "multi_processing"
    with signals_raising(), engine_log() as log:
        try:
            if not is_here or options.view_as(TestOptions).dry_run:
                run_on_engine = resolve_name("clicktower.beam_jobs.engine.engine_start:run_on_engine")
                run_on_engine(build, name, options, log, job_name, has_committed, progress, workers)
            elif not has_committed():
                new_pipeline(build, FnApiRunner(), options).run().wait_until_finish()
        except Exception as error:
            if carried := find_carried(error):
                raise carried from None
            raise


def new_pipeline(
    build: Callable[[beam.Pipeline], None], runner: PipelineRunner | str, options: PipelineOptions
) -> beam.Pipeline:
    """The pipeline that `build` makes. Raises UsageError for options or packages that its runner lacks."""
    try:
        pipeline = beam.Pipeline(runner=runner, options=options)
    except (ValueError, ImportError) as error:  # missing options or packages of this runner
        raise UsageError(
            f"Beam does not start the job with --runner={runner}: {' '.join(str(error).split())}",
            "See docs/running.md, and the options of your runner in Beam's documentation.",
        ) from None
    build(pipeline)
    return pipeline


def options_of(beam_options: Sequence[str]) -> PipelineOptions:
    """Beam's options. Raises UsageError for one that Beam refuses."""
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
        stage_error = error if isinstance(error, StageError) else resolve_name(_STORE_ERROR)(error)
        if not stage_error:
            raise
        facts = [type(stage_error).__name__, stage_error.problem, stage_error.fix]
        text = base64.b64encode(json.dumps(facts).encode()).decode()
        raise CarriedError(f"clicktower-error:{text}") from None


def find_carried(error: BaseException | None) -> StageError | None:
    """The StageError that an exception of a runner carries, or is."""
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
