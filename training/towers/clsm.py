"""The CLSM tower: a tanh layer over each window of words, the maximum over positions, a tanh layer.

    h(t) = tanh(Σ_k W_k l(t + k) + b), k = -w..w for a window of 2w + 1 words, zero vectors beyond the text's ends
    v    = max_t h(t), unit by unit
    y    = tanh(W_s v + b_s)

Columns are W_-w, ..., W_w. The maximum is taken before tanh, which leaves it where it is; where two positions share
it, the gradient goes to the earlier one.

Shapes as in tower, with N texts, P packed rows (text_batch), H hidden units, K words in a
window, G = K H.
"""

from dataclasses import dataclass

import torch
from torch.nn.functional import embedding_bag

from training.data.text_batch import TextBatch
from training.towers.tower import (
    Parts,
    Shapes,
    by_value,
    highest,
    neighbour,
    semantic_gradient,
    semantic_parts,
    semantic_vectors,
)


@dataclass(frozen=True, slots=True)
class CLSMTrace:
    winner_NH: torch.Tensor  # the packed row that has the maximum
    hidden_NH: torch.Tensor
    vectors_Nd: torch.Tensor


@dataclass(frozen=True, slots=True)
class CLSM:
    window: int
    hidden: int
    dimensions: int

    @property
    def columns(self) -> int:
        return self.window * self.hidden

    @property
    def parts(self) -> Shapes:
        return semantic_parts(self.hidden, self.dimensions)

    def forward(self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch) -> tuple[torch.Tensor, CLSMTrace]:
        """As tower.Tower.forward."""
        window_PH = self._windows(word_UG, batch)
        highest_NH, winner_NH = highest(window_PH, batch)
        hidden_NH = highest_NH.add_(parts["b"]).tanh_()
        vectors_Nd = semantic_vectors(hidden_NH, parts)
        return vectors_Nd, CLSMTrace(winner_NH, hidden_NH, vectors_Nd)

    def backward(
        self, trace: CLSMTrace, by_vectors_Nd: torch.Tensor, parts: Parts, batch: TextBatch, steps: int = 0
    ) -> tuple[torch.Tensor, Parts]:
        """As tower.Tower.backward; there are no steps to go back."""
        by_highest_NH, by_parts = semantic_gradient(trace.hidden_NH, trace.vectors_Nd, by_vectors_Nd, parts)
        # The last row stays zero, for windows that do not exist.
        by_window_PH = by_value(by_highest_NH, trace.winner_NH, batch.step_offsets[-1] + 1)
        # A word stands at place k of the window around the word k places to its left.
        by_word_UKH = [
            embedding_bag(
                neighbour(batch, -k)[batch.words_packed], by_window_PH, batch.words_packed_offsets, mode="sum"
            )
            for k in self._places
        ]
        return torch.cat(by_word_UKH, dim=1), by_parts

    @property
    def _places(self) -> range:
        return range(-(self.window // 2), self.window // 2 + 1)

    def _windows(self, word_UG: torch.Tensor, batch: TextBatch) -> torch.Tensor:
        """Σ_k W_k l(t + k) for each word of each text, [P, H]."""
        if self.window == 1:
            return word_UG.index_select(0, batch.packed_words)
        none = torch.full((1,), len(word_UG), device=word_UG.device)
        words = torch.cat([batch.packed_words, none])
        place_PK = torch.stack(
            [words[neighbour(batch, k)] * self.window + at for at, k in enumerate(self._places)], dim=1
        )
        rows = torch.cat([word_UG, word_UG.new_zeros(1, self.columns)]).view(-1, self.hidden)
        return embedding_bag(place_PK, rows, mode="sum")
