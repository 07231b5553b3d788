"""Worker processes of one job on this machine, forked from one that has imported what they need.

    with forked_workers("ingest_job") as workers:  # that process starts, and imports
        import apache_beam                                    # meanwhile this one does the same
        workers.start(address, name, cache_bytes=0, log="workers.log", fail=print)

Importing Beam takes as long as reading some forty megabytes of log. It is done once for all workers, and on a core that
has nothing else to do yet.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress

from beam_jobs.engine.engine_options import asks_for_processes
from schemas.errors import TransientError

END_SECONDS = 10.0

# A bucket's columns are as large as those of the one before: a worker keeps the memory it has got, instead of giving it
# back to the system and having it cleared again, which was a tenth of all time. For glibc; its largest threshold.
_KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}

Fail = Callable[[Exception], object]


class ForkedWorkers:
    """What forks the workers (fork_server), running."""

    def __init__(self, modules: Sequence[str]) -> None:
        # A process group of its own: interrupts are the caller's affair, and all of it can be ended at once.
        self._server = subprocess.Popen(
            [sys.executable, "-m", "beam_jobs.engine.fork_server", *modules],
            bufsize=0,
            env={**os.environ, **_KEEP_MEMORY},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
        self._fail: dict[str, Fail] = {}  # by worker
        self.lost: TransientError | None = None  # a worker, by a signal
        self._listener = threading.Thread(target=self._listen, name="forked workers", daemon=True)
        self._listener.start()

    def start(self, address: str, name: str, *, cache_bytes: int, log: str, fail: Fail) -> None:
        """One more worker, for the runner whose control service is at `address`; it ends with that connection.

        What it says goes to the file `log`. `fail` is called, by another thread, with what to raise where a signal ends
        the worker: Beam would wait for its answer for ever. Raises OSError where the process that forks is gone.
        """
        assert self._server.stdin
        self._fail[name] = fail
        self._server.stdin.write("\t".join([address, name, str(cache_bytes), log]).encode() + b"\n")

    def _listen(self) -> None:
        assert self._server.stdout
        for line in self._server.stdout:
            name, _, number = line.decode().partition("\t")
            self.lost = _ended_by(int(number))
            # Without a name where it ended before it was noted: then all are told, since the job fails anyway.
            for fail in [self._fail[name]] if name in self._fail else list(self._fail.values()):
                fail(self.lost)

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
        self._listener.join(END_SECONDS)


def _ended_by(number: int) -> TransientError:
    return TransientError(
        asked="a job was to be done by processes of this machine",
        found=f"one of them was ended by {signal.Signals(number).name}",
        follows="its part was not done, and nothing was published",
        do="run the same command again; where the system ended it for want of memory, put"
        " `-- --direct_running_mode=in_memory` behind it, which takes one process",
    )


@contextmanager
def forked_workers(*modules: str) -> Iterator[ForkedWorkers]:
    """What forks workers that have imported `modules`; the block ends after them.

    Raises TransientError where the block fails and a signal had ended a worker, whatever Beam makes of that.
    """
    workers = ForkedWorkers(modules)
    try:
        yield workers
    except Exception as error:
        workers.end()
        if workers.lost and error is not workers.lost:
            raise workers.lost from error
        raise
    finally:
        workers.end()


@contextmanager
def forked_workers_if_asked(beam_options: Sequence[str], *modules: str) -> Iterator[ForkedWorkers | None]:
    """The same where the options ask for worker processes; else None."""
    with forked_workers(*modules) if asks_for_processes(beam_options) else nullcontext() as workers:
        yield workers
