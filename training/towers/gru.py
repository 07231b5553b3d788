"""The gated recurrent unit (Cho et al., arXiv:1406.1078), left to right; columns: reset gate, update gate, candidate.

r(t) = sigmoid(W_r l + R_r y(t-1) + b_r)        y_g(t) = tanh(W_g l + R_g (r ∘ y(t-1)) + b_g)
z(t) = sigmoid(W_z l + R_z y(t-1) + b_z)        y(t)   = z ∘ y(t-1) + (1 - z) ∘ y_g
"""

from dataclasses import dataclass

import torch
from torch.nn.functional import pad

from clicktower.training.towers.recurrent import RNNTower
from clicktower.training.towers.text_batch import TextBatch
from clicktower.training.towers.tower import Parts, packed_inputs
from clicktower.training.towers.tower_kinds import GRU


@dataclass(frozen=True, slots=True)
class GRUTower(RNNTower):
    @property
    def columns(self) -> int:
        return 3 * self.cells

    def states(self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch, steps: int = 0) -> list[torch.Tensor]:
        active = [batch.active(step) for step in range(batch.num_steps)]
        gates_G, candidate_G = parts["W_rec"].split([2 * self.cells, self.cells], dim=1)
        outputs, before = [], word_UG.new_zeros(0, self.cells)
        for step, input_nG in enumerate(packed_inputs(word_UG + parts["b"], batch).split(active)):
            before = before.detach() if step == batch.num_steps - steps else before
            before = pad(before, (0, 0, 0, len(input_nG) - len(before)))  # others begin here
            of_gates, of_candidate = input_nG.split([2 * self.cells, self.cells], dim=1)
            reset, update = (of_gates + before @ gates_G).sigmoid().chunk(2, dim=1)
            candidate = (of_candidate + (reset * before) @ candidate_G).tanh()
            before = update * before + (1 - update) * candidate
            outputs.append(before)
        return outputs


def gru(settings: GRU) -> GRUTower:
    """The tower of a recipe's settings."""
    return GRUTower(settings.cells)
