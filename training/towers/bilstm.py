"""The bidirectional LSTM tower: one LSTM reads left to right, one right to left; their last vectors side by side.

The second one ends at the text's first word, from which its T steps of truncated back-propagation are counted. Columns
are those of the first LSTM, then those of the second, and so is the last axis of each part.

Shapes as in tower.
"""

from dataclasses import dataclass
from typing import Any

import torch

from training.data.text_batch import TextBatch
from training.towers.tower import Parts, Shapes, Tower, right_to_left


@dataclass(frozen=True, slots=True)
class BidirectionalTrace:
    left_to_right: Any
    right_to_left: Any
    reversed_texts: TextBatch


@dataclass(frozen=True, slots=True)
class BidirectionalLSTM:
    one_way: Tower  # an LSTM, whoever computes it

    @property
    def columns(self) -> int:
        return 2 * self.one_way.columns

    @property
    def dimensions(self) -> int:
        return 2 * self.one_way.dimensions

    @property
    def parts(self) -> Shapes:
        return tuple((name, (*shape[:-1], 2 * shape[-1])) for name, shape in self.one_way.parts)

    def forward(self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch) -> tuple[torch.Tensor, BidirectionalTrace]:
        """As tower.Tower.forward."""
        reversed_texts = right_to_left(batch)
        (to_right_UG, to_left_UG), (to_right, to_left) = word_UG.chunk(2, dim=1), both_ways(parts)
        right_Nd, right_trace = self.one_way.forward(to_right_UG, to_right, batch)
        left_Nd, left_trace = self.one_way.forward(to_left_UG, to_left, reversed_texts)
        return torch.cat([right_Nd, left_Nd], dim=1), BidirectionalTrace(right_trace, left_trace, reversed_texts)

    def backward(
        self, trace: BidirectionalTrace, by_vectors_Nd: torch.Tensor, parts: Parts, batch: TextBatch, steps: int = 0
    ) -> tuple[torch.Tensor, Parts]:
        """As tower.Tower.backward."""
        (by_right_Nd, by_left_Nd), (to_right, to_left) = by_vectors_Nd.chunk(2, dim=1), both_ways(parts)
        by_right_UG, right = self.one_way.backward(trace.left_to_right, by_right_Nd, to_right, batch, steps)
        by_left_UG, left = self.one_way.backward(trace.right_to_left, by_left_Nd, to_left, trace.reversed_texts, steps)
        return torch.cat([by_right_UG, by_left_UG], dim=1), side_by_side(right, left)


def both_ways(parts: Parts) -> tuple[Parts, Parts]:
    """The parts of each direction, contiguous, since every step multiplies by them."""
    halves = {name: part.chunk(2, dim=-1) for name, part in parts.items()}
    return {k: h[0].contiguous() for k, h in halves.items()}, {k: h[1].contiguous() for k, h in halves.items()}


def side_by_side(to_right: Parts, to_left: Parts) -> Parts:
    """The inverse of `both_ways`."""
    return {name: torch.cat([to_right[name], to_left[name]], dim=-1) for name in to_right}
