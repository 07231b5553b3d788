"""Any tower above word vectors: a word's D numbers become the inner tower's inputs by one matrix.

    W l(t) of the inner tower = x(t) W_in,    x(t) the vector of word t, or the sum of its letter trigrams' rows

Shapes as in tower, with D columns of W and G of the inner tower.
"""

from dataclasses import dataclass
from typing import Any

import torch

from training.data.text_batch import TextBatch
from training.towers.tower import Parts, Penalised, Shapes, Tower


@dataclass(frozen=True, slots=True)
class ProjectedTrace:
    word_UD: torch.Tensor
    inner: Any


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

    def forward(self, word_UD: torch.Tensor, parts: Parts, batch: TextBatch) -> tuple[torch.Tensor, ProjectedTrace]:
        """As tower.Tower.forward."""
        vectors_Nd, trace = self.inner.forward(word_UD @ parts["W_in"], self._of_inner(parts), batch)
        return vectors_Nd, ProjectedTrace(word_UD, trace)

    def own_loss(self, trace: ProjectedTrace) -> torch.Tensor:
        """As tower.Penalised.own_loss: the inner tower's, or 0."""
        return self.inner.own_loss(trace.inner) if isinstance(self.inner, Penalised) else trace.word_UD.new_zeros(())

    def backward(
        self, trace: ProjectedTrace, by_vectors_Nd: torch.Tensor, parts: Parts, batch: TextBatch, steps: int = 0
    ) -> tuple[torch.Tensor, Parts]:
        """As tower.Tower.backward."""
        by_word_UG, by_parts = self.inner.backward(trace.inner, by_vectors_Nd, self._of_inner(parts), batch, steps)
        return by_word_UG @ parts["W_in"].t(), {"W_in": trace.word_UD.t() @ by_word_UG, **by_parts}

    def _of_inner(self, parts: Parts) -> Parts:
        return {name: parts[name] for name, _ in self.inner.parts}
