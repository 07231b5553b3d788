"""Any tower above word vectors: a word's D numbers become the inner tower's inputs by one matrix.

    W l(t) of the inner tower = x(t) W_in,    x(t) the vector of word t, or the sum of its letter trigrams' rows

Shapes as in tower, with D columns of W and G of the inner tower.
"""

from dataclasses import dataclass

import torch

from training.data.text_batch import TextBatch
from training.towers.tower import Parts, Shapes, Tower


@dataclass(frozen=True, slots=True)
class Projected:
    inner: Tower
    word_columns: int  # D

    @property
    def columns(self) -> int:
        return self.word_columns

    @property
    def dimensions(self) -> int:
        return self.inner.dimensions

    @property
    def parts(self) -> Shapes:
        return (("W_in", (self.word_columns, self.inner.columns)), *self.inner.parts)

    def forward(
        self, word_UD: torch.Tensor, parts: Parts, batch: TextBatch, steps: int = 0
    ) -> tuple[torch.Tensor, torch.Tensor | float]:
        """As tower.Tower.forward."""
        return self.inner.forward(word_UD @ parts["W_in"], parts, batch, steps)
