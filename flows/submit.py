"""Run a stage as a process and return its result: the flow's process does no heavy work.

A command is the interface, with its options as one JSON object: it prints another, and progress goes to stderr.

- A stage that is cancelled, or takes too long, ends with all that it started: SIGTERM comes first, so that it can
  cancel its job on an engine, then SIGKILL.
- A flow whose own process is killed (kill -9, the machine's memory) leaves its stage running. Nothing is lost by that:
  the next one to ask for the same waits for it (schemas.stage) and takes its result. What a stage prints goes to files
  and not through a pipe, so that it does not notice.
"""

import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from contextvars import ContextVar
from dataclasses import asdict
from typing import IO, Any

from clicktower.flows.config.commands import OPTIONS, call_command
from clicktower.schemas import errors
from clicktower.schemas.errors import StageError, TransientError
from clicktower.schemas.process import end_session

TERM_SECONDS = 20.0  # Prefect's worker gives the flow 30 before it kills it
LOOK_SECONDS = 0.5

Listener = Callable[[str], None]
# The listener of the stages' progress. None: it goes to this process's own stderr.
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
    command = [sys.executable, "-m", "clicktower.flows.cli", stage, "--json", OPTIONS, _to_json(options)]
    with tempfile.TemporaryFile("w+") as output, _Progress(stage, _listener.get()) as progress:
        process = None
        try:
            process = subprocess.Popen(command, stdout=output, stderr=progress.target, start_new_session=True)
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


def planned_result(stage: str, options: Mapping[str, Any]) -> dict:
    """The JSON result of a command within schemas.stage.planning: in this process, since it does no work.

    Raises WouldRun, and what the command raises.
    """
    with redirect_stdout(io.StringIO()) as output:
        call_command(stage, _to_json(options))
    return json.loads(output.getvalue())


def _to_json(options: Mapping[str, Any]) -> str:
    return json.dumps({**options, "json": True}, default=asdict)


class _Progress:
    """The stderr of a stage, relayed to a listener: lines that begin with the stage's name; others stay in ours."""

    def __init__(self, stage: str, listener: Listener | None) -> None:
        self._start, self._listener = f"{stage}: ", listener
        self.target: IO[bytes] | None = None  # None: this process's own
        self._relayed_bytes = 0

    def __enter__(self) -> "_Progress":
        if self._listener:
            self.target = tempfile.TemporaryFile()
        return self

    def __exit__(self, *_: object) -> None:
        self.relay()
        if self.target:
            self.target.close()

    def relay(self) -> None:
        """Pass on the whole lines printed since the last time."""
        if not self.target or not self._listener:
            return
        file = self.target.fileno()
        printed = os.pread(file, os.fstat(file).st_size - self._relayed_bytes, self._relayed_bytes)
        lines = printed[: printed.rfind(b"\n") + 1]
        self._relayed_bytes += len(lines)
        for line in lines.decode(errors="replace").splitlines(keepends=True):
            if line.startswith(self._start):
                self._listener(line.rstrip())
            else:
                sys.stderr.write(line)


def _wait(process: subprocess.Popen, progress: _Progress, timeout_seconds: float | None) -> bool:
    """Whether the process ended in time."""
    until = time.monotonic() + timeout_seconds if timeout_seconds else None
    while until is None or time.monotonic() < until:
        with suppress(subprocess.TimeoutExpired):
            process.wait(LOOK_SECONDS)
            return True
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
    with _sigterm_ignored():
        end_session(process, TERM_SECONDS)


@contextmanager
def _sigterm_ignored() -> Iterator[None]:
    """A second cancellation must not stop us from ending the stage."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
