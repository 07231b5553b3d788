"""Adam (Kingma and Ba, arXiv:1412.6980, Algorithm 1) on the rows that a minibatch touches, others standing still.

    m = β₁ m + (1 - β₁) g        v = β₂ v + (1 - β₂) g²
    Λ = Λ - ε (m / (1 - β₁^t)) / (sqrt(v / (1 - β₂^t)) + 1e-8)

β₁ = 0.9, β₂ = 0.999; t counts the row's own updates, so that a rare row's first step is as long as a common row's was.
Every operation rounds once for each number, so a row's value never depends on the rows beside it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

from training.nesterov import MomentumSchedule

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8


@dataclass(frozen=True, slots=True)
class AdamRows:
    """One tower's state, as training.states.RowState."""

    parameters: torch.Tensor  # Λ, [rows, columns]
    moment: torch.Tensor  # m, [rows, columns]
    square: torch.Tensor  # v, [rows, columns]
    count: np.ndarray  # t, int32 [rows]

    @staticmethod
    def start(parameters: torch.Tensor) -> "AdamRows":
        nothing = torch.zeros_like(parameters)
        return AdamRows(parameters, nothing, nothing.clone(), np.zeros(len(parameters), np.int32))

    @staticmethod
    def restored(arrays: Mapping[str, np.ndarray]) -> "AdamRows":
        parameters, moment, square = (torch.from_numpy(arrays[name]) for name in ("parameters", "moment", "square"))
        return AdamRows(parameters, moment, square, arrays["count"])

    def to(self, device: torch.device) -> "AdamRows":
        return AdamRows(self.parameters.to(device), self.moment.to(device), self.square.to(device), self.count)

    def published(self, rows: torch.Tensor, update: int, schedule: MomentumSchedule) -> torch.Tensor:
        return self.parameters.index_select(0, rows)

    def all_published(self, update: int, schedule: MomentumSchedule) -> torch.Tensor:
        return self.parameters.clone()

    def look_ahead(self, rows: torch.Tensor, update: int, schedule: MomentumSchedule) -> torch.Tensor:
        return self.parameters.index_select(0, rows)

    def apply(
        self, rows: torch.Tensor, gradient: torch.Tensor, update: int, schedule: MomentumSchedule, step: float
    ) -> None:
        index = rows.cpu().numpy()
        self.count[index] += 1
        corrected_1, corrected_2 = (self._column(table[self.count[index]]) for table in _corrections(schedule.total))
        moment = self.moment.index_select(0, rows).mul_(BETA_1).add_(gradient * (1 - BETA_1))
        square = self.square.index_select(0, rows).mul_(BETA_2).add_((gradient * gradient).mul_(1 - BETA_2))
        self.moment.index_copy_(0, rows, moment)
        self.square.index_copy_(0, rows, square)
        length = (square / corrected_2).sqrt_().add_(EPSILON)
        moved = (moment / corrected_1).div_(length).mul_(step)
        self.parameters.index_copy_(0, rows, self.parameters.index_select(0, rows).sub_(moved))

    def arrays(self) -> dict[str, np.ndarray]:
        tensors = {"parameters": self.parameters, "moment": self.moment, "square": self.square}
        return {**{name: tensor.cpu().numpy() for name, tensor in tensors.items()}, "count": self.count}

    def _column(self, values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(values).to(self.parameters)[:, None]


@cache
def _corrections(total: int) -> tuple[np.ndarray, np.ndarray]:
    """1 - β^t for t up to `total`. Tables, because a power in a vector of another length may round differently."""
    counts = np.arange(total + 1, dtype=np.float64)
    return 1 - BETA_1**counts, 1 - BETA_2**counts
