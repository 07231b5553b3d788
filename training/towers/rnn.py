"""The plain recurrent tower: y(t) = tanh(W l(t) + W_rec y(t-1) + b) (eq. 1).

Shapes: N texts, P packed rows (see training.text_batch), d cells; its columns are its cells.
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
        self, inputs_PG: torch.Tensor, recurrent_dG: torch.Tensor, batch: TextBatch
    ) -> tuple[torch.Tensor, RNNTrace]:
        """(y at the last word of each sorted text [N, d], trace). `inputs_PG` is W l(t) + b, and is overwritten."""
        offsets = batch.step_offsets
        state = inputs_PG
        previous = state.new_zeros(state.shape)
        begun = 0  # texts that had a word at the step before
        for step in range(batch.num_steps):
            start, active = offsets[step], batch.active(step)
            rows = state[start : start + active]
            if begun:
                previous[start : start + begun] = state[start - begun : start]
                rows[:begun].addmm_(previous[start : start + begun], recurrent_dG)
            rows.tanh_()
            begun = active
        return state[offsets[-2] :].clone(), RNNTrace(state, previous)

    def backward(
        self, trace: RNNTrace, last_Nd: torch.Tensor, recurrent_dG: torch.Tensor, batch: TextBatch, steps: int = 0
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As training.towers.lstm.LSTM.backward."""
        offsets = batch.step_offsets
        gradient = trace.state_Pd.square_().neg_().add_(1)  # dy/dz = 1 - y²
        first = max(0, batch.num_steps - steps) if steps else 0
        by_y = last_Nd
        transposed = recurrent_dG.t()
        for step in reversed(range(first, batch.num_steps)):
            start, active = offsets[step], batch.active(step)
            rows = gradient[start : start + active].mul_(by_y)
            if step > first:
                by_y = rows[: batch.active(step - 1)] @ transposed
        begin = offsets[first]
        gradient[:begin].zero_()
        return gradient, trace.previous_Pd[begin:].t() @ gradient[begin:]
