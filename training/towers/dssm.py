"""The DSSM tower: the trigram counts of all words of a text added up, then two tanh layers. Word order is lost.

    h = tanh(W Σ_t l(t) + b)        y = tanh(W_s h + b_s)

Shapes as in tower, with N texts, H = G hidden units.
"""

from dataclasses import dataclass

import torch
from torch.nn.functional import embedding_bag

from training.data.text_batch import TextBatch
from training.towers.tower import Parts, Shapes, semantic_gradient, semantic_parts, semantic_vectors, text_of_row


@dataclass(frozen=True, slots=True)
class DSSMTrace:
    hidden_NH: torch.Tensor
    vectors_Nd: torch.Tensor


@dataclass(frozen=True, slots=True)
class DSSM:
    hidden: int
    dimensions: int

    @property
    def columns(self) -> int:
        return self.hidden

    @property
    def parts(self) -> Shapes:
        return semantic_parts(self.hidden, self.dimensions)

    def forward(self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch) -> tuple[torch.Tensor, DSSMTrace]:
        """As tower.Tower.forward."""
        hidden_NH = parts["b"].repeat(batch.active(batch.num_steps - 1), 1)
        for step in range(batch.num_steps):
            start, end = batch.step_offsets[step], batch.step_offsets[step + 1]
            hidden_NH[: end - start] += word_UG.index_select(0, batch.packed_words[start:end])
        hidden_NH.tanh_()
        vectors_Nd = semantic_vectors(hidden_NH, parts)
        return vectors_Nd, DSSMTrace(hidden_NH, vectors_Nd)

    def backward(
        self, trace: DSSMTrace, by_vectors_Nd: torch.Tensor, parts: Parts, batch: TextBatch, steps: int = 0
    ) -> tuple[torch.Tensor, Parts]:
        """As tower.Tower.backward; there are no steps to go back."""
        by_sum_NH, by_parts = semantic_gradient(trace.hidden_NH, trace.vectors_Nd, by_vectors_Nd, parts)
        texts_of_words = text_of_row(batch)[batch.words_packed]
        return embedding_bag(texts_of_words, by_sum_NH, batch.words_packed_offsets, mode="sum"), by_parts
