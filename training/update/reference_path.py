"""The reference path: micro-batches in torch, on a CPU or a GPU, for every tower. The definition of the other one."""

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from training.compute.reduction import Addend, GradientSum, RowGradient
from training.compute.workers import Workers
from training.gpu.device import CPU, Device
from training.network.encoder import Encoder
from training.network.parameters import DTYPES
from training.update.click_loss import pair_batch
from training.update.paths import Run


@dataclass(frozen=True, slots=True)
class ReferenceSum:
    """As paths.Summed."""

    run: Run
    touched: Mapping[str, torch.Tensor]
    gradients: Mapping[str, torch.Tensor]
    threads: Executor
    update: int
    loss: float
    norms: Mapping[str, float]

    def step(self, scales: Mapping[str, float]) -> None:
        def step_one(tower: str) -> None:
            gradient, run = self.gradients[tower], self.run
            if scales[tower] != 1:
                gradient *= scales[tower]
            for first, last, step in run.layout.stretches(len(gradient), run.recipe):
                rows = self.touched[tower][first:last]
                run.rows[tower].apply(rows, gradient[first:last], self.update, run.schedule, step)

        list(self.threads.map(step_one, scales))


class LossBatch(Protocol):
    """A micro-batch of some objective, ready to compute."""

    def to(self, device: torch.device) -> "LossBatch":
        """This batch, from the CPU, on a device."""

    def table_rows(self, side: str) -> torch.Tensor:
        """The rows of W that the queries, or the documents, touch."""

    def gradient(self, encoder: Encoder, update: int) -> tuple[list[tuple[str, RowGradient]], torch.Tensor]:
        """(gradients of towers, the loss), summed over its examples, at the point of the encoder."""


@dataclass(frozen=True, slots=True)
class ReferencePath:
    """As paths.Path. `threads` compute a whole micro-batch each."""

    device: Device = CPU
    batch_of: Callable[[Any], LossBatch] = pair_batch  # of what an objective makes of a micro-batch

    def prepare(self, examples: Any) -> LossBatch:
        return self.batch_of(examples).to(self.device.place)

    def table_rows(self, micro_batch: LossBatch, side: str) -> torch.Tensor:
        return micro_batch.table_rows(side)

    def sum_gradients(
        self,
        run: Run,
        share: Sequence[LossBatch],
        touched: Mapping[str, torch.Tensor],
        *,
        update: int,
        num_micro_batches: int,
        workers: Workers,
        threads: Executor,
    ) -> ReferenceSum:
        recipe, encoder = run.recipe, self._look_ahead(run, update)
        exact, dtype = recipe.reduction == "exact", DTYPES[recipe.dtype]
        total = GradientSum(touched, run.layout.columns, dtype, exact=exact, num_addends=num_micro_batches)

        def addend_of(batch: LossBatch) -> Addend:
            gradients, loss = batch.gradient(encoder, update)
            return total.addend(gradients, loss)

        for addend in threads.map(addend_of, share):
            total.add(addend, threads)
        gradients, loss = total.over(workers)
        norms = torch.stack(list(threads.map(_norm, gradients.values())))
        of_towers = dict(zip(gradients, norms.tolist(), strict=True))
        return ReferenceSum(run, touched, gradients, threads, update, loss, of_towers)

    def largest(self, run: Run, micro_batch: LossBatch, update: int) -> float:
        gradients, loss = micro_batch.gradient(self._look_ahead(run, update), update)
        sizes = [values.abs().max().item() for values in (loss, *(gradient.values for _, gradient in gradients))]
        return max(sizes) if all(map(math.isfinite, sizes)) else math.inf

    def _look_ahead(self, run: Run, update: int) -> Encoder:
        """Λ_{k-1} + μ_{k-1} ΔΛ_{k-1}: where the gradient of update k is taken."""
        return Encoder(
            run.recipe,
            run.layout,
            lambda tower, rows: run.rows[tower].look_ahead(rows, update, run.schedule),
            self.device,
        )


def _norm(gradient: torch.Tensor) -> torch.Tensor:
    # The norm of the rows' norms: five times faster than one sum in float64, and as good.
    return torch.linalg.vector_norm(torch.linalg.vector_norm(gradient, dim=1).double())
