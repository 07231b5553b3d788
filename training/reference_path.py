"""The reference path: micro-batches in torch, on a CPU or a GPU, for every tower. The definition of the other one."""

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import torch

from training.gpu.device import CPU, Device
from training.pair_gradient import Encoder, PairBatch, pair_batch, pair_gradient
from training.pairs import Pairs
from training.parameters import DTYPES
from training.paths import Run
from training.profile import Recorder
from training.reduction import Addend, GradientSum
from training.workers import Workers


@dataclass(frozen=True, slots=True)
class ReferenceSum:
    """As training.paths.Summed."""

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
            run.rows[tower].apply(self.touched[tower], gradient, self.update, run.schedule, run.recipe.step)

        list(self.threads.map(step_one, scales))


@dataclass(frozen=True, slots=True)
class ReferencePath:
    """As training.paths.Path. `threads` compute a whole micro-batch each."""

    device: Device = CPU

    def prepare(self, pairs: Pairs) -> PairBatch:
        return pair_batch(pairs).to(self.device.place)

    def table_rows(self, micro_batch: PairBatch, side: str) -> torch.Tensor:
        return (micro_batch.queries if side == "query" else micro_batch.documents).rows

    def sum_gradients(
        self,
        run: Run,
        share: Sequence[PairBatch],
        touched: Mapping[str, torch.Tensor],
        *,
        update: int,
        num_micro_batches: int,
        workers: Workers,
        threads: Executor,
        phases: Recorder,
    ) -> ReferenceSum:
        recipe, encoder = run.recipe, self._look_ahead(run, update)
        exact, dtype = recipe.reduction == "exact", DTYPES[recipe.dtype]
        total = GradientSum(touched, run.layout.columns, dtype, exact=exact, num_addends=num_micro_batches)

        def addend_of(batch: PairBatch) -> Addend:
            gradients, loss = pair_gradient(batch, encoder, phases)
            with phases("reduction"):
                return total.addend(gradients, loss)

        with phases("micro-batches"):
            for addend in threads.map(addend_of, share):
                with phases("reduction"):
                    total.add(addend, threads)
        with phases("workers"):
            gradients, loss = total.over(workers)
        with phases("update"):
            norms = torch.stack(list(threads.map(_norm, gradients.values())))
            of_towers = dict(zip(gradients, norms.tolist(), strict=True))
        return ReferenceSum(run, touched, gradients, threads, update, loss, of_towers)

    def largest(self, run: Run, micro_batch: PairBatch, update: int) -> float:
        gradients, loss = pair_gradient(micro_batch, self._look_ahead(run, update))
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
