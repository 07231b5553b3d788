"""The plain recurrent tower: y(t) = tanh(W l(t) + W_rec y(t-1) + b) (eq. 1).

Shapes as in training.towers, with G = d.
"""

from dataclasses import dataclass

import torch

from training.compute.elementary import tanh
from training.compute.threads import empty
from training.data.text_batch import TextBatch
from training.towers.tower import Parts, Shapes, sum_by_word


@dataclass(frozen=True, slots=True)
class RNNTrace:
    state_Pd: torch.Tensor  # y(t)
    previous_Pd: torch.Tensor  # y(t-1), zero where a text begins


@dataclass(frozen=True, slots=True)
class RNN:
    cells: int

    @property
    def columns(self) -> int:
        return self.cells

    @property
    def dimensions(self) -> int:
        return self.cells

    @property
    def parts(self) -> Shapes:
        return ("W_rec", (self.cells, self.columns)), ("b", (self.columns,))

    def forward(self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch) -> tuple[torch.Tensor, RNNTrace]:
        """As training.towers.Tower.forward."""
        input_UG = word_UG + parts["b"]
        state = empty((batch.step_offsets[-1], self.cells), word_UG)
        previous = empty(state.shape, word_UG)
        begun = 0  # texts that had a word at the step before
        for step in range(batch.num_steps):
            start, end = batch.step_offsets[step], batch.step_offsets[step + 1]
            rows = state[start:end]
            torch.index_select(input_UG, 0, batch.packed_words[start:end], out=rows)
            previous[start + begun : end].zero_()
            if begun:
                previous[start : start + begun] = state[start - begun : start]
                rows[:begun].addmm_(previous[start : start + begun], parts["W_rec"])
            tanh(rows, out=rows)
            begun = end - start
        return state[batch.step_offsets[-2] :].clone(), RNNTrace(state, previous)

    def backward(
        self, trace: RNNTrace, by_vectors_Nd: torch.Tensor, parts: Parts, batch: TextBatch, steps: int = 0
    ) -> tuple[torch.Tensor, Parts]:
        """As training.towers.Tower.backward."""
        offsets = batch.step_offsets
        gradient = trace.state_Pd  # overwritten step by step
        first = max(0, batch.num_steps - steps) if steps else 0
        by_y = by_vectors_Nd
        transposed = parts["W_rec"].t()
        for step in reversed(range(first, batch.num_steps)):
            rows = gradient[offsets[step] : offsets[step + 1]]
            rows.square_().neg_().add_(1).mul_(by_y)  # dy by its argument: 1 - y²
            if step > first:
                by_y = rows[: batch.active(step - 1)] @ transposed
        begin = offsets[first]
        gradient[:begin].zero_()
        by_word_UG = sum_by_word(gradient, batch)
        by_recurrent_dG = trace.previous_Pd[begin:].t() @ gradient[begin:]
        return by_word_UG, {"W_rec": by_recurrent_dG, "b": by_word_UG.sum(0)}
