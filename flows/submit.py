"""Run a stage as a process of its own and take its result: the flow's process holds no heavy work.

The command line is the interface: `clicktower STAGE ... --json` prints one JSON object, progress goes to stderr.
A stage that is cancelled takes its whole process group with it. A stage that was finished before answers "reused",
so that a retry or a restarted worker never does the work twice.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence

from schemas.errors import StageError, UsageError

TERM_SECONDS = 20.0


def run_stage_command(arguments: Sequence[str]) -> dict:
    """The JSON result of `clicktower ARGUMENTS --json`. Raises the stage's own StageError, rebuilt here."""
    before, marker, engine = _split(list(arguments))
    command = [sys.executable, "-m", "flows.cli", *before, "--json", *marker, *engine]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        output, _ = process.communicate()
    except BaseException:  # cancelled or interrupted: what was started here ends here
        _end(process)
        raise
    return _result(arguments[0], output, process.returncode)


def _result(stage: str, output: str, returncode: int) -> dict:
    try:
        value = json.loads(output)
    except ValueError:
        value = {}
    if returncode == 0 and value:
        return value
    if facts := value.get("error"):
        raise (UsageError if returncode == 2 else StageError)(**facts)
    ended = f"signal {-returncode} ended it" if returncode < 0 else f"it ended with code {returncode} and no result"
    raise StageError(
        asked=f"the stage {stage} was run as a process of its own",
        found=ended,
        follows="its finished parts are kept: the same command goes on from there",
        do="read what it printed above; if it was killed, look for too little memory",
    )


def _end(process: subprocess.Popen) -> None:
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
            process.wait(TERM_SECONDS)
            return
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def _split(arguments: list[str]) -> tuple[list[str], list[str], list[str]]:
    if "--" not in arguments:
        return arguments, [], []
    at = arguments.index("--")
    return arguments[:at], ["--"], arguments[at + 1 :]
