"""The plain recurrent tower: y(t) = tanh(W l(t) + W_rec y(t-1) + b) (eq. 1).

Shapes as in training.towers, with G = d.
"""

from dataclasses import dataclass

import torch

from training.text_batch import TextBatch


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

    def forward(
        self, word_UG: torch.Tensor, recurrent_dG: torch.Tensor, batch: TextBatch
    ) -> tuple[torch.Tensor, RNNTrace]:
        """As training.towers.Tower.forward."""
        state = word_UG.new_empty(batch.step_offsets[-1], self.cells)
        previous = torch.zeros_like(state)
        begun = 0  # texts that had a word at the step before
        for step in range(batch.num_steps):
            start, end = batch.step_offsets[step], batch.step_offsets[step + 1]
            rows = state[start:end]
            torch.index_select(word_UG, 0, batch.packed_words[start:end], out=rows)
            if begun:
                previous[start : start + begun] = state[start - begun : start]
                rows[:begun].addmm_(previous[start : start + begun], recurrent_dG)
            rows.tanh_()
            begun = end - start
        return state[batch.step_offsets[-2] :].clone(), RNNTrace(state, previous)

    def backward(
        self, trace: RNNTrace, last_Nd: torch.Tensor, recurrent_dG: torch.Tensor, batch: TextBatch, steps: int = 0
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As training.towers.Tower.backward."""
        offsets = batch.step_offsets
        gradient = trace.state_Pd  # overwritten step by step
        first = max(0, batch.num_steps - steps) if steps else 0
        by_y = last_Nd
        transposed = recurrent_dG.t()
        for step in reversed(range(first, batch.num_steps)):
            rows = gradient[offsets[step] : offsets[step + 1]]
            rows.square_().neg_().add_(1).mul_(by_y)  # dy by its argument: 1 - y²
            if step > first:
                by_y = rows[: batch.active(step - 1)] @ transposed
        begin = offsets[first]
        gradient[:begin].zero_()
        return gradient, trace.previous_Pd[begin:].t() @ gradient[begin:]
