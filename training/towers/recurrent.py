"""The recurrent towers that read a text from left to right.

The RNN (eq. 1), whose G is d:

    y(t) = tanh(W l(t) + W_rec y(t-1) + b)        b = 0 in the paper's second version, a switch

The LSTM (eq. 2), with forget gate and peepholes each on a switch; the paper trains it without (section V):

    y_g(t) = tanh(W4 l + Wrec4 y(t-1) + b4)
    i(t)   = sigmoid(W3 l + Wrec3 y(t-1) + Wp3 ∘ c(t-1) + b3)
    f(t)   = sigmoid(W2 l + Wrec2 y(t-1) + Wp2 ∘ c(t-1) + b2)        f = 1 without a forget gate
    c(t)   = f ∘ c(t-1) + i ∘ y_g
    o(t)   = sigmoid(W1 l + Wrec1 y(t-1) + Wp1 ∘ c(t) + b1)          Wp = 0 without peepholes
    y(t)   = o ∘ tanh(c(t))

Columns are gates in the paper's order (output, forget, input, candidate) times cells, so that the row of one trigram
holds all gates, contiguous. W_peep has a row for each gate that has peepholes, in the same order. The backward pass of
these steps alone is written out (autograd's takes three times as long): exact back-propagation through time of the
equations above, or the appendix of the paper, eq. 14 to 44, where each gate's error passes to the step before through
that gate's own W_rec alone (docs/model.md section 4).

Shapes as in tower, with d cells, G = 3 d or 4 d.

The gated recurrent unit (Cho et al., arXiv:1406.1078); columns: reset gate, update gate, candidate.

r(t) = sigmoid(W_r l + R_r y(t-1) + b_r)        y_g(t) = tanh(W_g l + R_g (r ∘ y(t-1)) + b_g)
z(t) = sigmoid(W_z l + R_z y(t-1) + b_z)        y(t)   = z ∘ y(t-1) + (1 - z) ∘ y_g

The LSTM of eq. 2 as printed: with a forget gate, and with matrices as peepholes (those above are diagonals).

    i(t) = sigmoid(W3 l + Wrec3 y(t-1) + Wp3 c(t-1) + b3)        f(t) likewise; o(t) with Wp1 c(t)

Columns of W_rec and b: output, forget, input, candidate; of W_peep the first three. The gradient is autograd's.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.functional import pad

from clicktower.training.towers.text_batch import TextBatch
from clicktower.training.towers.threads import empty
from clicktower.training.towers.tower import Embedded, Parts, packed_inputs, sum_by_word
from clicktower.training.towers.tower_settings import LSTM, GatedRecurrent, Truncated


@dataclass(frozen=True, slots=True)
class RNNTower:
    settings: Truncated

    def forward(self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch) -> Embedded:
        return self.states(word_UG, parts, batch)[-1], 0.0

    def states(self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch) -> list[torch.Tensor]:
        """y(t) of each step's texts."""
        active = [batch.active(step) for step in range(batch.num_steps)]
        cut = batch.num_steps - self.settings.truncation  # no gradient reaches further back
        of_steps = packed_inputs(word_UG + parts["b"] if "b" in parts else word_UG, batch).split(active)
        outputs = [of_steps[0].tanh()]
        for step, input_nG in enumerate(of_steps[1:], start=1):
            before = outputs[-1].detach() if step == cut else outputs[-1]
            recurrent = pad(before @ parts["W_rec"], (0, 0, 0, len(input_nG) - len(before)))  # others begin here
            outputs.append((input_nG + recurrent).tanh())
        return outputs


@dataclass(frozen=True, slots=True)
class LSTMTower:
    settings: GatedRecurrent  # if it reads both ways this is one of the two

    def forward(self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch) -> Embedded:
        return self.states(word_UG, parts, batch)[batch.step_offsets[-2] :], 0.0

    def states(self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch) -> torch.Tensor:
        """y(t) in each packed row, [P, d]."""
        return _Steps.apply(word_UG + parts["b"], parts["W_rec"], parts.get("W_peep"), self.settings, batch)

    def trace(self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch) -> "LSTMTrace":
        """Every gate and state, without a gradient."""
        return _forward(self.settings, word_UG + parts["b"], parts["W_rec"], parts.get("W_peep"), batch)


@dataclass(frozen=True, slots=True)
class LSTMTrace:
    """What the steps compute, in each packed row."""

    gates_PG: torch.Tensor  # o, f, i, y_g after their nonlinearities
    squashed_Pd: torch.Tensor  # tanh(c(t))
    state_Pd: torch.Tensor  # y(t)
    cell_Pd: torch.Tensor  # c(t); empty where neither forget gate nor peepholes need it


