"""A bidirectional LSTM's state at every word, for towers that look at them all and not at the last ones alone.

    h(t) = y(t) of the LSTM that reads left to right and of the other, side by side

Shapes as in tower, with P packed rows (text_batch) and D = 2 d states.
"""

from dataclasses import dataclass

import torch

from training.data.text_batch import TextBatch
from training.towers.bilstm import BidirectionalLSTM, BidirectionalTrace, both_ways, side_by_side
from training.towers.lstm import LSTM
from training.towers.tower import Parts, Shapes, opposite


@dataclass(frozen=True, slots=True)
class EveryStateTrace:
    both: BidirectionalTrace
    opposite_P: torch.Tensor


@dataclass(frozen=True, slots=True)
class EveryState:
    one_way: LSTM

    @property
    def columns(self) -> int:
        return self._both.columns

    @property
    def dimensions(self) -> int:
        """D."""
        return self._both.dimensions

    @property
    def parts(self) -> Shapes:
        return self._both.parts

    def forward(self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch) -> tuple[torch.Tensor, EveryStateTrace]:
        """(h(t) in each packed row [P, D], what backward needs). `parts` may hold others beside these."""
        _, both = self._both.forward(word_UG, self._own(parts), batch)
        opposite_P = opposite(batch)
        to_left_Pd = self.one_way.states(both.right_to_left)[opposite_P]
        state_PD = torch.cat([self.one_way.states(both.left_to_right), to_left_Pd], dim=1)
        return state_PD, EveryStateTrace(both, opposite_P)

    def backward(
        self, trace: EveryStateTrace, by_state_PD: torch.Tensor, parts: Parts, batch: TextBatch
    ) -> tuple[torch.Tensor, Parts]:
        """As tower.Tower.backward, given the gradient of h(t) in each packed row."""
        both, last = trace.both, batch.step_offsets[-2]
        to_right, to_left = both_ways(self._own(parts))
        by_right_Pd, by_left_Pd = by_state_PD.chunk(2, dim=1)
        by_left_Pd = by_left_Pd[trace.opposite_P]
        by_right_UG, right = self.one_way.backward(
            both.left_to_right, by_right_Pd[last:], to_right, batch, by_earlier_Pd=by_right_Pd
        )
        by_left_UG, left = self.one_way.backward(
            both.right_to_left, by_left_Pd[last:], to_left, both.reversed_texts, by_earlier_Pd=by_left_Pd
        )
        return torch.cat([by_right_UG, by_left_UG], dim=1), side_by_side(right, left)

    @property
    def _both(self) -> BidirectionalLSTM:
        return BidirectionalLSTM(self.one_way)

    def _own(self, parts: Parts) -> Parts:
        return {name: parts[name] for name, _ in self.parts}
