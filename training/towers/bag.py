"""The bag tower: the trigrams' rows added up, and nothing else.  y = Σ_t W l(t)

With rows of random numbers the cosine of two texts is that of their trigram counts, to within 1/√d (Johnson and
Lindenstrauss); with rows that start in proportion to the trigrams' rarity (`start = idf`) it is that of their weighted
trigrams. So it ranks by the letters that two texts share before the first click, and learns from there.

Shapes as in tower, with N texts, d = G dimensions.
"""

from dataclasses import dataclass

import torch
from torch.nn.functional import embedding_bag

from training.data.text_batch import TextBatch
from training.towers.tower import Parts, Shapes, text_of_row


@dataclass(frozen=True, slots=True)
class Bag:
    dimensions: int

    @property
    def columns(self) -> int:
        return self.dimensions

    @property
    def parts(self) -> Shapes:
        return ()

    def forward(self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch) -> tuple[torch.Tensor, None]:
        """As tower.Tower.forward."""
        vectors_Nd = word_UG.new_zeros(batch.active(batch.num_steps - 1), self.dimensions)
        for step in range(batch.num_steps):
            start, end = batch.step_offsets[step], batch.step_offsets[step + 1]
            vectors_Nd[: end - start] += word_UG.index_select(0, batch.packed_words[start:end])
        return vectors_Nd, None

    def backward(
        self, trace: None, by_vectors_Nd: torch.Tensor, parts: Parts, batch: TextBatch, steps: int = 0
    ) -> tuple[torch.Tensor, Parts]:
        """As tower.Tower.backward; there are no steps to go back."""
        texts_of_words = text_of_row(batch)[batch.words_packed]
        return embedding_bag(texts_of_words, by_vectors_Nd, batch.words_packed_offsets, mode="sum"), {}
