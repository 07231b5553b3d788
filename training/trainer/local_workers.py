"""Several workers on this machine: forked processes with gloo between them (NCCL if each has a GPU).

    with local_workers(2) as run:           # a process starts, and imports torch
        ...                                 # meanwhile this one does the same
        metrics = run(job, progress)

Ray would take some ten seconds of processor time to start. A worker that is lost ends the others, and all start again
from the last checkpoint. The end of this process, by whatever, ends them too.

    python -m clicktower.training.trainer.local_workers FD FOLDER NUMBER

is the forking process. FD is its connection to the one that trains, FOLDER where workers find each other.
"""

import errno
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn

from clicktower.schemas.errors import StageError, TransientError, place
from clicktower.schemas.stage import Progress
from clicktower.training.trainer.job import TrainingJob, count_gpus

LOSSES_IN_VAIN = 4
OTHERS_SECONDS = 5.0  # for an error of the others, which may be the cause
WRITE_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS}


class LossesInVain:
    """Counts losses of workers without a new checkpoint in between."""

    def __init__(self, checkpoints: str, workers: int, *, seconds: float = 0.0) -> None:
        """`seconds`: the time that losses take at least before they are in vain."""
        self._checkpoints, self._workers, self._seconds = checkpoints, workers, seconds
        self._newest, self._losses, self._since = -1, 0, 0.0

    def note(self, reasons: Iterable[str]) -> None:
        """Note a loss. Raises TransientError if another start would not help."""
        from clicktower.training.trainer.checkpoint import list_updates  # torch takes seconds to load

        newest = next(iter(list_updates(self._checkpoints)), 0)
        if newest != self._newest:
            self._newest, self._losses, self._since = newest, 0, time.monotonic()
        self._losses += 1
        if self._losses >= LOSSES_IN_VAIN and time.monotonic() - self._since >= self._seconds:
            raise TransientError(
                f"Some of {self._workers} workers were lost {self._losses} times in a row without a new checkpoint in"
                f" between (the last time: {', '.join(sorted(set(reasons)))}). "
                + (f"The checkpoint of update {newest:,} is kept." if newest else "There is no checkpoint yet."),
                "Run the same command again to go on from there, or with --workers 1.",
            )


def is_lasting(error: BaseException) -> bool:
    """Whether another start of the workers would end in the same way, with an error that a user can act on."""
    return isinstance(error, StageError) or (isinstance(error, OSError) and error.errno in WRITE_ERRORS)


@contextmanager
def local_workers(number: int) -> Iterator[Callable[[TrainingJob, Progress], dict[str, Any]]]:
    """A function that runs a job on so many workers: its metrics, as worker.work. It raises StageError, also if
    workers are lost repeatedly.
    """
    ours, theirs = Pipe()
    with tempfile.TemporaryDirectory(prefix="clicktower-workers-") as folder, ours:
        command = [sys.executable, "-m", __name__, str(theirs.fileno()), folder, str(number)]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            process_group=0,  # interrupts are this process's concern
        )
        theirs.close()
        try:
            yield lambda job, progress: _follow(ours, job, progress)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _follow(workers: Connection, job: TrainingJob, progress: Progress) -> dict[str, Any]:
    try:
        workers.send(job)
        while True:
            kind, content = workers.recv()
            if kind == "progress":
                progress(*content)
            elif kind == "failed":
                raise content
            else:
                return content
    except (EOFError, ConnectionError):
        raise TransientError(
            "The process that starts the workers was ended. The last checkpoint is kept.",
            "Run the same command again to go on; look for too little memory, or train with --workers 1.",
        ) from None


def _run(stage: Connection, folder: str, number: int) -> None:
    """The forking process, from start to end."""
    from clicktower.training.trainer import worker  # noqa: F401  # torch and all else, once for all workers

    job = stage.recv()
    losses = LossesInVain(job.checkpoints, number)
    try:
        for start in count():
            metrics, reasons = _workers_to_their_end(stage, job, f"{folder}/{start}", number)
            if not reasons:
                stage.send(("done", metrics))
                return
            losses.note(reasons)
            stage.send(("progress", ("a worker was lost: all start again from the last checkpoint", 0, None)))
    except (StageError, OSError) as error:
        stage.send(("failed", error))


def _workers_to_their_end(
    stage: Connection, job: TrainingJob, meeting: str, number: int
) -> tuple[dict[str, Any], list[str]]:
    """(the first worker's metrics, the reasons for which workers were lost). Raises an error that is lasting."""
    workers: dict[Connection, int] = {}
    for rank in range(number):
        reader, writer = Pipe(duplex=False)
        pid = os.fork()
        if not pid:
            for connection in (stage, reader, *workers):
                connection.close()
            _work(writer, job, meeting, rank, number)
        writer.close()
        workers[reader] = pid
    metrics: dict[str, Any] = {}
    reasons: list[str] = []
    until = float("inf")
    try:
        while workers and time.monotonic() < until:
            ready = wait([stage, *workers], None if until == float("inf") else until - time.monotonic())
            if stage in ready:  # it has ended, since it sends nothing more
                os._exit(1)
            for pipe in [pipe for pipe in workers if pipe in ready]:
                try:
                    kind, content = pipe.recv()
                except EOFError:
                    if code := os.waitstatus_to_exitcode(os.waitpid(workers.pop(pipe), 0)[1]):
                        reasons.append(signal.Signals(-code).name if code < 0 else f"code {code}")
                    continue
                if kind == "progress":
                    stage.send((kind, content))
                elif kind == "done":
                    metrics = content or metrics
                elif isinstance(content, Exception):
                    raise content
                else:
                    reasons.append(content)
            if reasons:
                until = min(until, time.monotonic() + OTHERS_SECONDS)
    finally:
        for pid in workers.values():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return metrics, reasons


def _work(pipe: Connection, job: TrainingJob, meeting: str, rank: int, number: int) -> NoReturn:
    """A worker, from its fork to its end."""
    import torch

    from clicktower.training.trainer.process_group import ProcessGroup, process_group_backend
    from clicktower.training.trainer.worker import work

    try:
        num_gpus = count_gpus() if job.device != "cpu" else 0
        if num_gpus:
            torch.cuda.set_device(rank % num_gpus)
        backend = process_group_backend(number, num_gpus)
        torch.distributed.init_process_group(backend, init_method=f"file://{meeting}", rank=rank, world_size=number)
        metrics = work(job, ProcessGroup(), lambda *progress: pipe.send(("progress", progress)))
        pipe.send(("done", metrics))
    except Exception as error:
        pipe.send(("failed", error if is_lasting(error) else f"{type(error).__name__} in {place(error)}"))
    os._exit(0)  # the rest of a process's end does not concern a worker


if __name__ == "__main__":
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    os.environ |= {"GLOO_SOCKET_IFNAME": loopback, "NCCL_SOCKET_IFNAME": loopback}
    with suppress(EOFError, ConnectionError):  # the process that trains has ended
        _run(Connection(int(sys.argv[1])), sys.argv[2], int(sys.argv[3]))
    os._exit(0)
