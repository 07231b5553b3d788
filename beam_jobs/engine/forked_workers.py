"""Worker processes of one job on this machine, forked from a process that has imported what they need.

    with forked_workers(job_code) as workers:  # that process starts, and imports the job
        import apache_beam                                          # meanwhile this one does the same
        workers.start(address, name, cache_bytes=0, log="workers.log", fail=print)

Importing Beam takes as long as reading some forty megabytes of log. Forking imports it once for all workers, on a core
that has nothing else to do yet.

    python -m clicktower.beam_jobs.engine.forked_workers MODULE:NAME...

is the forking process. It forks one worker for each line of its input: the address of the runner's control service, the
worker's name, the bytes of its cache and the file for its output, separated by tabs. If a signal ends a worker, it
prints a line: the name, a tab, the signal's number. It ends when its input and its workers have ended. It has no thread
and no connection of its own, so a fork loses nothing.
"""

import gc
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pkgutil import resolve_name

from clicktower.beam_jobs import keep_out_unused_imports
from clicktower.schemas.errors import JobGoesOn, TransientError

END_SECONDS = 10.0

# A bucket's columns are as large as those of the one before: a worker keeps its memory instead of returning it to the
# system, which would clear it again; that took a tenth of all time. For glibc; its largest threshold.
_KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}

Fail = Callable[[Exception], object]


@contextmanager
def forked_workers(*code: str) -> Iterator["ForkedWorkers"]:
    """A process that forks workers which have imported `code` ("module:name" each); it ends after the block.

    If the block is interrupted, they end at once. Raises TransientError if it fails after a signal ended a worker,
    whatever error Beam raises for it.
    """
    workers = ForkedWorkers(code)
    try:
        yield workers
    except (KeyboardInterrupt, SystemExit):
        workers.kill()
        raise
    except Exception as error:
        workers.end()
        if workers.lost and not isinstance(error, JobGoesOn) and error is not workers.lost:
            raise workers.lost from error
        raise
    finally:
        workers.end()


class ForkedWorkers:
    """The running process that forks the workers."""

    def __init__(self, code: Sequence[str]) -> None:
        # A process group of its own: interrupts are the caller's concern, and the whole group can be ended at once.
        self._server = subprocess.Popen(
            [sys.executable, "-m", "clicktower.beam_jobs.engine.forked_workers", *code],
            bufsize=0,
            env={**os.environ, **_KEEP_MEMORY},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
        self._lock = threading.Lock()  # keeps lines and the closing of its input apart
        self._fail: dict[str, Fail] = {}  # by worker
        self.lost: TransientError | None = None  # a worker, by a signal
        self._listener = threading.Thread(target=self._listen, name="forked workers", daemon=True)
        self._listener.start()

    def start(self, address: str, name: str, *, cache_bytes: int, log: str, fail: Fail) -> None:
        """Start another worker for the runner whose control service is at `address`; it ends with that connection.

        Its output goes to the file `log`. If a signal ends the worker, `fail` is called, in another thread, with the
        error to raise: Beam would wait for an answer for ever. Raises OSError if the forking process has ended,
        ValueError after `end`.
        """
        assert self._server.stdin
        self._fail[name] = fail
        with self._lock:
            self._server.stdin.write("\t".join([address, name, str(cache_bytes), log]).encode() + b"\n")

    def _listen(self) -> None:
        assert self._server.stdout
        for line in self._server.stdout:
            name, _, number = line.decode().partition("\t")
            self.lost = TransientError(
                f"{signal.Signals(int(number)).name} ended a process of the job on this machine. Nothing was"
                " published.",
                "Run the same command again; if the system ended it for lack of memory, put `--"
                " --direct_running_mode=in_memory` behind it, which uses one process.",
            )
            # No name if it ended before it was noted: then all are reported, since the job fails anyway.
            for fail in [self._fail[name]] if name in self._fail else list(self._fail.values()):
                fail(self.lost)

    def end(self) -> None:
        """Wait for the workers, which have no work left; do not wait for one that does not end."""
        assert self._server.stdin
        with self._lock:
            self._server.stdin.close()
        try:
            self._server.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self._listener.join(END_SECONDS)

    def kill(self) -> None:
        """End the workers now, whatever they do."""
        with suppress(ProcessLookupError):
            os.killpg(self._server.pid, signal.SIGKILL)
        self._server.wait()


def _fork_for_each_line(code: list[str]) -> None:
    """The forking process, from start to end."""
    gc.disable()  # it would scan the imports again and again
    keep_out_unused_imports()
    for name in ("apache_beam.runners.worker.sdk_worker", *code):
        resolve_name(name)
    gc.enable()
    gc.set_threshold(20_000)  # few of a worker's objects are in cycles
    gc.freeze()  # otherwise each worker's first collection scans, and so copies, all of it
    names: dict[int, str] = {}  # of the workers, by process

    def report_ended(*_: object) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if os.WIFSIGNALED(ended[1]):
                    os.write(sys.stdout.fileno(), f"{names.get(ended[0], '')}\t{os.WTERMSIG(ended[1])}\n".encode())

    signal.signal(signal.SIGCHLD, report_ended)
    for line in sys.stdin:
        address, name, cache_bytes, log = line.rstrip("\n").split("\t")
        if pid := os.fork():
            names[pid] = name
        else:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _work(address, name, int(cache_bytes), log)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with suppress(ChildProcessError):
        while True:
            os.wait()


def _work(address: str, name: str, cache_bytes: int, log: str) -> None:
    """A worker, from its fork to its end."""
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(output, sys.stdout.fileno())
    os.dup2(output, sys.stderr.fileno())
    try:
        from apache_beam.runners.worker.sdk_worker import SdkHarness  # imported before the fork

        SdkHarness(address, worker_id=name, state_cache_size=cache_bytes, data_buffer_time_limit_ms=0).run()
        code = 0
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the rest of a process's end does not concern a worker


if __name__ == "__main__":
    _fork_for_each_line(sys.argv[1:])
    os._exit(0)  # no cleanup is needed, and taking Beam apart takes a quarter of a second
