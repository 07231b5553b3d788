"""The LSTM of eq. 2 as printed: with a forget gate, and with matrices as peepholes (recurrent has diagonals).

    i(t) = sigmoid(W3 l + Wrec3 y(t-1) + Wp3 c(t-1) + b3)        f(t) likewise; o(t) with Wp1 c(t)

Columns of W_rec and b: output, forget, input, candidate; of W_peep the first three. The gradient is autograd's.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.nn.functional import pad

from clicktower.training.towers.recurrent import LSTMTrace, RNNTower
from clicktower.training.towers.text_batch import TextBatch
from clicktower.training.towers.tower import Parts, packed_inputs
from clicktower.training.towers.tower_kinds import PrintedLSTM
from clicktower.training.towers.tower_settings import Shapes


@dataclass(frozen=True, slots=True)
class PrintedLSTMTower(RNNTower):
    @property
    def columns(self) -> int:
        return 4 * self.cells

    @property
    def parts(self) -> Shapes:
        d = self.cells
        return ("W_rec", (d, 4 * d)), ("b", (4 * d,)), ("W_peep", (d, 3 * d))

    def states(self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch, steps: int = 0) -> list[torch.Tensor]:
        return [y for *_, y in self._steps(word_UG, parts, batch, steps)]

    def trace(self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch) -> LSTMTrace:
        """Every gate and state, without a gradient."""
        *gates, cells, states = (
            torch.cat(of_steps) for of_steps in zip(*self._steps(word_UG, parts, batch), strict=True)
        )
        return LSTMTrace(gates_PG=torch.cat(gates, dim=1), squashed_Pd=cells.tanh(), state_Pd=states, cell_Pd=cells)

    def _steps(
        self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch, steps: int = 0
    ) -> Iterator[tuple[torch.Tensor, ...]]:
        """o, f, i, y_g, c and y of each step's texts."""
        d = self.cells
        on_new_dd, on_old_dG = parts["W_peep"].split([d, 2 * d], dim=1)
        active = [batch.active(step) for step in range(batch.num_steps)]
        y, c = word_UG.new_zeros(0, d), word_UG.new_zeros(0, d)
        for step, input_nG in enumerate(packed_inputs(word_UG + parts["b"], batch).split(active)):
            if step == batch.num_steps - steps:
                y, c = y.detach(), c.detach()
            y, c = (pad(before, (0, 0, 0, len(input_nG) - len(before))) for before in (y, c))  # others begin here
            out, gates, candidate = (input_nG + y @ parts["W_rec"]).split([d, 2 * d, d], dim=1)
            forget, inward = (gates + c @ on_old_dG).sigmoid().chunk(2, dim=1)
            candidate = candidate.tanh()
            c = forget * c + inward * candidate
            out = (out + c @ on_new_dd).sigmoid()
            y = out * c.tanh()
            yield out, forget, inward, candidate, c, y


def printed_lstm(settings: PrintedLSTM) -> PrintedLSTMTower:
    """The tower of a recipe's settings."""
    return PrintedLSTMTower(settings.cells)
