"""The max-pooled tower: of a bidirectional LSTM's states the largest value over the words, dimension by dimension.

    v = max_t h(t)        h(t) of every_state

The baseline of Lin et al. (arXiv:1703.03130, section 4) and of SNLI (Conneau et al., arXiv:1705.02364, section 3.2.2).
Where two words share a maximum, the gradient goes to the earlier one.

Shapes as in tower, with P packed rows (text_batch) and d = D = 2 cells.
"""

from dataclasses import dataclass

import torch

from training.data.text_batch import TextBatch
from training.towers.every_state import EveryState, EveryStateTrace
from training.towers.lstm import LSTM
from training.towers.tower import Parts, Shapes, by_value, highest


@dataclass(frozen=True, slots=True)
class MaxPooledTrace:
    states: EveryStateTrace
    winner_Nd: torch.Tensor  # the packed row that has the maximum


@dataclass(frozen=True, slots=True)
class MaxPooled:
    one_way: LSTM

    @property
    def columns(self) -> int:
        return self._states.columns

    @property
    def dimensions(self) -> int:
        return self._states.dimensions

    @property
    def parts(self) -> Shapes:
        return self._states.parts

    def forward(self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch) -> tuple[torch.Tensor, MaxPooledTrace]:
        """As tower.Tower.forward."""
        state_PD, states = self._states.forward(word_UG, parts, batch)
        vectors_Nd, winner_Nd = highest(state_PD, batch)
        return vectors_Nd, MaxPooledTrace(states, winner_Nd)

    def backward(
        self, trace: MaxPooledTrace, by_vectors_Nd: torch.Tensor, parts: Parts, batch: TextBatch, steps: int = 0
    ) -> tuple[torch.Tensor, Parts]:
        """As tower.Tower.backward; every word is looked at, so there is no one step to count from."""
        by_state_PD = by_value(by_vectors_Nd, trace.winner_Nd, batch.step_offsets[-1])
        return self._states.backward(trace.states, by_state_PD, parts, batch)

    @property
    def _states(self) -> EveryState:
        return EveryState(self.one_way)
