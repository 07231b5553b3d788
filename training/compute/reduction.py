"""The sum of the micro-batches' gradients over a minibatch and over all workers, and the data that workers exchange.

exact: every gradient is rounded once to a 64-bit fixed-point number with unit 2^-40; integers add up to the same
sum in any grouping, so one, two or five workers give the same bytes. Values of 2^-16 and more keep every bit of a
float32. fast: floating point, an ordinary all-reduce, equal up to rounding.

Only rows that some worker touched are summed and travel.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from clicktower.schemas.errors import Diverged

UNIT = 2.0**-40
# The sum of a minibatch must stay below 2^63; half of that is far enough.
LARGEST = 2.0**62


Parts = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class RowGradient:
    """The gradient of one tower: of some rows of W (ascending, none twice; zero elsewhere), and of all parts."""

    rows: torch.Tensor
    table_RG: torch.Tensor
    parts: Parts


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
