"""The process beside this one that takes a job for its runner: Prism itself, or the job server of Flink.

    with job_server(["prism", "--job_port", PORT], log="server.log") as endpoint: ...

It lives exactly as long as this process: it ends with the block, and where this process is killed, a pipe closes and it
is killed too. It has a session of its own, so that an interrupt typed at the terminal reaches this process alone, which
can then still use it to cancel the job.
"""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress

from schemas.errors import TransientError

PORT = "{port}"  # stands for the chosen port in a command
START_SECONDS = 120.0
TERM_SECONDS = 10.0

# `cat` ends when the other end of the pipe closes: when this process ended, however it did.
_UNTIL_THE_PIPE_CLOSES = """
exec 3<&0
"$@" 3<&- </dev/null &
server=$!
(cat <&3 >/dev/null; kill -9 $server) 2>/dev/null &
watcher=$!
trap 'kill $server 2>/dev/null' TERM
while wait $server; code=$?; kill -0 $server 2>/dev/null; do :; done
kill $watcher 2>/dev/null
exit $code
"""


@contextmanager
def job_server(command: Sequence[str], log: str, preload: str = "") -> Iterator[str]:
    """The address (localhost:port) of the server while the block runs. What it says goes to the file `log`.

    `preload`: a library to load into it (LD_PRELOAD). Raises TransientError where it does not start.
    """
    port = _free_port()
    command = [word.replace(PORT, str(port)) for word in command]
    with open(log, "ab") as output:
        process = subprocess.Popen(
            ["sh", "-c", _UNTIL_THE_PIPE_CLOSES, "sh", *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=os.environ | ({"LD_PRELOAD": preload} if preload else {}),
        )
    try:
        _wait_until_it_answers(process, port, command, log)
        yield f"localhost:{port}"
    finally:
        _end(process)


def _wait_until_it_answers(process: subprocess.Popen, port: int, command: Sequence[str], log: str) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        with suppress(OSError), socket.create_connection(("localhost", port), timeout=1):
            return
        if process.poll() is not None:
            break
        time.sleep(0.1)
    ended = process.poll() is not None
    raise TransientError(
        asked=f"{os.path.basename(command[0])} was to be started for the job",
        found=f"it ended with code {process.returncode}"
        if ended
        else f"it does not answer after {START_SECONDS:.0f} s",
        follows="the job was not submitted",
        do=f"read what it said, in {log}; start it by hand to see more: {' '.join(command)}",
    )


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


def _end(process: subprocess.Popen) -> None:
    assert process.stdin
    with suppress(subprocess.TimeoutExpired):
        process.terminate()
        process.wait(TERM_SECONDS)
    with suppress(OSError):
        process.stdin.close()  # the watcher kills what is left
    with suppress(subprocess.TimeoutExpired, ProcessLookupError):
        process.wait(TERM_SECONDS)
        return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
