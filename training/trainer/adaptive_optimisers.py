"""How Adam and AdaGrad move parameters: as RowState, with what each remembers of a row."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

from clicktower.training.trainer.optimisers import MomentumSchedule, Rows, RowState, no_update, put_rows, take_rows


@dataclass(frozen=True, slots=True)
class AdaGradRows(RowState):
    """Under AdaGrad (Duchi et al., JMLR 2011): s = s + g², Λ = Λ - ε g / (sqrt(s) + 1e-10)."""

    total: torch.Tensor  # s, [rows, columns]

    @staticmethod
    def start(parameters: torch.Tensor) -> "AdaGradRows":
        return AdaGradRows(parameters, torch.zeros_like(parameters))

    def apply(self, rows: Rows, gradient: torch.Tensor, update: int, schedule: MomentumSchedule, step: float) -> None:
        total = take_rows(self.total, rows).addcmul_(gradient, gradient)
        put_rows(self.total, rows, total)
        parameters = take_rows(self.parameters, rows).addcdiv_(gradient, total.sqrt().add_(1e-10), value=-step)
        put_rows(self.parameters, rows, parameters)


@dataclass(frozen=True, slots=True)
class AdamRows(RowState):
    """Under Adam (Kingma and Ba, arXiv:1412.6980, Algorithm 1); rows without a gradient stand still.

        m = β₁ m + (1 - β₁) g        v = β₂ v + (1 - β₂) g²
        Λ = Λ - ε (m / (1 - β₁^t)) / (sqrt(v / (1 - β₂^t)) + 1e-8)

    β₁ = 0.9, β₂ = 0.999; t counts the row's own updates, so that a rare row's first step is as long as a common row's
    was. Every operation rounds once for each number, so a row's value never depends on the rows beside it.
    """

    moment: torch.Tensor  # m, [rows, columns]
    square: torch.Tensor  # v, [rows, columns]
    count: torch.Tensor  # t, int32 [rows]

    @staticmethod
    def start(parameters: torch.Tensor) -> "AdamRows":
        nothing = torch.zeros_like(parameters)
        return AdamRows(parameters, nothing, nothing.clone(), no_update(parameters))

    def apply(self, rows: Rows, gradient: torch.Tensor, update: int, schedule: MomentumSchedule, step: float) -> None:
        count = take_rows(self.count, rows).add_(1)
        put_rows(self.count, rows, count)
        corrected_1, corrected_2 = (
            self._column(table.index_select(0, count)) for table in _corrections(schedule.total, self.count.device)
        )
        moment = take_rows(self.moment, rows).mul_(BETA_1).add_(gradient * (1 - BETA_1))
        square = take_rows(self.square, rows).mul_(BETA_2).add_((gradient * gradient).mul_(1 - BETA_2))
        put_rows(self.moment, rows, moment)
        put_rows(self.square, rows, square)
        length = (square / corrected_2).sqrt_().add_(EPSILON)
        RowState.apply(self, rows, (moment / corrected_1).div_(length), update, schedule, step)


BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8


@cache
def _corrections(total: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """1 - β^t for t up to `total`. Tables, because a power in a vector of another length may round differently."""
    counts = np.arange(total + 1, dtype=np.float64)
    return torch.from_numpy(1 - BETA_1**counts).to(device), torch.from_numpy(1 - BETA_2**counts).to(device)
