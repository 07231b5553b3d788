"""One large update (Algorithm 1): the gradients of a whole minibatch, from all workers, added up and applied once.

    sum over micro-batches and workers  ->  each tower's norm held below th_G  ->  one step of the optimiser

exact: every gradient is rounded once to a 64-bit fixed-point number with unit 2^-40; integers add up to the same sum in
any grouping, so one, two or five workers give the same bytes. Values of 2^-16 and more keep every bit of a float32.
fast: floating point, an ordinary all-reduce, equal up to rounding. Only rows that some worker touched are summed and
travel.

The gradient has two paths with one meaning: the reference in torch, on a CPU or a GPU, for every tower and objective;
and the compiled one on a CPU (training.trainer.kernel_path), which the reference defines.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from clicktower.schemas.errors import Diverged
from clicktower.training.model.parameters import CPU, Device, Encoder, Layout, LossGradient
from clicktower.training.model.recipe import tower_name
from clicktower.training.trainer.optimisers import MomentumSchedule, Rows, RowState


@dataclass(frozen=True, kw_only=True, slots=True)
class Towers:
    """The state of a run: each tower's rows, the schedule that moves them, and the path that computes."""

    layout: Layout
    rows: Mapping[str, RowState]
    schedule: MomentumSchedule
    path: "Path"
    device: Device = CPU

    def published(self, update: int) -> Encoder:
        """Λ_k, after update k."""
        return self._encoder(lambda tower, rows: self.rows[tower].published(rows, update, self.schedule))

    def look_ahead(self, update: int) -> Encoder:
        """Λ_{k-1} + μ_{k-1} ΔΛ_{k-1}: where the gradient of update k is taken."""
        return self._encoder(lambda tower, rows: self.rows[tower].look_ahead(rows, update, self.schedule))

    def _encoder(self, rows_at: Callable[[str, Rows], torch.Tensor]) -> Encoder:
        parts = {name: self.layout.split_parts(rows_at(name, self.layout.rows_of_parts)) for name in self.rows}
        return Encoder(self.layout, rows_at, parts, self.device)


UNIT = 2.0**-40  # of the fixed point
# The sum of a minibatch must stay below 2^63; half of that is far enough.
LARGEST = 2.0**62


def fixed_point_limit(num_addends: int) -> float:
    """The limit for the values of an addend, in a sum of `num_addends`."""
    return LARGEST * UNIT / max(1, num_addends)


def require_fit(num_misfits: int, limit: float) -> None:
    """Raise Diverged if some micro-batches exceed the range of the fixed point."""
    if num_misfits:
        raise Diverged(
            f"The gradients of {num_misfits} micro-batches are not finite, or above {limit:.3g} in size: an exact sum"
            " would silently be wrong.",
            "Lower `step`, set `clip_norm`, or set reduction=fast if gradients of that size are meant.",
        )


class Workers:
    """The workers of a run as seen by one of them, which exchange touched rows and sums.

    This class itself is a single worker, in process.
    """

    rank, size = 0, 1
    sent_bytes = 0  # bytes that this worker has sent for sums so far

    def unite(self, touched: torch.Tensor) -> None:
        """Make a bool mask true wherever it is true on any worker, in place."""

    def add_up(self, values: torch.Tensor) -> None:
        """Replace values by their sum over all workers, in place. Never the mean."""

    def report(self, figures: Mapping[str, Any]) -> None:
        """Report an epoch's figures to the process that started the workers. All call it; the first worker's figures
        count.
        """


@dataclass(frozen=True, slots=True)
class WorkerShare:
    """One worker's part of a minibatch."""

    micro_batches: Sequence[Any]  # prepared by the path
    update: int  # from 1
    num_in_all: int  # micro-batches, on all workers together
    workers: Workers


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateReport:
    """What remains of an update when the memory of its gradients is reused."""

    loss: float  # summed over the minibatch
    norms: Mapping[str, float]  # of each tower's gradient, before re-normalisation


