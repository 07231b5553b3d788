"""The LSTM tower (eq. 2), with forget gate and peepholes each on a switch; the paper trains it without (section V).

    y_g(t) = tanh(W4 l + Wrec4 y(t-1) + b4)
    i(t)   = sigmoid(W3 l + Wrec3 y(t-1) + Wp3 ∘ c(t-1) + b3)
    f(t)   = sigmoid(W2 l + Wrec2 y(t-1) + Wp2 ∘ c(t-1) + b2)        f = 1 without a forget gate
    c(t)   = f ∘ c(t-1) + i ∘ y_g
    o(t)   = sigmoid(W1 l + Wrec1 y(t-1) + Wp1 ∘ c(t) + b1)          Wp = 0 without peepholes
    y(t)   = o ∘ tanh(c(t))

Columns are gates in the paper's order (output, forget, input, candidate) times cells, so that the row of one trigram
holds all gates, contiguous. W_peep has a row for each gate that has peepholes, in the same order. The backward pass is
written out: exact back-propagation through time of the equations above (the appendix of the paper leaves out paths
through the gates; docs/model.md section 4).

Shapes as in tower, with P packed rows (text_batch), d cells, G = 3 d or 4 d.
"""

from dataclasses import dataclass

import torch

from training.compute.elementary import tanh
from training.compute.threads import empty
from training.data.text_batch import TextBatch
from training.towers.tower import Parts, Shapes, sum_by_word


@dataclass(frozen=True, slots=True)
class LSTMTrace:
    """What the backward pass needs of the forward pass."""

    gates_PG: torch.Tensor  # o, f, i, y_g after their nonlinearities
    squashed_Pd: torch.Tensor  # tanh(c(t))
    previous_Pd: torch.Tensor  # y(t-1), zero where a text begins
    cell_Pd: torch.Tensor  # c(t); empty where neither forget gate nor peepholes need it


