"""The LSTM towers (eq. 2) for float32 on a GPU: all time steps in one Triton kernel per direction.

    fused(tower)   the tower, its recurrence in one launch per direction where there is a kernel for it

Each differs from training.towers.recurrent in what computes, not in the result; everything computed at once for all
steps (W_rec's gradient, the sums over words) is torch's as there, and every other gradient autograd's.

A program owns a block of consecutive sorted texts and goes through all their steps by itself, so no two programs ever
wait for each other. Texts are aligned to their last words (text_batch): a block of short texts begins late and
skips the steps before. y(t-1) and c(t-1) go from one step to the next through the trace that backward needs anyway, and
W_rec is read anew at each step; both stay in the caches of one multiprocessor (W_rec of 96 cells and three gates is
110 KB). Every sum runs in one fixed order and no two programs write one address: equal inputs give equal bytes, and a
text's results do not depend on its neighbours. Products are float32 without TF32 (input_precision="ieee").

Shapes: P packed rows, N sorted texts, U distinct words, d cells, G columns (gates times cells; gates in the order
output, forget if there is one, input, candidate). TEXTS is the block of texts, BLOCK the block of cells or columns.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from clicktower.training.towers.bilstm import BidirectionalLSTM
from clicktower.training.towers.recurrent import LSTMTower
from clicktower.training.towers.text_batch import TextBatch
from clicktower.training.towers.tower import Embedded, Parts, Projected, Tower, step_offsets, sum_by_word

BLOCK_TEXTS = 16  # of a program; with 2 warps the fastest of seven pairs on an H100 (docs/running.md)
# Fused multiply-add is set explicitly: Triton 3.10 changes its default.
OPTIONS = {"num_warps": 2, "enable_fp_fusion": True}


def fused(tower: Tower) -> Tower:
    """A tower with its recurrence fused, or the tower itself: the kernels take cells in blocks of 16 or 32."""
    match tower:
        case LSTMTower(settings) if settings.cells % 16 == 0 and getattr(settings, "gradient", "exact") == "exact":
            return FusedLSTM(settings)
        case BidirectionalLSTM(settings) if type(tower) is BidirectionalLSTM and settings.cells % 16 == 0:
            return BidirectionalLSTM(settings, FusedLSTM)
        case Projected(inner):
            return Projected(fused(inner))
    return tower


@dataclass(frozen=True, slots=True)
class FusedLSTM(LSTMTower):
    """Its last vectors come out of one launch."""

    def forward(self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch) -> Embedded:
        recurrent = parts["W_rec"].contiguous()
        # Without peepholes, a placeholder that is not read.
        peepholes, lstm = parts.get("W_peep", recurrent.detach()).contiguous(), self.settings
        switches = {"FORGET": lstm.forget_gate, "PEEPHOLES": lstm.peepholes, **block_sizes(lstm.cells), **OPTIONS}
        return _LSTMSteps.apply(word_UG + parts["b"], recurrent, peepholes, batch, lstm.truncation, switches), 0.0


class _LSTMSteps(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        input_UG: torch.Tensor,
        recurrent_dG: torch.Tensor,
        peepholes: torch.Tensor,
        batch: TextBatch,
        steps: int,
        switches: dict[str, Any],
    ) -> torch.Tensor:
        num_packed, num_texts, starts = batch.step_offsets[-1], len(batch.order), step_offsets(batch)
        gates = input_UG.new_empty(num_packed, input_UG.shape[1])
        cells = input_UG.new_empty(num_packed, len(recurrent_dG))
        previous = torch.zeros_like(cells)
        last = input_UG.new_empty(num_texts, len(recurrent_dG))
        with _device_of(last):
            lstm_forward[(triton.cdiv(num_texts, BLOCK_TEXTS),)](
                input_UG.contiguous(), batch.packed_words, recurrent_dG, peepholes, starts, gates, cells, previous,
                last, batch.num_steps, **switches,
            )  # fmt: skip
        ctx.of = batch, steps, switches
        ctx.save_for_backward(recurrent_dG, peepholes, starts, gates, cells, previous)
        return last

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, by_last: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        batch, steps, switches = ctx.of
        recurrent_dG, peepholes, starts, gradient, cells, previous = ctx.saved_tensors  # the gates are used up
        by_last, first = by_last.contiguous(), max(0, batch.num_steps - steps) if steps else 0
        programs = (triton.cdiv(len(by_last), BLOCK_TEXTS),)
        by_peepholes = cells.new_zeros(*programs, *peepholes.shape) if switches["PEEPHOLES"] else cells
        with _device_of(by_last):
            lstm_backward[programs](
                recurrent_dG, peepholes, starts, gradient, cells, by_last, torch.zeros_like(by_last), by_peepholes,
                first, batch.num_steps, **switches,
            )  # fmt: skip
        begin = batch.step_offsets[first]
        gradient[:begin].zero_()
        return (
            sum_by_word(gradient, batch),
            previous[begin:].t() @ gradient[begin:],
            by_peepholes.sum(0) if switches["PEEPHOLES"] else None,
            None,
            None,
            None,
        )


def block_sizes(cells: int) -> dict[str, int]:
    """The block sizes of a program; part of a kernel's code."""
    return {"CELLS": cells, "TEXTS": BLOCK_TEXTS, "BLOCK": 32 if cells % 32 == 0 else 16}