def large_update(towers: Towers, share: WorkerShare) -> UpdateReport:
    """Make an update from this worker's share of the minibatch, which may be empty.

    Raises Diverged, with nothing changed, if numbers are not finite or run away.
    """
    # In the same order on all workers, because it determines the layout of sums.
    touched = {tower: _all_touched_rows(tower, share, towers) for tower in sorted(towers.rows)}
    total = towers.path.sum_gradients(towers, share, touched)
    require_sane(total.loss, total.norms, towers.layout, share.update)
    most = towers.layout.recipe.optimiser.clip_norm or math.inf
    total.step({tower: most / norm if norm > most else 1.0 for tower, norm in total.norms.items()})
    return UpdateReport(loss=total.loss, norms=total.norms)


def _all_touched_rows(tower: str, share: WorkerShare, towers: Towers) -> torch.Tensor:
    """The rows of a tower that any worker's share touches and training moves, ascending."""
    device = towers.rows[tower].parameters.device
    sides = [side for side in ("query", "document") if tower_name(towers.layout.recipe, side) == tower]
    rows_of_batches = [batch.table_rows(side) for batch in share.micro_batches for side in sides]
    if device == CPU.place:  # NumPy does this in a third of the time
        marks = np.zeros(towers.layout.table_rows, bool)
        for rows in rows_of_batches:
            marks[rows.numpy()] = True
        share.workers.unite(torch.from_numpy(marks))
        touched = torch.from_numpy(np.flatnonzero(marks))
    else:
        mask = torch.zeros(towers.layout.table_rows, dtype=torch.bool, device=device)
        for rows in rows_of_batches:
            mask[rows] = True
        share.workers.unite(mask)
        touched = mask.nonzero()[:, 0]
    return towers.layout.touched(towers.layout.trained(touched))


def require_sane(loss: float, norms: Mapping[str, float], layout: Layout, update: int) -> None:
    """Raise Diverged before an update that is not finite, or longer than the parameters were when training began.

    Nothing else would stop it: the loss is bounded for any parameters (cosines are), and a step that throws the
    parameters far off leaves finite but meaningless numbers.

    Those are uniform in ±initial_range, so their length is initial_range √(numbers / 3). `norms`: of each tower's
    gradient, before re-normalisation.
    """
    recipe = layout.recipe
    length = recipe.initial_range * math.sqrt(layout.rows * layout.columns / 3)
    for tower, norm in norms.items():
        if not math.isfinite(norm) or not math.isfinite(loss):
            raise diverged(f"The gradient or the loss of update {update:,} is not finite.")
        if not recipe.optimiser.grows:
            continue
        moved = recipe.optimiser.step * min(norm, recipe.optimiser.clip_norm or math.inf)
        if moved > length:
            raise diverged(
                f"Update {update:,} would move the {tower} tower by {moved:,.3g} (its gradient's norm {norm:,.3g} times"
                f" `step`), further than all of its parameters measured at the start ({length:,.3g})."
            )


def diverged(problem: str) -> Diverged:
    return Diverged(
        problem,
        "Lower `step` (--set optimiser.step=...), or hold the gradient's norm down (--set optimiser.clip_norm=...).",
    )


# The gradient of a minibatch.


@dataclass(frozen=True, slots=True)
class GradientSum:
    """A minibatch's gradient, summed over all workers."""

    loss: float
    norms: Mapping[str, float]
    # Updates each tower's rows by its gradient times its scale. Call it once.
    step: Callable[[Mapping[str, float]], None]


class Path(Protocol):
    """Prepares micro-batches (indices only, ahead of time), adds up a minibatch's gradients, and steps."""

    def prepare(self, examples: Any) -> Any:
        """A micro-batch, made by an objective (training.trainer.objective), ready to compute, with its `table_rows`.

        Raises ValueError for a text without words.
        """

    def sum_gradients(self, towers: Towers, share: WorkerShare, touched: Mapping[str, torch.Tensor]) -> GradientSum:
        """The gradients of all workers' shares, at the look-ahead point and the touched rows of each tower.

        Raises StageError, on every worker alike, if they do not add up exactly.
        """


class LossBatch(Protocol):
    """A micro-batch of some objective, ready to compute on the reference path."""

    def to(self, device: torch.device) -> "LossBatch":
        """This batch, from the CPU, on a device."""

    def table_rows(self, side: str) -> torch.Tensor:
        """The rows of W that the queries, or the documents, touch."""

    def gradient(self, encoder: Encoder, update: int) -> LossGradient:
        """(gradients of towers, the loss), summed over its examples, at the point of the encoder."""
