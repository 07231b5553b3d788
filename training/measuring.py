"""Held-out data is measured while the next epoch trains: a state is copied, a thread of its own measures the copy.

Training waits for a measurement only where that takes longer than an epoch: one is under way at a time, and results
come in the order of the epochs. Nothing that trains reads them.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from training.encoder import Encoder
from training.large_update import Towers
from training.objectives.objective import Measured, Watched
from training.profile import Recorder


class Measuring:
    """Measures published states of `towers`, one after the other."""

    def __init__(self, watch: Watched, towers: Towers, phases: Recorder) -> None:
        self._watch, self._towers, self._phases = watch, towers, phases
        self._rows = towers.layout.touched(watch.table_rows.to(towers.device.place))
        self._thread = ThreadPoolExecutor(1, "measure", initializer=torch.set_num_threads, initargs=(1,))
        self._under_way: tuple[Future[Measured], Callable[[Measured], None]] | None = None

    def begin(self, update: int, then: Callable[[Measured], None]) -> None:
        """Measure Λ after `update`; a later `begin` or `finish`, whichever is first, hands the result to `then`."""
        self.finish()
        with self._phases("watch"):
            self._under_way = self._thread.submit(self._measure, self._copy(update)), then

    def finish(self) -> None:
        """Wait for the measurement that is under way, if any, and hand it on."""
        if self._under_way:
            measurement, then = self._under_way
            self._under_way = None
            with self._phases("watch"):
                measured = measurement.result()
            then(measured)

    def close(self) -> None:
        self.finish()
        self._thread.shutdown()

    def _measure(self, encoder: Encoder) -> Measured:
        started = time.monotonic()
        with self._phases("measure"):
            measured = self._watch.measure(encoder)
        return {**measured, "watch_seconds": round(time.monotonic() - started, 3)}

    def _copy(self, update: int) -> Encoder:
        """A copy of the towers after `update`, as far as held-out texts need them. Training leaves it alone."""
        towers = self._towers
        copies = {t: rows.published(self._rows, update, towers.schedule) for t, rows in towers.rows.items()}
        return Encoder(
            towers.recipe,
            towers.layout,
            lambda tower, rows: copies[tower].index_select(0, torch.searchsorted(self._rows, rows)),
            towers.device,
        )
