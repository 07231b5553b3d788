"""How both jobs run on Beam: the default runner, quiet, with errors that arrive as what they were.

    run_pipeline(lambda pipeline: pipeline | ..., beam_options)

An exception crosses a runner as the text of a traceback. Functions that may raise a StageError on a worker are
therefore decorated with `carries_errors`: it puts the error into the exception's text, where `run_pipeline` finds it
again.
"""

import base64
import functools
import inspect
import json
import logging
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import apache_beam as beam
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.runner import PipelineRunner
from apache_beam.transforms.environments import SubprocessSDKEnvironment

from schemas.errors import StageError, UnknownVersionError, UsageError

_MARK = re.compile(r"clicktower-error:([A-Za-z0-9+/]+=*)")
_KINDS = {kind.__name__: kind for kind in (StageError, UsageError, UnknownVersionError)}
Function = TypeVar("Function", bound=Callable[..., Any])


class CarriedError(Exception):
    """A StageError on its way through a runner, as text that survives being quoted in a traceback."""


def carries_errors(function: Function) -> Function:
    """The function (or generator function), whose StageErrors reach the caller of `run_pipeline`."""
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Iterator[Any]:
            try:
                yield from function(*args, **kwargs)
            except StageError as error:
                raise _carried(error) from None
    else:

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except StageError as error:
                raise _carried(error) from None

    return wrapped  # type: ignore[return-value]


def run_pipeline(build: Callable[[beam.Pipeline], None], beam_options: Sequence[str]) -> None:
    """Nothing, when the pipeline that `build` makes has run to its end.

    Without a `--runner` it runs in this process (FnApiRunner in memory; Beam's own default first tries to download
    another runner). Raises the StageError that a worker raised, UsageError for options Beam refuses, StageError where
    the runner reports another end than DONE.
    """
    options = _options(beam_options)
    with _quiet(), _worker_log() as worker_log:
        pipeline = beam.Pipeline(runner=_runner(options, worker_log), options=options)
        build(pipeline)
        try:
            result = pipeline.run()
            state = str(result.wait_until_finish() or getattr(result, "state", "DONE"))
        except Exception as error:
            carried = _find_carried(error)
            if carried is not None:
                raise carried from None
            raise
    if state != "DONE":
        raise StageError(
            asked="the Beam job was to run to its end",
            found=f"the runner reports {state}",
            follows="nothing was committed",
            do="look at the runner's own logs, then run the same command again",
        )


def _options(beam_options: Sequence[str]) -> PipelineOptions:
    try:
        options = PipelineOptions(flags=list(beam_options))
        options.get_all_options()  # makes Beam look at every option now
    except SystemExit:  # argparse has printed what it did not like
        raise UsageError(
            asked=f"Beam was to run with the options {' '.join(beam_options)}",
            found="Beam refuses one of them",
            do="see the line above, and the options of your runner in Beam's documentation",
        ) from None
    return options


def _runner(options: PipelineOptions, worker_log: str) -> PipelineRunner | str:
    name = options.view_as(StandardOptions).runner or "FnApiRunner"
    direct = options.view_as(DirectOptions)
    if name != "FnApiRunner" or direct.direct_running_mode != "multi_processing":
        return name
    # What Beam would start itself, but for the log: its worker processes write every message and traceback to the
    # terminal they were started from.
    direct.direct_running_mode = "in_memory"
    command = (
        f"{shlex.quote(sys.executable)} -m apache_beam.runners.worker.sdk_worker_main 2>>{shlex.quote(worker_log)}"
    )
    return FnApiRunner(default_environment=SubprocessSDKEnvironment.from_command_string(command))


@contextmanager
def _worker_log() -> Iterator[str]:
    """A file for what worker processes say; it is kept, and named in the exception, where they fail unexpectedly."""
    folder = tempfile.mkdtemp(prefix="clicktower-workers-")
    try:
        yield os.path.join(folder, "stderr.log")
    except Exception as error:
        if not isinstance(error, StageError) and os.listdir(folder):
            error.add_note(f"The worker processes' own messages are in {folder}.")
            raise
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)


def _carried(error: StageError) -> CarriedError:
    facts = [type(error).__name__, error.asked, error.found, error.do, error.follows]
    return CarriedError("clicktower-error:" + base64.b64encode(json.dumps(facts).encode()).decode())


def _find_carried(error: BaseException | None) -> StageError | None:
    while error is not None:
        if isinstance(error, StageError):
            return error
        if found := _MARK.search(str(error)):
            kind, asked, found_, do, follows = json.loads(base64.b64decode(found[1]))
            return _KINDS.get(kind, StageError)(asked=asked, found=found_, do=do, follows=follows)
        error = error.__cause__ or error.__context__
    return None


@contextmanager
def _quiet() -> Iterator[None]:
    """Beam logs each exception with its traceback at every level it passes; what matters arrives as an exception."""
    logger = logging.getLogger("apache_beam")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
