"""The state of one tower's parameters while they are trained, whichever rule moves them.

nesterov    training.nesterov: the paper's (eq. 6)
adam        training.adam: the sister papers'
"""

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import torch

from training.adam import AdamRows
from training.nesterov import LazyRows, MomentumSchedule
from training.recipe import Recipe


class RowState(Protocol):
    """Some rows move at an update: those a minibatch touches."""

    @property
    def parameters(self) -> torch.Tensor: ...  # [rows, columns], raw

    def to(self, device: torch.device) -> "RowState":
        """This state on a device; counts stay on the CPU."""

    def published(self, rows: torch.Tensor, update: int, schedule: MomentumSchedule) -> torch.Tensor:
        """Λ_update of some rows; nothing is changed."""

    def all_published(self, update: int, schedule: MomentumSchedule) -> torch.Tensor:
        """Λ_update of every row, as a new tensor."""

    def look_ahead(self, rows: torch.Tensor, update: int, schedule: MomentumSchedule) -> torch.Tensor:
        """Some rows where the gradient of an update is taken."""

    def apply(
        self, rows: torch.Tensor, gradient: torch.Tensor, update: int, schedule: MomentumSchedule, step: float
    ) -> None:
        """Make an update on the rows (ascending, none twice) that have a gradient."""

    def arrays(self) -> dict[str, np.ndarray]:
        """All of it by name, on the CPU, for a checkpoint."""


def start_state(recipe: Recipe, parameters: torch.Tensor) -> RowState:
    """The state before the first update."""
    return AdamRows.start(parameters) if recipe.optimiser == "adam" else LazyRows.start(parameters)


def restored_state(arrays: Mapping[str, np.ndarray]) -> RowState:
    """The inverse of `RowState.arrays`. Raises KeyError where some are missing."""
    return AdamRows.restored(arrays) if "moment" in arrays else LazyRows.restored(arrays)
