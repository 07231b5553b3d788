"""The sum of the micro-batches' gradients over a minibatch and over all workers, and what the workers exchange.

exact: every gradient is rounded once to a 64-bit fixed-point number with unit 2^-40; integers add up to the same
sum in any grouping, so one, two or five workers give the same bytes. Values of 2^-16 and more keep every bit of a
float32. fast: floating point, an ordinary all-reduce, equal up to rounding.

Only rows that some worker touched are summed and travel.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import torch

from schemas.errors import Diverged
from training.compute.threads import empty

UNIT = 2.0**-40
# The sum of a minibatch must stay below 2^63; half of that is far enough.
LARGEST = 2.0**62


@dataclass(frozen=True, slots=True)
class RowGradient:
    """The gradient of one tower: `values` [rows, columns] at `rows` (ascending, none twice), zero elsewhere."""

    rows: torch.Tensor
    values: torch.Tensor


@dataclass(frozen=True, slots=True)
class Addend:
    """One micro-batch's contribution to the sum."""

    parts: Sequence[tuple[str, torch.Tensor, torch.Tensor]]  # tower, places in its rows, values
    loss: torch.Tensor
    misfit: torch.Tensor | None  # of the exact sum: true if a value does not fit, so that the sum is meaningless


def fixed_point_limit(num_addends: int) -> float:
    """The limit for the values of each of so many addends."""
    return LARGEST * UNIT / max(1, num_addends)


def require_fit(num_misfits: int, limit: float) -> None:
    """Raise Diverged if some micro-batches did not fit the fixed point."""
    if num_misfits:
        raise Diverged(
            f"The gradients of {num_misfits} micro-batches are not finite, or above {limit:.3g} in size: an exact sum"
            " would silently be wrong.",
            "Lower `step`, set `clip_norm`, or set reduction=fast if gradients of that size are meant.",
        )


class GradientSum:
    """Adds up the RowGradients of several towers, and the loss, then sums over workers."""

    def __init__(
        self, rows: Mapping[str, torch.Tensor], columns: int, dtype: torch.dtype, *, exact: bool, num_addends: int
    ) -> None:
        """`rows`: what is summed, by tower; on every worker the same. `num_addends`: micro-batches on all workers."""
        self._exact, self._dtype, self._rows = exact, dtype, rows
        self._limit = fixed_point_limit(num_addends)
        device = next(iter(rows.values())).device
        # Towers one after the other, then the loss and the number of addends that do not fit: one message a step.
        sizes = [len(r) * columns for r in rows.values()]
        number = torch.zeros(1, dtype=torch.int64 if exact else dtype, device=device)
        self._flat = empty((sum(sizes) + 2,), number).zero_()
        views = self._flat.split([*sizes, 2])
        self._sums = {tower: view.view(-1, columns) for tower, view in zip(rows, views, strict=False)}
        self._loss, self._misfits = self._flat[-2], self._flat[-1]

    def addend(self, gradients: Sequence[tuple[str, RowGradient]], loss: torch.Tensor) -> Addend:
        """A micro-batch's gradients (used up) as they are added; may be made on any thread."""
        misfit = self._misfit([*(gradient.values for _, gradient in gradients), loss]) if self._exact else None
        parts = [
            (tower, torch.searchsorted(self._rows[tower], gradient.rows), self._number(gradient.values))
            for tower, gradient in gradients
        ]
        return Addend(parts, self._number(loss), misfit)

    def add(self, addend: Addend, threads: Executor) -> None:
        """Add a micro-batch, one thread per tower. Calls are sequential; for `fast` in the micro-batches' order."""

        def add_to(tower: str) -> None:
            for name, at, values in addend.parts:
                if name == tower:
                    self._sums[tower].index_add_(0, at, values)

        list(threads.map(add_to, self._sums))
        self._loss += addend.loss
        if addend.misfit is not None:
            self._misfits += addend.misfit

    def over(self, workers: "Workers") -> tuple[dict[str, torch.Tensor], float]:
        """(gradient at the rows of each tower, loss), summed over all workers.

        Raises Diverged, on every worker alike, where an addend was not finite or too large for the fixed point.
        """
        workers.add_up(self._flat)
        loss, misfits = self._flat[-2:].tolist()  # both at once: a GPU is waited for
        require_fit(int(misfits), self._limit)
        if not self._exact:
            return self._sums, loss
        return {t: s.to(self._dtype).mul_(UNIT) for t, s in self._sums.items()}, loss * UNIT

    def _misfit(self, addends: Sequence[torch.Tensor]) -> torch.Tensor:
        """Whether a value does not fit the fixed point: a tensor, since to look at it is to wait for a GPU."""
        bounds = torch.stack([bound for values in addends for bound in values.aminmax()])
        return ~(bounds.abs() < self._limit).all()  # also where one is NaN

    def _number(self, values: torch.Tensor) -> torch.Tensor:
        """Values (overwritten) in the number format of the sum."""
        if not self._exact:
            return values.to(self._dtype)
        return empty(values.shape, self._flat).copy_(values.mul_(1 / UNIT))


class Workers:
    """The workers of a run from the view of one of them, between which touched rows and sums travel.

    As it is, a single one, in process.
    """

    rank, size = 0, 1
    sent_bytes = 0  # that this worker has handed to the sums so far

    def unite(self, touched: torch.Tensor) -> None:
        """Make a bool mask true wherever it is true on any worker, in place."""

    def add_up(self, values: torch.Tensor) -> None:
        """Replace values by their sum over all workers, in place. Never the mean."""

    def report(self, figures: Mapping[str, Any]) -> None:
        """Report an epoch's figures to whoever started the workers. All call it; those of the first one count."""


class ProcessGroup(Workers):
    """Workers in the processes of torch's default process group."""

    def __init__(self) -> None:
        self.rank = torch.distributed.get_rank()
        self.size = torch.distributed.get_world_size()

    def unite(self, touched: torch.Tensor) -> None:
        as_bytes = touched.to(torch.uint8)
        self.sent_bytes += as_bytes.nbytes
        torch.distributed.all_reduce(as_bytes, torch.distributed.ReduceOp.MAX)
        touched.copy_(as_bytes)

    def add_up(self, values: torch.Tensor) -> None:
        self.sent_bytes += values.nbytes
        torch.distributed.all_reduce(values, torch.distributed.ReduceOp.SUM)
