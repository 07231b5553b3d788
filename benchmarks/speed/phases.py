"""Where the time of an update goes, and what the parts that only move rows would take at the memory's own speed.

Looking ahead reads a touched row's parameters and velocity and writes where its gradient is taken; the sum reads the
micro-batches' rows and writes their sum; the step reads that, the parameters and the velocity, and writes these two.
The gradients are the rest: gathers and scatters of rows, products, gates and the loss, of which the products alone are
given at the processor's peak (bound). What is left over is Python: which rows are touched, their drift, the calls.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import numpy as np
import torch

from benchmarks.speed.contest import rounded
from benchmarks.speed.trainer import Trainer
from clicktower.training.trainer.kernel_path import KernelThreads, Stretch
from clicktower.training.trainer.shard_data import MicroBatch

COPIED = 1 << 26  # floats: far more than caches hold
READS_AND_WRITES = {"look_ahead": 3, "step": 5}  # of each touched row


def measure_phases(
    trainer: Trainer, minibatches: Sequence[Sequence[MicroBatch]], *, products_seconds: float, threads: int
) -> dict[str, Any]:
    """Seconds an update, and of each of its parts. `products_seconds`: of an update's products at the peak."""
    spent, moved = Counter[str](), Counter[str]()

    def timed(what: str, call: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        try:
            return call()
        finally:
            spent[what] += time.perf_counter() - started

    make, gradients = KernelThreads.make, KernelThreads.gradients

    def timed_make(crew: KernelThreads, what: str, stretches: Iterable[Stretch]) -> None:
        given = list(stretches)
        for rows, first, last, _ in given:
            addends = sum(addend.num_rows for addend in rows.given) if what.startswith("sum") else 0
            touched = (last - first) * READS_AND_WRITES.get(what, 1)
            moved[what] += (touched + addends) * rows.columns * 4
        timed(what, lambda: make(crew, what, given))

    def timed_gradients(crew: KernelThreads, *given: Any) -> Any:
        return timed("gradients", lambda: gradients(crew, *given))

    trainer.train(minibatches)
    with (
        mock.patch.object(KernelThreads, "make", timed_make),
        mock.patch.object(KernelThreads, "gradients", timed_gradients),
    ):
        timed("update", lambda: trainer.train(minibatches))
    bandwidth, count = bytes_per_second(threads), len(minibatches)
    return {
        "milliseconds": {what: rounded(1e3 * seconds / count) for what, seconds in spent.items()},
        "share": {what: rounded(seconds / spent["update"]) for what, seconds in spent.items() if what != "update"},
        "share_of_products_at_peak": rounded(products_seconds * count / spent["update"]),
        "of_memory_bound": {what: rounded(size / bandwidth / spent[what]) for what, size in moved.items()},
        "memory_gigabytes_per_second": rounded(bandwidth / 1e9),
    }


def measure_operations(
    trainer: Trainer, minibatches: Sequence[Sequence[MicroBatch]], count: int = 20
) -> dict[str, Any]:
    """Milliseconds an update of torch's most expensive operations, on the processor and the GPU, and their calls."""
    trainer.train(minibatches)
    with torch.profiler.profile() as profile:
        trainer.train(minibatches)
    per_update = 1e-3 / len(minibatches)
    rows = {
        event.key: {
            "processor": rounded(event.self_cpu_time_total * per_update),
            "gpu": rounded(event.self_device_time_total * per_update),
            "calls": rounded(event.count / len(minibatches)),
        }
        for event in profile.key_averages()
    }
    most = sorted(rows, key=lambda name: -max(rows[name]["processor"], rows[name]["gpu"]))
    return {name: rows[name] for name in most[:20]}


def bytes_per_second(threads: int) -> float:
    """Read and written by threads that copy large arrays, at best."""
    pairs = [(np.zeros(COPIED // threads, np.float32), np.ones(COPIED // threads, np.float32)) for _ in range(threads)]
    best = float("inf")
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(5):
            started = time.perf_counter()
            list(pool.map(lambda pair: np.copyto(*pair), pairs))
            best = min(best, time.perf_counter() - started)
    return 2 * 4 * COPIED / best
