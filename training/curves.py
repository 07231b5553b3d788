"""How training goes, for people and reports: curves.json epoch by epoch, event files for TensorBoard.

FOLDER/curves.json   a list of {"epoch", "train_loss", "dev_loss", "dev_ndcg@1", ..., "pairs_per_second", ...}
FOLDER/curves/       the same by epoch, and every step by update as step/...: `tensorboard --logdir FOLDER/curves`
"""

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from schemas import storage

FLUSH_SECONDS = 2
NOT_DRAWN = ("epoch", "update", "pairs", "unix_seconds")


class Curves:
    """The curves of one run, written while it goes on below a `folder` of this machine.

    `points`: those of the epochs a resumed run had finished. Its steps have to be added again.
    """

    def __init__(self, folder: str, points: Sequence[Mapping[str, Any]]) -> None:
        self._folder, self.points = folder, [dict(point) for point in points]
        shutil.rmtree(f"{folder}/curves", ignore_errors=True)  # an earlier life of this attempt had other steps
        self._events = EventFileWriter(f"{folder}/curves", flush_secs=FLUSH_SECONDS)
        for point in self.points:
            self._write(point, point["epoch"], "", time.time())

    def add(self, point: Mapping[str, Any]) -> None:
        """One more epoch. What is None was not measured."""
        self.points.append(dict(point))
        self._write(point, point["epoch"], "", time.time())

    def step(self, step: Mapping[str, Any]) -> None:
        """One more step (training.step_log)."""
        self._write(step, step["update"], "step/", step["unix_seconds"])

    def stop(self) -> None:
        """Write no more events; TensorBoard's thread that does ends. May be called again."""
        self._events.close()

    def close(self) -> None:
        """Write curves.json."""
        self.stop()
        storage.write_atomic(storage.join(self._folder, "curves.json"), json.dumps(self.points, indent=1).encode())

    def _write(self, values: Mapping[str, Any], at: int, prefix: str, unix_seconds: float) -> None:
        # All values in one event: one each takes three times as long.
        scalars = [
            Summary.Value(tag=prefix + name.replace("@", "_at_"), simple_value=value)
            for name, value in values.items()
            if name not in NOT_DRAWN and value is not None
        ]
        self._events.add_event(Event(step=at, wall_time=unix_seconds, summary=Summary(value=scalars)))