class _Steps(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        input_UG: torch.Tensor,
        recurrent_dG: torch.Tensor,
        peepholes: torch.Tensor | None,
        lstm: GatedRecurrent,
        batch: TextBatch,
    ) -> torch.Tensor:
        trace = _forward(lstm, input_UG, recurrent_dG, peepholes, batch)
        ctx.of = lstm, batch
        ctx.save_for_backward(recurrent_dG, peepholes, trace.gates_PG, trace.squashed_Pd, trace.state_Pd, trace.cell_Pd)
        return trace.state_Pd

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, by_state_Pd: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        recurrent_dG, peepholes, *trace = ctx.saved_tensors
        lstm, batch = ctx.of
        backward = _appendix_backward if isinstance(lstm, LSTM) and lstm.gradient == "appendix" else _backward
        gradients = backward(lstm, batch, LSTMTrace(*trace), by_state_Pd, recurrent_dG, peepholes)
        return *gradients, None, None


def _forward(
    lstm: GatedRecurrent,
    input_UG: torch.Tensor,
    recurrent_dG: torch.Tensor,
    peepholes: torch.Tensor | None,
    batch: TextBatch,
) -> LSTMTrace:
    d, num_packed, sigmoids = lstm.cells, batch.step_offsets[-1], (lstm.gates - 1) * lstm.cells
    gates = empty((num_packed, lstm.gates * d), input_UG)
    squashed, state = empty((num_packed, d), gates), empty((num_packed, d), gates)
    cell = gates.new_zeros(len(batch.order), d)
    cells = empty((num_packed if lstm.forget_gate or lstm.peepholes else 0, d), gates)
    begun = 0  # texts that had a word at the step before
    for step in range(batch.num_steps):
        start, end = batch.step_offsets[step], batch.step_offsets[step + 1]
        rows, now = gates[start:end], cell[: end - start]
        torch.index_select(input_UG, 0, batch.packed_words[start:end], out=rows)
        if begun:
            rows[:begun].addmm_(state[start - begun : start], recurrent_dG)
        if peepholes is not None:  # the output gate's has to wait for c(t)
            rows[:, d:sigmoids].unflatten(1, (-1, d)).addcmul_(now[:, None], peepholes[1:])
        rows[:, 0 if peepholes is None else d : sigmoids].sigmoid_()
        tanh(rows[:, sigmoids:], out=rows[:, sigmoids:])
        if lstm.forget_gate:
            now.mul_(rows[:, d : 2 * d])
        now.addcmul_(rows[:, sigmoids - d : sigmoids], rows[:, sigmoids:])
        tanh(now, out=squashed[start:end])
        if len(cells):
            cells[start:end] = now
        if peepholes is not None:
            rows[:, :d].addcmul_(now, peepholes[0]).sigmoid_()
        torch.mul(rows[:, :d], squashed[start:end], out=state[start:end])
        begun = end - start
    return LSTMTrace(gates, squashed, state, cells)


def tanh(values: torch.Tensor, out: torch.Tensor) -> None:
    """Write tanh of some values to `out`, which may be the values themselves.

    On a CPU NumPy's is as exact as torch's and takes a sixth of the time.
    """
    if values.device.type == "cpu":
        np.tanh(values.numpy(), out=out.numpy())
    else:
        torch.tanh(values, out=out)


