"""The sum of the micro-batches' gradients over a minibatch and over all workers.

exact: every gradient is cut once to a 64-bit fixed-point number with 2^-40 as its unit; integers add up to the same
sum in any grouping, so one, two or five workers give the same bytes. Values of 2^-16 and more keep every bit of a
float32. fast: floating point, an ordinary all-reduce, equal up to rounding.

Only rows that some worker touched are summed and travel.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from schemas.errors import StageError
from training.workers import Workers

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
    """One micro-batch's part of the sum; without a loss where it does not fit the fixed point."""

    parts: Sequence[tuple[str, torch.Tensor, torch.Tensor]]  # tower, places in its rows, values
    loss: torch.Tensor | None


class GradientSum:
    """Adds up the RowGradients of several towers, and the loss, then sums over workers."""

    def __init__(
        self, rows: Mapping[str, torch.Tensor], columns: int, dtype: torch.dtype, *, exact: bool, num_addends: int
    ) -> None:
        """`rows`: what is summed, by tower; on every worker the same. `num_addends`: micro-batches on all workers."""
        self._exact, self._dtype, self._rows = exact, dtype, rows
        self._limit = LARGEST * UNIT / max(1, num_addends)
        device = next(iter(rows.values())).device
        # Towers one after the other, then the loss and the number of addends that do not fit: one message a step.
        sizes = [len(r) * columns for r in rows.values()]
        self._flat = torch.zeros(sum(sizes) + 2, dtype=torch.int64 if exact else dtype, device=device)
        views = self._flat.split([*sizes, 2])
        self._sums = {tower: view.view(-1, columns) for tower, view in zip(rows, views, strict=False)}
        self._loss, self._misfits = self._flat[-2], self._flat[-1]

    def addend(self, gradients: Sequence[tuple[str, RowGradient]], loss: torch.Tensor) -> Addend:
        """A micro-batch's gradients (used up) as they are added; may be made on any thread."""
        parts = []
        for tower, gradient in gradients:
            values = self._number(gradient.values)
            if values is None:
                return Addend([], None)
            parts.append((tower, torch.searchsorted(self._rows[tower], gradient.rows), values))
        return Addend(parts, self._number(loss))

    def add(self, addend: Addend) -> None:
        """Add a micro-batch. Calls must follow one another, and for `fast` in the order of the micro-batches."""
        for tower, at, values in addend.parts:
            self._sums[tower].index_add_(0, at, values)
        if addend.loss is None:
            self._misfits += 1
        else:
            self._loss += addend.loss

    def over(self, workers: Workers) -> tuple[dict[str, torch.Tensor], float]:
        """(gradient at the rows of each tower, loss), summed over all workers.

        Raises StageError, on every worker alike, where an addend was not finite or too large for the fixed point.
        """
        workers.add_up(self._flat)
        if self._misfits.item():
            raise StageError(
                asked="the gradients of a minibatch were to be added up exactly",
                found=f"those of {int(self._misfits)} micro-batches are not finite, or above {self._limit:.3g} in size",
                follows="the sum would be wrong without a sign",
                do="lower `step`, set `clip_norm`, or set reduction=fast if gradients of that size are meant",
            )
        if not self._exact:
            return self._sums, float(self._loss)
        return {t: s.to(self._dtype).mul_(UNIT) for t, s in self._sums.items()}, int(self._loss) * UNIT

    def _number(self, values: torch.Tensor) -> torch.Tensor | None:
        """Values (used up) as numbers of the sum; None where one does not fit the fixed point."""
        if not self._exact:
            return values.to(self._dtype)
        low, high = values.aminmax()
        if not (low > -self._limit and high < self._limit):  # also where one is NaN
            return None
        return values.mul_(1 / UNIT).to(torch.int64)