@dataclass(frozen=True, slots=True)
class LSTM:
    cells: int
    forget_gate: bool = False
    peepholes: bool = False

    @property
    def columns(self) -> int:
        return (4 if self.forget_gate else 3) * self.cells

    @property
    def dimensions(self) -> int:
        return self.cells

    @property
    def parts(self) -> Shapes:
        recurrent_and_bias: Shapes = (("W_rec", (self.cells, self.columns)), ("b", (self.columns,)))
        num_gates = self.columns // self.cells - 1  # the candidate is no gate
        return recurrent_and_bias + ((("W_peep", (num_gates, self.cells)),) if self.peepholes else ())

    def forward(self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch) -> tuple[torch.Tensor, LSTMTrace]:
        """As tower.Tower.forward."""
        input_UG = word_UG + parts["b"]
        d, num_packed, sigmoids = self.cells, batch.step_offsets[-1], self.columns - self.cells
        gates = empty((num_packed, self.columns), input_UG)
        squashed, previous = empty((num_packed, d), gates), empty((num_packed, d), gates)
        cell = gates.new_zeros(batch.active(batch.num_steps - 1), d)
        cells = empty((num_packed if self.forget_gate or self.peepholes else 0, d), gates)
        last = torch.empty_like(cell)
        begun = 0  # texts that had a word at the step before
        for step in range(batch.num_steps):
            start, end = batch.step_offsets[step], batch.step_offsets[step + 1]
            active, rows = end - start, gates[start:end]
            torch.index_select(input_UG, 0, batch.packed_words[start:end], out=rows)
            previous[start + begun : end].zero_()
            if begun:
                rows[:begun].addmm_(previous[start : start + begun], parts["W_rec"])
            now = cell[:active]
            if self.peepholes:  # the output gate's has to wait for c(t)
                rows[:, d:sigmoids].unflatten(1, (-1, d)).addcmul_(now[:, None], parts["W_peep"][1:])
            rows[:, d if self.peepholes else 0 : sigmoids].sigmoid_()
            tanh(rows[:, sigmoids:], out=rows[:, sigmoids:])
            if self.forget_gate:
                now.mul_(rows[:, d : 2 * d])
            now.addcmul_(rows[:, sigmoids - d : sigmoids], rows[:, sigmoids:])
            tanh(now, out=squashed[start:end])
            if len(cells):
                cells[start:end] = now
            if self.peepholes:
                rows[:, :d].addcmul_(now, parts["W_peep"][0]).sigmoid_()
            following = last if step == batch.num_steps - 1 else previous[end : end + active]
            torch.mul(rows[:, :d], squashed[start:end], out=following)
            begun = active
        return last, LSTMTrace(gates, squashed, previous, cells)

    def states(self, trace: LSTMTrace) -> torch.Tensor:
        """y(t) in each packed row, [P, d]; to be asked for before `backward` uses up the trace."""
        return trace.gates_PG[:, : self.cells] * trace.squashed_Pd

    def backward(
        self,
        trace: LSTMTrace,
        by_vectors_Nd: torch.Tensor,
        parts: Parts,
        batch: TextBatch,
        steps: int = 0,
        by_earlier_Pd: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, Parts]:
        """As tower.Tower.backward.

        `by_earlier_Pd`: the gradient of y(t) in each packed row before the last step's, where somebody looked at it.
        """
        d, offsets, sigmoids = self.cells, batch.step_offsets, self.columns - self.cells
        gradient = trace.gates_PG  # overwritten step by step, while a step's rows are in the cache
        first = max(0, batch.num_steps - steps) if steps else 0
        by_y, by_cell = by_vectors_Nd, torch.zeros_like(by_vectors_Nd)
        by_parts = {"W_peep": torch.zeros_like(parts["W_peep"])} if self.peepholes else {}
        buffers = torch.empty(3, *by_y.shape, dtype=by_y.dtype, device=by_y.device)
        transposed = parts["W_rec"].t()
        for step in reversed(range(first, batch.num_steps)):
            start, end = offsets[step], offsets[step + 1]
            begun = batch.active(step - 1) if step else 0
            before = trace.cell_Pd[start - begun : start]  # c(t-1) where it is not zero
            rows, squashed = gradient[start:end], trace.squashed_Pd[start:end]
            out, inward, candidate = rows[:, :d], rows[:, sigmoids - d : sigmoids], rows[:, sigmoids:]
            y, product, factor = buffers[:, : end - start]
            torch.mul(out, squashed, out=y)
            torch.addcmul(out, y, squashed, value=-1, out=factor)  # dy/dc = o (1 - tanh²c)
            by_cell = by_cell[: end - start].addcmul_(by_y, factor)
            torch.addcmul(y, y, out, value=-1, out=factor)  # dy by o's argument: o (1 - o) tanh c
            torch.mul(factor, by_y, out=out)
            if self.peepholes:
                by_cell.addcmul_(out, parts["W_peep"][0])
                by_parts["W_peep"][0] += (out * trace.cell_Pd[start:end]).sum(0)
            torch.mul(inward, candidate, out=product)
            torch.addcmul(inward, product, candidate, value=-1, out=y)  # dc by y_g's argument: i (1 - y_g²)
            torch.addcmul(product, product, inward, value=-1, out=factor)  # dc by i's argument: i (1 - i) y_g
            torch.mul(factor, by_cell, out=inward)
            torch.mul(y, by_cell, out=candidate)
            if self.forget_gate:
                forget = rows[:, d : 2 * d]
                torch.mul(forget, by_cell, out=y)  # by c(t-1), through f ∘ c(t-1)
                torch.addcmul(y, y, forget, value=-1, out=factor)
                torch.mul(factor[:begun], before, out=forget[:begun])  # dc by f's argument: f (1 - f) c(t-1)
                forget[begun:].zero_()
                by_cell.copy_(y)
            if self.peepholes:
                looking = rows[:begun, d:sigmoids].unflatten(1, (-1, d))
                by_parts["W_peep"][1:] += (looking * before[:, None]).sum(0)
                by_cell[:begun] += (looking * parts["W_peep"][1:]).sum(1)
            if step > first:
                by_y = rows[:begun] @ transposed
                if by_earlier_Pd is not None:
                    by_y += by_earlier_Pd[start - begun : start]
        begin = offsets[first]
        gradient[:begin].zero_()
        by_parts["W_rec"] = trace.previous_Pd[begin:].t() @ gradient[begin:]
        by_word_UG = sum_by_word(gradient, batch)
        return by_word_UG, by_parts | {"b": by_word_UG.sum(0)}