def _backward(
    lstm: GatedRecurrent,
    batch: TextBatch,
    trace: LSTMTrace,
    by_state_Pd: torch.Tensor,
    recurrent_dG: torch.Tensor,
    peepholes: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Gradients (of the input of each distinct word, of W_rec, of W_peep), given that of y(t). Uses up the gates."""
    d, offsets, sigmoids = lstm.cells, batch.step_offsets, (lstm.gates - 1) * lstm.cells
    gradient = trace.gates_PG  # overwritten step by step, while a step's rows are in the cache
    first = max(0, batch.num_steps - lstm.truncation) if lstm.truncation else 0
    by_y = by_state_Pd[offsets[-2] :]
    by_cell = torch.zeros_like(by_y)
    by_peepholes = None if peepholes is None else torch.zeros_like(peepholes)
    buffers = by_y.new_empty(2, *by_y.shape)
    for step in reversed(range(first, batch.num_steps)):
        start, end = offsets[step], offsets[step + 1]
        begun = batch.active(step - 1) if step else 0
        rows, y, before = gradient[start:end], trace.state_Pd[start:end], slice(start - begun, start)
        out, inward, candidate = rows[:, :d], rows[:, sigmoids - d : sigmoids], rows[:, sigmoids:]
        product, factor = buffers[:, : end - start]
        torch.addcmul(out, y, trace.squashed_Pd[start:end], value=-1, out=factor)  # dy/dc = o (1 - tanh²c)
        by_cell = by_cell[: end - start].addcmul_(by_y, factor)
        torch.addcmul(y, y, out, value=-1, out=factor)  # dy by o's argument: o (1 - o) tanh c
        torch.mul(factor, by_y, out=out)
        if peepholes is not None and by_peepholes is not None:
            by_cell.addcmul_(out, peepholes[0])
            by_peepholes[0] += (out * trace.cell_Pd[start:end]).sum(0)
        torch.mul(inward, candidate, out=product)
        torch.addcmul(inward, product, candidate, value=-1, out=factor)  # dc by y_g's argument: i (1 - y_g²)
        torch.mul(factor, by_cell, out=candidate)
        torch.addcmul(product, product, inward, value=-1, out=factor)  # dc by i's argument: i (1 - i) y_g
        torch.mul(factor, by_cell, out=inward)
        if lstm.forget_gate:
            forget = rows[:, d : 2 * d]
            torch.mul(forget, by_cell, out=by_cell)  # by c(t-1), through f ∘ c(t-1)
            torch.addcmul(by_cell, by_cell, forget, value=-1, out=factor)
            torch.mul(factor[:begun], trace.cell_Pd[before], out=forget[:begun])  # dc by f's argument: f (1 - f) c(t-1)
            forget[begun:].zero_()
        if peepholes is not None and by_peepholes is not None:
            looking = rows[:begun, d:sigmoids].unflatten(1, (-1, d))
            by_peepholes[1:] += (looking * trace.cell_Pd[before, None]).sum(0)
            by_cell[:begun] += (looking * peepholes[1:]).sum(1)
        if begun:
            by_y = torch.addmm(by_state_Pd[before], rows[:begun], recurrent_dG.t())
    gradient[: offsets[first]].zero_()
    return sum_by_word(gradient, batch), _states_before(trace.state_Pd, batch).t() @ gradient, by_peepholes


def _appendix_backward(
    lstm: GatedRecurrent,
    batch: TextBatch,
    trace: LSTMTrace,
    by_state_Pd: torch.Tensor,
    recurrent_dG: torch.Tensor,
    peepholes: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """As `_backward`, by eq. 14 to 44 as they are printed, with v(t) the gradient of y(t) itself:

        δ1(t) = o (1 - o) tanh c ∘ (v(t) + Wrec1' δ1(t+1))                 the output gate (43)
        δi(t) = (1 - tanh c)(1 + tanh c) o ∘ (v(t) + Wreci' δi(t+1))       i = 2, 3, 4 (44)

    and ∂R/∂W_i the sum over t of diag(δi(t)) ∂c(t)/∂W_i, with ∂c(t)/∂W_i = diag(f) ∂c(t-1)/∂W_i + diag(b_i) l(t)'.
    Of the outer products that are printed for peepholes it takes the diagonal.
    """
    d, offsets, num_gates = lstm.cells, batch.step_offsets, lstm.gates
    gradient = torch.zeros_like(trace.gates_PG)
    first = max(0, batch.num_steps - lstm.truncation) if lstm.truncation else 0
    recurrent_gdd = recurrent_dG.unflatten(1, (num_gates, d)).permute(1, 2, 0)  # W_rec' of each gate
    by_peepholes = None if peepholes is None else torch.zeros_like(peepholes)
    back_gnd = by_state_Pd.new_zeros(num_gates, len(batch.order), d)  # W_rec' δ(t+1)
    by_cell_gnd = torch.zeros_like(back_gnd[1:])  # the sum of δ(t') ∂c(t')/∂c(t) over t' > t
    for step in reversed(range(first, batch.num_steps)):
        start, end = offsets[step], offsets[step + 1]
        num_texts, begun = end - start, batch.active(step - 1) if step else 0
        out, *gates = trace.gates_PG[start:end].split(d, dim=1)
        inward, candidate, squashed = gates[-2], gates[-1], trace.squashed_Pd[start:end]
        through = torch.stack([out * (1 - out) * squashed] + [(1 - squashed) * (1 + squashed) * out] * len(gates))
        delta_gnd = through * (by_state_Pd[start:end] + back_gnd[:, :num_texts])
        by_cell_gnd = by_cell_gnd[:, :num_texts] + delta_gnd[1:]
        within = [candidate * inward * (1 - inward), inward * (1 - candidate) * (1 + candidate)]  # b of i and y_g
        if lstm.forget_gate or by_peepholes is not None:
            cell_before = pad(trace.cell_Pd[start - begun : start], (0, 0, 0, num_texts - begun))
        if lstm.forget_gate:
            within.insert(0, cell_before * gates[0] * (1 - gates[0]))
        arguments = [delta_gnd[0], *(by_cell_gnd * torch.stack(within))]
        gradient[start:end] = torch.cat(arguments, dim=1)
        if by_peepholes is not None:
            by_peepholes[0] += (arguments[0] * trace.cell_Pd[start:end]).sum(0)
            by_peepholes[1:] += (torch.stack(arguments[1:-1]) * cell_before).sum(1)
        back_gnd = delta_gnd @ recurrent_gdd
        if lstm.forget_gate:
            by_cell_gnd = by_cell_gnd * gates[0]
    return sum_by_word(gradient, batch), _states_before(trace.state_Pd, batch).t() @ gradient, by_peepholes


def _states_before(state_Pd: torch.Tensor, batch: TextBatch) -> torch.Tensor:
    """y(t-1) in each packed row, zero where a text begins: one product with it is faster than one for each step."""
    before = empty(state_Pd.shape, state_Pd)
    for step in range(batch.num_steps):
        start, end = batch.step_offsets[step], batch.step_offsets[step + 1]
        begun = batch.active(step - 1) if step else 0
        before[start : start + begun] = state_Pd[start - begun : start]
        before[start + begun : end].zero_()
    return before


@dataclass(frozen=True, slots=True)
class GRUTower(RNNTower):
    def states(self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch) -> list[torch.Tensor]:
        active, d = [batch.active(step) for step in range(batch.num_steps)], self.settings.cells
        cut = batch.num_steps - self.settings.truncation
        gates_G, candidate_G = parts["W_rec"].split([2 * d, d], dim=1)
        outputs, before = [], word_UG.new_zeros(0, d)
        for step, input_nG in enumerate(packed_inputs(word_UG + parts["b"], batch).split(active)):
            before = before.detach() if step == cut else before
            before = pad(before, (0, 0, 0, len(input_nG) - len(before)))  # others begin here
            of_gates, of_candidate = input_nG.split([2 * d, d], dim=1)
            reset, update = (of_gates + before @ gates_G).sigmoid().chunk(2, dim=1)
            candidate = (of_candidate + (reset * before) @ candidate_G).tanh()
            before = update * before + (1 - update) * candidate
            outputs.append(before)
        return outputs


@dataclass(frozen=True, slots=True)
class PrintedLSTMTower(RNNTower):
    def states(self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch) -> list[torch.Tensor]:
        return [y for *_, y in self._steps(word_UG, parts, batch)]

    def trace(self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch) -> LSTMTrace:
        """Every gate and state, without a gradient."""
        *gates, cells, states = (
            torch.cat(of_steps) for of_steps in zip(*self._steps(word_UG, parts, batch), strict=True)
        )
        return LSTMTrace(gates_PG=torch.cat(gates, dim=1), squashed_Pd=cells.tanh(), state_Pd=states, cell_Pd=cells)

    def _steps(self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch) -> Iterator[tuple[torch.Tensor, ...]]:
        """o, f, i, y_g, c and y of each step's texts."""
        d = self.settings.cells
        on_new_dd, on_old_dG = parts["W_peep"].split([d, 2 * d], dim=1)
        active = [batch.active(step) for step in range(batch.num_steps)]
        cut = batch.num_steps - self.settings.truncation
        y, c = word_UG.new_zeros(0, d), word_UG.new_zeros(0, d)
        for step, input_nG in enumerate(packed_inputs(word_UG + parts["b"], batch).split(active)):
            if step == cut:
                y, c = y.detach(), c.detach()
            y, c = (pad(before, (0, 0, 0, len(input_nG) - len(before))) for before in (y, c))  # others begin here
            out, gates, candidate = (input_nG + y @ parts["W_rec"]).split([d, 2 * d, d], dim=1)
            forget, inward = (gates + c @ on_old_dG).sigmoid().chunk(2, dim=1)
            candidate = candidate.tanh()
            c = forget * c + inward * candidate
            out = (out + c @ on_new_dd).sigmoid()
            y = out * c.tanh()
            yield out, forget, inward, candidate, c, y