def _device_of(tensor: torch.Tensor) -> AbstractContextManager:
    """Triton launches on the thread's current device, which another thread's choice does not reach."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


# The kernels.

# Numbers that differ between batches must not be compiled in (Triton treats 1 and multiples of 16 specially).
PER_BATCH = {"do_not_specialize": ["num_steps", "first_step"], "do_not_specialize_on_alignment": ["packed_words_P"]}


@triton.jit
def _tanh(x):
    """tanh to a few units in the last place; Triton's own does not run in its interpreter."""
    size = tl.abs(x)
    e = tl.exp(-2.0 * size)
    square = size * size
    # Near 0, 1 - e cancels: the series up to x^9, whose next term is below 6e-8 of x there.
    series = 2.0 / 15 - square * (17.0 / 315 - square * (62.0 / 2835))
    near = size * (1.0 - square * (1.0 / 3 - square * series))
    bent = tl.where(size < 0.3, near, (1.0 - e) / (1.0 + e))
    return tl.where(x < 0.0, -bent, bent)


@triton.jit
def _sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def _tile(base, rows, row_stride, columns):
    """Addresses of [rows, columns] of a matrix."""
    return base + rows[:, None] * row_stride + columns[None, :]


@triton.jit(**PER_BATCH)
def lstm_forward(
    words_UG, packed_words_P, recurrent_dG, peepholes, starts, gates_PG, cells_Pd, previous_Pd, last_Nd, num_steps,
    CELLS: tl.constexpr, FORGET: tl.constexpr, PEEPHOLES: tl.constexpr, TEXTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Writes the gates after their nonlinearities, c(t), y(t-1) (zeros before) and the last y of each text.

    `starts`: int64 [steps + 1], the packed rows where steps begin. `words_UG`: W l + b of each distinct word.
    """
    COLUMNS: tl.constexpr = (4 if FORGET else 3) * CELLS
    IN: tl.constexpr = (2 if FORGET else 1) * CELLS
    C: tl.constexpr = IN + CELLS
    first_text = tl.program_id(0) * TEXTS
    text = first_text + tl.arange(0, TEXTS)
    block = tl.arange(0, BLOCK)
    before = tl.load(starts)  # where the step before begins
    begun = before  # and ends
    for step in range(num_steps):
        start = tl.load(starts + step)
        end = tl.load(starts + step + 1)
        if start + first_text < end:
            rows = start + text
            active = (rows < end)[:, None]
            had = (before + text < begun)[:, None]  # texts with a word before this one
            word = tl.load(packed_words_P + rows, mask=rows < end, other=0)
            for j in range(0, CELLS, BLOCK):
                cell = j + block
                inputs = _tile(words_UG, word, COLUMNS, cell)
                o = tl.load(inputs, mask=active, other=0.0)
                i = tl.load(inputs + IN, mask=active, other=0.0)
                g = tl.load(inputs + C, mask=active, other=0.0)
                if FORGET:
                    f = tl.load(inputs + CELLS, mask=active, other=0.0)
                if first_text < begun - before:  # the longest of these texts has
                    for k in range(0, CELLS, BLOCK):
                        y = tl.load(_tile(previous_Pd, rows, CELLS, k + block), mask=had, other=0.0)
                        weights = _tile(recurrent_dG, k + block, COLUMNS, cell)
                        o = tl.dot(y, tl.load(weights), o, input_precision="ieee")
                        i = tl.dot(y, tl.load(weights + IN), i, input_precision="ieee")
                        g = tl.dot(y, tl.load(weights + C), g, input_precision="ieee")
                        if FORGET:
                            f = tl.dot(y, tl.load(weights + CELLS), f, input_precision="ieee")
                c = tl.load(_tile(cells_Pd, before + text, CELLS, cell), mask=had, other=0.0)
                if PEEPHOLES:
                    i += tl.load(peepholes + IN + cell)[None, :] * c
                i = _sigmoid(i)
                g = _tanh(g)
                if FORGET:
                    if PEEPHOLES:
                        f += tl.load(peepholes + CELLS + cell)[None, :] * c
                    f = _sigmoid(f)
                    c = f * c
                c += i * g
                if PEEPHOLES:
                    o += tl.load(peepholes + cell)[None, :] * c
                o = _sigmoid(o)
                y = o * _tanh(c)
                gates = _tile(gates_PG, rows, COLUMNS, cell)
                tl.store(gates, o, mask=active)
                tl.store(gates + IN, i, mask=active)
                tl.store(gates + C, g, mask=active)
                if FORGET:
                    tl.store(gates + CELLS, f, mask=active)
                tl.store(_tile(cells_Pd, rows, CELLS, cell), c, mask=active)
                if step == num_steps - 1:
                    tl.store(_tile(last_Nd, text, CELLS, cell), y, mask=active)
                else:
                    tl.store(_tile(previous_Pd, end + text, CELLS, cell), y, mask=active)
            tl.debug_barrier()  # the next step reads other threads' writes of this program
        before = start
        begun = end


@triton.jit(**PER_BATCH)
def lstm_backward(
    recurrent_dG, peepholes, starts, gates_PG, cells_Pd, by_last_Nd, by_cell_Nd, by_peepholes,
    first_step, num_steps,
    CELLS: tl.constexpr, FORGET: tl.constexpr, PEEPHOLES: tl.constexpr, TEXTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Overwrites gates_PG, from the last step to `first_step`, with the gradient of the gates' arguments.

    `by_cell_Nd`: zeros; holds the gradient of c between steps. `by_peepholes`: zeros [programs, gates, d]; each
    program's part of the peepholes' gradient.
    """
    COLUMNS: tl.constexpr = (4 if FORGET else 3) * CELLS
    IN: tl.constexpr = (2 if FORGET else 1) * CELLS
    C: tl.constexpr = IN + CELLS
    first_text = tl.program_id(0) * TEXTS
    text = first_text + tl.arange(0, TEXTS)
    block = tl.arange(0, BLOCK)
    for back in range(num_steps - first_step):
        step = num_steps - 1 - back
        start = tl.load(starts + step)
        end = tl.load(starts + step + 1)
        if start + first_text < end:
            before = tl.load(starts + step - 1, mask=step > 0, other=0)  # for step 0: nothing, from 0 to 0
            rows = start + text
            active = (rows < end)[:, None]
            had = (before + text < start)[:, None]
            for j in range(0, CELLS, BLOCK):
                cell = j + block
                if back == 0:
                    by_y = tl.load(_tile(by_last_Nd, text, CELLS, cell), mask=active, other=0.0)
                else:
                    by_y = tl.zeros((TEXTS, BLOCK), tl.float32)
                    for k in range(0, COLUMNS, BLOCK):
                        later = tl.load(_tile(gates_PG, end + text, COLUMNS, k + block), mask=active, other=0.0)
                        weights = recurrent_dG + cell[None, :] * COLUMNS + (k + block)[:, None]
                        by_y = tl.dot(later, tl.load(weights), by_y, input_precision="ieee")
                gates = _tile(gates_PG, rows, COLUMNS, cell)
                o = tl.load(gates, mask=active, other=0.0)
                i = tl.load(gates + IN, mask=active, other=0.0)
                g = tl.load(gates + C, mask=active, other=0.0)
                c = tl.load(_tile(cells_Pd, rows, CELLS, cell), mask=active, other=0.0)
                bent = _tanh(c)
                by_o = by_y * bent * o * (1.0 - o)
                by_cell = _tile(by_cell_Nd, text, CELLS, cell)
                by_c = tl.load(by_cell, mask=active, other=0.0) + by_y * o * (1.0 - bent * bent)
                if PEEPHOLES:
                    by_c += by_o * tl.load(peepholes + cell)[None, :]
                by_i = by_c * g * i * (1.0 - i)
                tl.store(gates, by_o, mask=active)
                tl.store(gates + IN, by_i, mask=active)
                tl.store(gates + C, by_c * i * (1.0 - g * g), mask=active)
                if FORGET or PEEPHOLES:
                    earlier = tl.load(_tile(cells_Pd, before + text, CELLS, cell), mask=had, other=0.0)
                if FORGET:
                    f = tl.load(gates + CELLS, mask=active, other=0.0)
                    by_f = by_c * earlier * f * (1.0 - f)
                    tl.store(gates + CELLS, by_f, mask=active)
                    by_c *= f
                if PEEPHOLES:
                    sums = by_peepholes + tl.program_id(0) * (COLUMNS - CELLS) + cell
                    tl.store(sums, tl.load(sums) + tl.sum(by_o * c, axis=0))
                    tl.store(sums + IN, tl.load(sums + IN) + tl.sum(by_i * earlier, axis=0))
                    by_c += by_i * tl.load(peepholes + IN + cell)[None, :]
                    if FORGET:
                        tl.store(sums + CELLS, tl.load(sums + CELLS) + tl.sum(by_f * earlier, axis=0))
                        by_c += by_f * tl.load(peepholes + CELLS + cell)[None, :]
                tl.store(by_cell, by_c, mask=active)
            tl.debug_barrier()
