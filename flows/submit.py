"""Run a stage as a process and return its result: the flow's process does no heavy work.

A command is the interface: it reads its options as one JSON object and prints another, and progress goes to stderr.

- A stage that is cancelled, or takes too long, ends with all that it started: SIGTERM comes first, so that it can
  cancel its job on an engine, then SIGKILL.
- A flow whose own process is killed (kill -9, the machine's memory) leaves its stage running. Nothing is lost by that:
  the next one to ask for the same waits for it (schemas.stage) and takes its result. What a stage prints goes to files
  and not through a pipe, so that it does not notice.
"""

import json
import math
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import asdict
from typing import Any

from clicktower.flows.config.commands import OPTIONS
from clicktower.schemas import errors
from clicktower.schemas.errors import StageError, TransientError
from clicktower.schemas.process import end_session, keeping_signal_handlers

TERM_SECONDS = 20.0  # Prefect's worker gives the flow 30 before it kills it
LOOK_SECONDS = 0.5

Listener = Callable[[str], None]
# The listener of the stages' progress (progress_relay). None: it goes to this process's own stderr.
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def progress_to(listener: Listener | None) -> Iterator[None]:
    """Send the progress of stages to `listener`, a line at a time."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def send_progress(line: str) -> None:
    """Send a line to the listener of the stages' progress, if there is one."""
    if listener := _listener.get():
        listener(line)


def run_stage_command(stage: str, options: Mapping[str, Any], *, timeout_seconds: float | None = None) -> dict:
    """The JSON result of a command with options by name.

    Raises the stage's own error, rebuilt here; TransientError where a signal ended it, StageError where it took longer
    than `timeout_seconds`.
    """
    command = [sys.executable, "-m", "clicktower.flows.cli", stage, "--json", OPTIONS]
    relay: AbstractContextManager[Any] = nullcontext()
    if listener := _listener.get():
        from clicktower.flows.progress_relay import ProgressRelay

        relay = ProgressRelay(stage, listener)
    with tempfile.TemporaryFile("w+") as request, tempfile.TemporaryFile("w+") as output, relay as progress:
        request.write(options_json(options))  # an argument may be too long for the system, or be read by others
        request.seek(0)
        process = None
        try:
            target = progress.target if progress else None
            process = subprocess.Popen(command, stdin=request, stdout=output, stderr=target, start_new_session=True)
            in_time = _wait(process, progress, timeout_seconds)
        except BaseException:  # cancelled or interrupted: end the process started here
            if process:
                _end(process)
            raise
        if not in_time:
            _end(process)
            raise StageError(
                f"Stage {stage} timed out after {(timeout_seconds or 0.0) / 60:,.4g} minutes."
                " Its finished parts are kept: the same command continues from there.",
                f"Find out why it is slow, or raise {stage} in [limits.timeout_minutes] of the TOML file.",
            )
        output.seek(0)
        return _result(stage, output.read(), process.returncode)


def options_json(options: Mapping[str, Any]) -> str:
    """The options of a command by name, as another process reads them."""
    return json.dumps({**options, "json": True}, default=asdict)


def _wait(process: subprocess.Popen, progress: Any, timeout_seconds: float | None) -> bool:
    """Whether the process ended in time."""
    until = time.monotonic() + (timeout_seconds or math.inf)
    while time.monotonic() < until:
        with suppress(subprocess.TimeoutExpired):
            process.wait(LOOK_SECONDS)
            return True
        if progress:
            progress.relay()
    return False


def _result(stage: str, output: str, returncode: int) -> dict:
    try:
        value = json.loads(output)
    except ValueError:
        value = {}
    if returncode == 0 and value:
        return value
    if facts := value.get("error"):
        raise getattr(errors, facts.pop("kind", ""), StageError)(**facts)
    number = -returncode if returncode < 0 else returncode - 128  # as a shell reports a signal
    by_signal = number in set(signal.Signals)
    ended = (
        f"was ended by {signal.Signals(number).name}" if by_signal else f"ended with code {returncode} and no result"
    )
    raise TransientError(
        f"The process of the stage {stage} {ended}. Its finished parts are kept: the same command continues from"
        " there.",
        "Read its last output above; if it was killed, look for too little memory.",
    )


def _end(process: subprocess.Popen) -> None:
    with keeping_signal_handlers():
        if threading.current_thread() is threading.main_thread():
            signal.signal(
                signal.SIGTERM, signal.SIG_IGN
            )  # a second cancellation must not stop us from ending the stage
        end_session(process, TERM_SECONDS)
