"""The plain recurrent tower: y(t) = tanh(W l(t) + W_rec y(t-1) + b) (eq. 1).

Shapes as in tower, with G = d.
"""

from dataclasses import dataclass

import torch
from torch.nn.functional import pad

from training.data.text_batch import TextBatch
from training.recipes.towers import RNN
from training.towers.tower import Parts, Shapes, packed_inputs


@dataclass(frozen=True, slots=True)
class RNNTower:
    cells: int

    @property
    def columns(self) -> int:
        return self.cells

    @property
    def dimensions(self) -> int:
        return self.cells

    @property
    def parts(self) -> Shapes:
        return ("W_rec", (self.cells, self.columns)), ("b", (self.columns,))

    def forward(
        self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch, steps: int = 0
    ) -> tuple[torch.Tensor, float]:
        """As tower.Tower.forward."""
        return self.states(word_UG, parts, batch, steps)[-1], 0.0

    def states(self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch, steps: int = 0) -> list[torch.Tensor]:
        """y(t) of each step's texts."""
        active = [batch.active(step) for step in range(batch.num_steps)]
        of_steps = packed_inputs(word_UG + parts["b"], batch).split(active)
        found = [of_steps[0].tanh()]
        for step, input_nG in enumerate(of_steps[1:], start=1):
            before = found[-1].detach() if step == batch.num_steps - steps else found[-1]
            recurrent = pad(before @ parts["W_rec"], (0, 0, 0, len(input_nG) - len(before)))  # others begin here
            found.append((input_nG + recurrent).tanh())
        return found


def rnn(settings: RNN) -> RNNTower:
    """The tower of a recipe's settings."""
    return RNNTower(settings.cells)
