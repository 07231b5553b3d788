"""Several workers on this machine, one thread each, over gloo: bytes and seconds a step against their number.

More workers than cores share the cores, so their computing takes longer than it would on machines of their own; the
bytes are the same. `measure_workers` starts the processes, each of which runs this file.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch

from benchmarks.real_pairs import read_pairs
from benchmarks.speed.contest import Tell, rounded
from benchmarks.speed.trainer import Trainer
from benchmarks.speed.variants import base_recipe, start_of
from clicktower.training.trainer.job import arithmetic_of
from clicktower.training.trainer.process_group import ProcessGroup
from clicktower.training.trainer.shard_data import Order, pair_lengths

ROOT = Path(__file__).parents[2]
WARM_UP = 2
TIMEOUT = timedelta(minutes=5)


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What all workers are given."""

    data: str
    cells: int
    minibatch: int
    num_negatives: int
    steps: int


def measure_workers(counts: list[int], setting: Setting, tell: Tell) -> list[dict]:
    """For each number of workers: bytes that one hands to the sums in a step, bytes on its wire, seconds."""
    rows = []
    for count in counts:
        tell(f"{count} workers over gloo")
        rows.append(_measure(count, setting))
    return rows


def _measure(count: int, setting: Setting) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        given = [f"--{name.replace('_', '-')}={getattr(setting, name)}" for name in Setting.__slots__]
        command = [sys.executable, "-m", __spec__.name if __spec__ else __name__, f"--meet={folder}/meet"]
        workers = [
            subprocess.Popen(
                [*command, f"--workers={count}", f"--rank={rank}", *given], cwd=ROOT, stdout=subprocess.PIPE, text=True
            )
            for rank in range(count)
        ]
        try:
            answers = [worker.communicate()[0] for worker in workers]
        finally:
            for worker in workers:
                worker.kill()
    if any(worker.returncode for worker in workers):
        raise SystemExit(f"a worker of {count} failed; its own words are above")
    return json.loads(answers[0])


class _Timed(ProcessGroup):
    """The process group, with the seconds spent in it: sending, adding, and waiting for the others."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def unite(self, touched: torch.Tensor) -> None:
        started = time.perf_counter()
        super().unite(touched)
        self.seconds += time.perf_counter() - started

    def add_up(self, values: torch.Tensor) -> None:
        started = time.perf_counter()
        super().add_up(values)
        self.seconds += time.perf_counter() - started


def _work(setting: Setting, workers: _Timed) -> dict:
    """One worker's part; what it measured."""
    torch.set_num_threads(1)
    data = read_pairs(Path(setting.data), setting.num_negatives)
    recipe = base_recipe(setting.cells, setting.minibatch)
    arithmetic = arithmetic_of("auto", recipe, "cpu")
    order = Order(
        lengths=[pair_lengths(data.train[0])],
        micro_batch=recipe.micro_batch,
        minibatch=recipe.minibatch,
        seed=recipe.seed,
    )
    trainer = Trainer(
        recipe, start_of(recipe, data.word_rows.trigram_rows), data, arithmetic=arithmetic, threads=1, workers=workers
    )
    minibatches = order.epoch(0)
    seconds, waited, sent = [], [], []
    for step in range(WARM_UP + setting.steps):
        before = time.perf_counter(), workers.seconds, workers.sent_bytes
        trainer.train([minibatches[step % len(minibatches)]])
        seconds.append(time.perf_counter() - before[0])
        waited.append(workers.seconds - before[1])
        sent.append(workers.sent_bytes - before[2])
    trainer.close()
    median = {
        name: statistics.median(values[WARM_UP:]) for name, values in (("s", seconds), ("w", waited), ("b", sent))
    }
    return {
        "workers": workers.size,
        "arithmetic": arithmetic,
        "bytes_per_step": round(median["b"]),
        # A ring sends every byte of the sum twice, but for each worker's own part.
        "bytes_on_the_wire_per_step": round(2 * (workers.size - 1) / workers.size * median["b"]),
        "seconds_per_step": rounded(median["s"]),
        "seconds_in_sums_per_step": rounded(median["w"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("meet", "data"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("workers", "rank", "cells", "minibatch", "num-negatives", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    options = parser.parse_args()
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{options.meet}", rank=options.rank, world_size=options.workers, timeout=TIMEOUT
    )
    measured = _work(Setting(**{name: getattr(options, name) for name in Setting.__slots__}), _Timed())
    torch.distributed.destroy_process_group()
    if options.rank == 0:
        print(json.dumps(measured))


if __name__ == "__main__":
    main()
