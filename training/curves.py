"""How training goes, epoch by epoch: curves.json for people and reports, event files for TensorBoard.

FOLDER/curves.json   a list of {"epoch", "train_loss", "dev_loss", "dev_ndcg@1", ..., "pairs_per_second", ...}
FOLDER/curves/       the same numbers: `tensorboard --logdir FOLDER/curves`
"""

import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from schemas import storage


class Curves:
    """The curves of one run, written while it goes on. `points`: those of the epochs a resumed run had finished."""

    def __init__(self, folder: str, points: Sequence[Mapping[str, Any]]) -> None:
        self._folder, self.points = folder, [dict(point) for point in points]
        self._local = storage.is_local(folder)
        target = storage.filesystem(folder)[1] if self._local else tempfile.mkdtemp(prefix="clicktower-curves-")
        self._events = f"{target}/curves" if self._local else target
        self._writer = SummaryWriter(self._events)
        for point in self.points:
            self._write(point)

    def add(self, point: Mapping[str, Any]) -> None:
        """One more epoch. What is None was not measured."""
        self.points.append(dict(point))
        self._write(point)

    def close(self) -> None:
        """Write curves.json, and carry the event files to the folder if that is on another file system."""
        self._writer.close()
        storage.write_atomic(storage.join(self._folder, "curves.json"), json.dumps(self.points, indent=1).encode())
        if not self._local:
            for name in os.listdir(self._events):
                with open(f"{self._events}/{name}", "rb") as file:
                    storage.write_atomic(storage.join(self._folder, "curves", name), file.read())
            shutil.rmtree(self._events)

    def _write(self, point: Mapping[str, Any]) -> None:
        for name, value in point.items():
            if name != "epoch" and value is not None:
                self._writer.add_scalar(name.replace("@", "_at_"), value, point["epoch"])
        self._writer.flush()
