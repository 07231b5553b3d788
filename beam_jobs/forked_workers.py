"""Worker processes of one job on this machine, forked from one that has imported what they need.

    with forked_workers("beam_jobs.ingest_day") as workers:     # that process starts, and imports
        import apache_beam                                               # meanwhile this one does the same
        ...
        workers.start(address, name, cache_bytes=0, log="workers.log")

Importing Beam takes as long as reading some forty megabytes of log. It is done once for all workers, and on a core that
has nothing else to do yet.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress

from beam_jobs.engine_options import asks_for_processes

END_SECONDS = 10.0

# A bucket's columns are as large as those of the one before: a worker keeps the memory it has got, instead of giving it
# back to the system and having it cleared again, which was a tenth of all time. For glibc; its largest threshold.
_KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}


class ForkedWorkers:
    """What forks the workers (beam_jobs.fork_server), running."""

    def __init__(self, modules: Sequence[str]) -> None:
        # A process group of its own: interrupts are the caller's affair, and all of it can be ended at once.
        self._server = subprocess.Popen(
            [sys.executable, "-m", "beam_jobs.fork_server", *modules],
            bufsize=0,
            env={**os.environ, **_KEEP_MEMORY},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )

    def start(self, address: str, name: str, *, cache_bytes: int, log: str) -> None:
        """One more worker, for the runner whose control service is at `address`; it ends with that connection.

        What it says goes to the file `log`. Raises OSError where the process that forks is gone.
        """
        assert self._server.stdin
        self._server.stdin.write("\t".join([address, name, str(cache_bytes), log]).encode() + b"\n")

    def end(self) -> None:
        """Wait for the workers, which have nothing to do any more; not for one that does not end."""
        assert self._server.stdin
        self._server.stdin.close()
        try:
            self._server.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self._server.pid, signal.SIGKILL)
            self._server.wait()


@contextmanager
def forked_workers(*modules: str) -> Iterator[ForkedWorkers]:
    """What forks workers that have imported `modules`; the block ends after them."""
    workers = ForkedWorkers(modules)
    try:
        yield workers
    finally:
        workers.end()


@contextmanager
def forked_workers_if_asked(beam_options: Sequence[str], *modules: str) -> Iterator[ForkedWorkers | None]:
    """The same where the options ask for worker processes; else None."""
    with forked_workers(*modules) if asks_for_processes(beam_options) else nullcontext() as workers:
        yield workers
