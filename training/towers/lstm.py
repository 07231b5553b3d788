"""The LSTM tower without forget gate (f = 1) and without peepholes, as the paper trains it (eq. 2; section V).

    o(t) = sigmoid(W1 l + Wrec1 y(t-1) + b1)        c(t) = c(t-1) + i ∘ y_g
    i(t) = sigmoid(W3 l + Wrec3 y(t-1) + b3)        y(t) = o ∘ tanh(c(t))
    y_g(t) = tanh(W4 l + Wrec4 y(t-1) + b4)

Columns are gates in the paper's order (output, input, candidate) times cells, so that the row of one trigram holds all
gates, contiguous. The backward pass is written out: exact back-propagation through time of the equations above
(the appendix of the paper leaves out paths through the gates; MODEL.md section 4).

Shapes: N texts, P packed rows (see training.text_batch), d cells, G = 3 d columns.
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
        self, inputs_PG: torch.Tensor, recurrent_dG: torch.Tensor, batch: TextBatch
    ) -> tuple[torch.Tensor, LSTMTrace]:
        """(y at the last word of each sorted text [N, d], trace). `inputs_PG` is W l(t) + b, and is overwritten."""
        d, offsets = self.cells, batch.step_offsets
        gates = inputs_PG
        squashed = gates.new_empty(len(gates), d)
        previous = gates.new_zeros(len(gates), d)
        cell = gates.new_zeros(batch.active(batch.num_steps - 1), d)
        last = gates.new_empty(len(cell), d)
        begun = 0  # texts that had a word at the step before
        for step in range(batch.num_steps):
            start, active = offsets[step], batch.active(step)
            rows = gates[start : start + active]
            if begun:
                rows[:begun].addmm_(previous[start : start + begun], recurrent_dG)
            rows[:, : 2 * d].sigmoid_()
            rows[:, 2 * d :].tanh_()
            cell[:active].addcmul_(rows[:, d : 2 * d], rows[:, 2 * d :])
            torch.tanh(cell[:active], out=squashed[start : start + active])
            is_last = step == batch.num_steps - 1
            following = last if is_last else previous[start + active : start + 2 * active]
            torch.mul(rows[:, :d], squashed[start : start + active], out=following)
            begun = active
        return last, LSTMTrace(gates, squashed, previous)

    def backward(
        self, trace: LSTMTrace, last_Nd: torch.Tensor, recurrent_dG: torch.Tensor, batch: TextBatch, steps: int = 0
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Gradients (of W l(t) + b for every packed row [P, G], of W_rec [d, G]) for `last_Nd`, that of the result.

        `steps`: how many steps from a text's last word gradients reach back; 0 is all of them. Uses up the trace and
        `last_Nd`.
        """
        d, offsets = self.cells, batch.step_offsets
        gates, squashed = trace.gates_PG, trace.squashed_Pd
        output, inward, candidate = gates[:, :d], gates[:, d : 2 * d], gates[:, 2 * d :]
        # The factors of every step at once; the loop then only multiplies.
        slope = torch.addcmul(output, output * squashed, squashed, value=-1)  # dy/dc = o (1 - tanh²c)
        out_factor = squashed * torch.addcmul(output, output, output, value=-1)
        in_factor = candidate * torch.addcmul(inward, inward, inward, value=-1)
        candidate_factor = torch.addcmul(inward, inward * candidate, candidate, value=-1)
        torch.cat([out_factor, in_factor, candidate_factor], dim=1, out=gates)
        gradient = gates

        first = max(0, batch.num_steps - steps) if steps else 0
        by_y = last_Nd
        by_cell = torch.zeros_like(last_Nd)
        transposed = recurrent_dG.t()
        for step in reversed(range(first, batch.num_steps)):
            start, active = offsets[step], batch.active(step)
            rows = gradient[start : start + active]
            by_cell = by_cell[:active].addcmul_(by_y, slope[start : start + active])
            rows[:, :d].mul_(by_y)
            rows[:, d:].view(active, 2, d).mul_(by_cell[:, None])
            if step > first:
                by_y = rows[: batch.active(step - 1)] @ transposed
        begin = offsets[first]
        gradient[:begin].zero_()
        return gradient, trace.previous_Pd[begin:].t() @ gradient[begin:]
