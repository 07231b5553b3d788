"""One large update (Algorithm 1): the gradients of a whole minibatch, from all workers, added up and applied once.

sum over micro-batches and workers  ->  each tower's norm held below th_G  ->  one Nesterov step
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import torch

from schemas.errors import StageError
from training.nesterov import LazyRows, MomentumSchedule
from training.pair_gradient import Encoder, PairBatch, pair_gradient
from training.parameters import DTYPES, Layout, tower_name
from training.recipes import Recipe
from training.reduction import GradientSum
from training.workers import Workers


@dataclass(frozen=True, kw_only=True, slots=True)
class Towers:
    """The state of a run: each tower's rows, and the schedule that moves them."""

    recipe: Recipe
    layout: Layout
    rows: dict[str, LazyRows]
    schedule: MomentumSchedule

    def look_ahead(self, update: int) -> Encoder:
        """Λ_{k-1} + μ_{k-1} ΔΛ_{k-1}: where the gradient of update k is taken."""
        return self._encoder(lambda tower, rows: self.rows[tower].look_ahead(rows, update, self.schedule))

    def published(self, update: int) -> Encoder:
        """Λ_k, after update k."""
        return self._encoder(lambda tower, rows: self.rows[tower].published(rows, update, self.schedule))

    def _encoder(self, rows_at: Callable[[str, torch.Tensor], torch.Tensor]) -> Encoder:
        return Encoder(self.recipe, self.layout, rows_at)

    @property
    def dtype(self) -> torch.dtype:
        return DTYPES[self.recipe.dtype]


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateReport:
    loss: float  # summed over the minibatch
    norms: dict[str, float]  # of each tower's gradient, before re-normalisation


def large_update(
    towers: Towers,
    share: Sequence[PairBatch],
    *,
    update: int,
    num_micro_batches: int,
    workers: Workers,
    threads: Executor,
) -> UpdateReport:
    """Make update `update` (from 1) out of this worker's share of the minibatch, which may be empty.

    `num_micro_batches`: of the minibatch on all workers together. `threads` compute the share's micro-batches, then the
    towers' steps. Raises StageError where numbers are not finite.
    """
    recipe, encoder = towers.recipe, towers.look_ahead(update)
    # In one order on all workers: what they add up is laid out by it.
    touched = {tower: _touched(tower, share, towers, workers) for tower in sorted(towers.rows)}
    total = GradientSum(
        touched, towers.layout.columns, towers.dtype, exact=recipe.reduction == "exact", num_addends=num_micro_batches
    )
    for addend in threads.map(lambda batch: total.addend(*pair_gradient(batch, encoder)), share):
        total.add(addend)
    gradients, loss = total.over(workers)

    def step(tower: str) -> float:
        gradient = gradients[tower]
        # The norm of the rows' norms: five times faster than one sum in float64, and as good.
        norm = torch.linalg.vector_norm(torch.linalg.vector_norm(gradient, dim=1).double()).item()
        if not norm < float("inf"):
            raise _not_finite(update)
        if recipe.clip_norm and norm > recipe.clip_norm:
            gradient *= recipe.clip_norm / norm
        towers.rows[tower].apply(touched[tower], gradient, update, towers.schedule, recipe.step)
        return norm

    return UpdateReport(loss=loss, norms=dict(zip(gradients, threads.map(step, gradients), strict=True)))


def _touched(tower: str, share: Iterable[PairBatch], towers: Towers, workers: Workers) -> torch.Tensor:
    """The rows of a tower that any worker's share touches, ascending."""
    mask = torch.zeros(towers.layout.table_rows, dtype=torch.bool, device=towers.rows[tower].parameters.device)
    for micro_batch in share:
        for side, batch in (("query", micro_batch.queries), ("document", micro_batch.documents)):
            if tower_name(towers.recipe, side) == tower:
                mask[batch.rows] = True
    workers.unite(mask)
    return towers.layout.touched(mask.nonzero()[:, 0])


def _not_finite(update: int) -> StageError:
    return StageError(
        asked="each update needs finite gradients",
        found=f"those of update {update:,} are not",
        follows="every parameter would become NaN",
        do="lower `step` (--set step=...), or hold the gradient's norm down (--set clip_norm=...)",
    )
