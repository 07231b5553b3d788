"""Workers as plain processes with gloo between them: a fraction of a second to start, and to be killed anywhere.

A process of torch and of what a worker imports is kept, and forked; Ray would take some ten seconds for the same.
"""

import json
import multiprocessing
import os
import random
import signal
import traceback
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

from clicktower.schemas import storage
from clicktower.schemas.stage import silent
from clicktower.training.trainer.job import TrainingJob
from clicktower.training.trainer.process_group import ProcessGroup
from clicktower.training.trainer.worker import work

SECONDS = 600  # no test may take as long; a worker that waits for a dead one is told by gloo at once


@dataclass(frozen=True, kw_only=True)
class Death:
    """kill -9 of worker `rank`, from within: in the midst of what it tells the others, or of a checkpoint."""

    rank: int
    sums: int = 0  # it dies at this one of the sums it takes part in, from 1 ...
    after: bool = False  # ... before it took part, or after
    writes: int = 0  # or it dies after this one of the files that it writes


class _Doomed(ProcessGroup):
    def __init__(self, death: Death | None) -> None:
        super().__init__()
        self._death, self._sums = death, 0

    def unite(self, touched: torch.Tensor) -> None:
        self._live_on()
        super().unite(touched)
        self._live_on(after=True)

    def add_up(self, values: torch.Tensor) -> None:
        self._live_on()
        super().add_up(values)
        self._live_on(after=True)

    def _live_on(self, *, after: bool = False) -> None:
        self._sums += not after
        if self._death and self._sums == self._death.sums and after == self._death.after:
            os.kill(os.getpid(), signal.SIGKILL)


def run_workers(job: TrainingJob, size: int, folder: Path, death: Death | None = None) -> dict[str, Any] | None:
    """Metrics of a run of `size` workers; None where `death` ended it. Raises AssertionError where they failed."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.training.trainer.gloo_preload"])
    folder.mkdir(parents=True, exist_ok=True)
    meeting = folder / f"meeting-{random.getrandbits(64):x}"
    workers = [context.Process(target=_worker, args=(job, rank, size, meeting, death)) for rank in range(size)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(SECONDS)
    assert not any(worker.is_alive() for worker in workers), "a worker waits for ever"
    if any(worker.exitcode == -signal.SIGKILL for worker in workers):
        return None
    failed = [path.read_text() for path in sorted(folder.glob(f"{meeting.name}-error-*"))]
    assert not failed, failed[0]
    return json.loads(Path(f"{meeting}-metrics").read_text())


def _worker(job: TrainingJob, rank: int, size: int, meeting: Path, death: Death | None) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    mine = death if death and death.rank == rank else None
    if mine and mine.writes:
        _die_after_writing(mine.writes)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=size, timeout=timedelta(seconds=SECONDS / 2)
    )
    try:
        metrics = work(job, _Doomed(mine), silent)
    except Exception:
        Path(f"{meeting}-error-{rank}").write_text(traceback.format_exc())
        os._exit(1)
    if rank == 0:
        Path(f"{meeting}-metrics").write_text(json.dumps(metrics))
    torch.distributed.destroy_process_group()


def _die_after_writing(files: int) -> None:
    write, left = storage.write_atomic, files

    def write_and_die(uri: str, *pieces: bytes | memoryview) -> None:
        nonlocal left
        write(uri, *pieces)
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    storage.write_atomic = write_and_die
