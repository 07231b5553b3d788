"""The LSTM tower without forget gate (f = 1) and without peepholes, as the paper trains it (eq. 2; section V).

    o(t) = sigmoid(W1 l + Wrec1 y(t-1) + b1)        c(t) = c(t-1) + i ∘ y_g
    i(t) = sigmoid(W3 l + Wrec3 y(t-1) + b3)        y(t) = o ∘ tanh(c(t))
    y_g(t) = tanh(W4 l + Wrec4 y(t-1) + b4)

Columns are gates in the paper's order (output, input, candidate) times cells, so that the row of one trigram holds all
gates, contiguous. The backward pass is written out: exact back-propagation through time of the equations above
(the appendix of the paper leaves out paths through the gates; docs/model.md section 4).

Shapes as in training.towers, with G = 3 d.
"""

from dataclasses import dataclass

import torch

from training.text_batch import TextBatch


@dataclass(frozen=True, slots=True)
class LSTMTrace:
    """What the backward pass needs of the forward pass."""

    gates_PG: torch.Tensor  # o, i, y_g after their nonlinearities
    squashed_Pd: torch.Tensor  # tanh(c)
    previous_Pd: torch.Tensor  # y(t-1), zero where a text begins


@dataclass(frozen=True, slots=True)
class LSTM:
    cells: int

    @property
    def columns(self) -> int:
        return 3 * self.cells

    def forward(
        self, word_UG: torch.Tensor, recurrent_dG: torch.Tensor, batch: TextBatch
    ) -> tuple[torch.Tensor, LSTMTrace]:
        """As training.towers.Tower.forward."""
        d, num_packed = self.cells, batch.step_offsets[-1]
        gates = word_UG.new_empty(num_packed, 3 * d)
        squashed = gates.new_empty(num_packed, d)
        previous = gates.new_empty(num_packed, d)
        cell = gates.new_zeros(batch.active(batch.num_steps - 1), d)
        last = gates.new_empty(len(cell), d)
        begun = 0  # texts that had a word at the step before
        for step in range(batch.num_steps):
            start, end = batch.step_offsets[step], batch.step_offsets[step + 1]
            active, rows = end - start, gates[start:end]
            torch.index_select(word_UG, 0, batch.packed_words[start:end], out=rows)
            previous[start + begun : end].zero_()
            if begun:
                rows[:begun].addmm_(previous[start : start + begun], recurrent_dG)
            rows[:, : 2 * d].sigmoid_()
            rows[:, 2 * d :].tanh_()
            cell[:active].addcmul_(rows[:, d : 2 * d], rows[:, 2 * d :])
            torch.tanh(cell[:active], out=squashed[start:end])
            following = last if step == batch.num_steps - 1 else previous[end : end + active]
            torch.mul(rows[:, :d], squashed[start:end], out=following)
            begun = active
        return last, LSTMTrace(gates, squashed, previous)

    def backward(
        self, trace: LSTMTrace, last_Nd: torch.Tensor, recurrent_dG: torch.Tensor, batch: TextBatch, steps: int = 0
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As training.towers.Tower.backward."""
        d, offsets = self.cells, batch.step_offsets
        gradient = trace.gates_PG  # overwritten step by step, while a step's rows are in the cache
        first = max(0, batch.num_steps - steps) if steps else 0
        by_y = last_Nd
        by_cell = torch.zeros_like(last_Nd)
        buffers = torch.empty(3, *last_Nd.shape, dtype=last_Nd.dtype, device=last_Nd.device)
        transposed = recurrent_dG.t()
        for step in reversed(range(first, batch.num_steps)):
            start, end = offsets[step], offsets[step + 1]
            rows, squashed = gradient[start:end], trace.squashed_Pd[start:end]
            out, inward, candidate = rows[:, :d], rows[:, d : 2 * d], rows[:, 2 * d :]
            y, product, factor = buffers[:, : end - start]
            torch.mul(out, squashed, out=y)
            torch.addcmul(out, y, squashed, value=-1, out=factor)  # dy/dc = o (1 - tanh²c)
            by_cell = by_cell[: end - start].addcmul_(by_y, factor)
            torch.addcmul(y, y, out, value=-1, out=factor)  # dy by o's argument: o (1 - o) tanh c
            torch.mul(factor, by_y, out=out)
            torch.mul(inward, candidate, out=product)
            torch.addcmul(inward, product, candidate, value=-1, out=y)  # dc by y_g's argument: i (1 - y_g²)
            torch.addcmul(product, product, inward, value=-1, out=factor)  # dc by i's argument: i (1 - i) y_g
            torch.mul(factor, by_cell, out=inward)
            torch.mul(y, by_cell, out=candidate)
            if step > first:
                by_y = rows[: batch.active(step - 1)] @ transposed
        begin = offsets[first]
        gradient[:begin].zero_()
        return gradient, trace.previous_Pd[begin:].t() @ gradient[begin:]
