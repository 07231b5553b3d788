"""One large update (Algorithm 1): the gradients of a whole minibatch, from all workers, added up and applied once.

sum over micro-batches and workers  ->  each tower's norm held below th_G  ->  one Nesterov step
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from training.divergence import require_sane
from training.encoder import Encoder
from training.gpu.device import CPU, Device
from training.nesterov import MomentumSchedule
from training.parameters import Layout, tower_name
from training.paths import Path
from training.profile import OFF, Recorder
from training.recipe import Recipe
from training.reference_path import ReferencePath
from training.states import RowState
from training.workers import Workers


@dataclass(frozen=True, kw_only=True, slots=True)
class Towers:
    """The state of a run: each tower's rows, the schedule that moves them, and the path that computes."""

    recipe: Recipe
    layout: Layout
    rows: Mapping[str, RowState]
    schedule: MomentumSchedule
    device: Device = CPU
    path: Path = field(default_factory=ReferencePath)

    def published(self, update: int) -> Encoder:
        """Λ_k, after update k."""
        return self._encoder(lambda tower, rows: self.rows[tower].published(rows, update, self.schedule))

    def _encoder(self, rows_at: Callable[[str, torch.Tensor], torch.Tensor]) -> Encoder:
        return Encoder(self.recipe, self.layout, rows_at, self.device)


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateReport:
    loss: float  # summed over the minibatch
    norms: Mapping[str, float]  # of each tower's gradient, before re-normalisation


def large_update(
    towers: Towers,
    share: Sequence[Any],
    *,
    update: int,
    num_micro_batches: int,
    workers: Workers,
    threads: Executor,
    phases: Recorder = OFF,
) -> UpdateReport:
    """Make update `update` (from 1) out of this worker's share of the minibatch, which may be empty.

    `share`: micro-batches that `towers.path` prepared. `num_micro_batches`: of the minibatch on all workers together.
    `threads` share the work out. Raises Diverged, with nothing changed, where numbers are not finite or run away.
    """
    recipe = towers.recipe
    with phases("touched rows"):
        # In one order on all workers: what they add up is laid out by it.
        touched = {tower: _touched(tower, share, towers, workers) for tower in sorted(towers.rows)}
    total = towers.path.sum_gradients(
        towers, share, touched,
        update=update, num_micro_batches=num_micro_batches, workers=workers, threads=threads, phases=phases,
    )  # fmt: skip
    require_sane(total.loss, total.norms, recipe, towers.layout, update)
    with phases("update"):
        most = recipe.clip_norm or math.inf
        total.step({tower: most / norm if norm > most else 1.0 for tower, norm in total.norms.items()})
    return UpdateReport(loss=total.loss, norms=total.norms)


def _touched(tower: str, share: Iterable[Any], towers: Towers, workers: Workers) -> torch.Tensor:
    """The rows of a tower that any worker's share touches and training moves, ascending."""
    device = towers.rows[tower].parameters.device
    sides = [side for side in ("query", "document") if tower_name(towers.recipe, side) == tower]
    some = [towers.path.table_rows(micro_batch, side) for micro_batch in share for side in sides]
    if device == CPU.place:  # NumPy marks and finds them in a third of the time
        marks = np.zeros(towers.layout.table_rows, bool)
        for rows in some:
            marks[rows.numpy()] = True
        workers.unite(torch.from_numpy(marks))
        touched = torch.from_numpy(np.flatnonzero(marks))
    else:
        mask = torch.zeros(towers.layout.table_rows, dtype=torch.bool, device=device)
        for rows in some:
            mask[rows] = True
        workers.unite(mask)
        touched = mask.nonzero()[:, 0]
    return towers.layout.touched(towers.layout.trained(touched))
