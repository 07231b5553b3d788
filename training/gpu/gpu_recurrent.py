"""The LSTM and RNN towers computed by the fused kernels: the same towers, for float32 on a GPU.

    fused(tower)   the tower, its recurrence in one launch per direction where there is a kernel for it

Each differs from training.towers in who computes, not in what; what is computed at once for all steps (W_rec's
gradient, the sums over words) is torch's as there, and every other gradient autograd's. Shapes as in lstm.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import triton

from training.data.text_batch import TextBatch, copied
from training.gpu import gpu_kernels
from training.towers import Parts, Tower
from training.towers.bilstm import BidirectionalLSTM
from training.towers.lstm import LSTMTower
from training.towers.projected import Projected
from training.towers.rnn import RNNTower
from training.towers.tower import sum_by_word

BLOCK_TEXTS = 32  # of a program; with 4 warps each thread holds 8 texts-times-cells of each gate in registers
# Fused multiply-add is asked for by name: its default is another one in Triton 3.10.
OPTIONS = {"num_warps": 4, "enable_fp_fusion": True}


def fused(tower: Tower) -> Tower:
    """A tower with its recurrence fused, or the tower itself: the kernels take cells in blocks of 16 or 32."""
    match tower:
        case LSTMTower() if tower.cells % 16 == 0:
            return FusedLSTM(tower.cells, tower.forget_gate, tower.peepholes)
        case RNNTower() if tower.cells % 16 == 0:
            return FusedRNN(tower.cells)
        case BidirectionalLSTM(one_way) if type(tower) is BidirectionalLSTM and one_way.cells % 16 == 0:
            return BidirectionalLSTM(FusedLSTM(one_way.cells, one_way.forget_gate, one_way.peepholes))
        case Projected(inner, word_columns):
            return Projected(fused(inner), word_columns)
    return tower


@dataclass(frozen=True, slots=True)
class FusedLSTM(LSTMTower):
    """lstm.LSTM whose last vectors come out of one launch."""

    def forward(
        self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch, steps: int = 0
    ) -> tuple[torch.Tensor, float]:
        """As tower.Tower.forward."""
        recurrent = parts["W_rec"].contiguous()
        # Where there are no peepholes, something that is not read.
        peepholes = parts["W_peep"].contiguous() if self.peepholes else recurrent.detach()
        switches = {
            "FORGET": self.forget_gate,
            "PEEPHOLES": self.peepholes,
            **block_sizes(self.cells),
            **OPTIONS,
        }
        return _LSTMSteps.apply(word_UG + parts["b"], recurrent, peepholes, batch, steps, switches), 0.0


@dataclass(frozen=True, slots=True)
class FusedRNN(RNNTower):
    """rnn.RNN whose last vectors come out of one launch."""

    def forward(
        self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch, steps: int = 0
    ) -> tuple[torch.Tensor, float]:
        """As tower.Tower.forward."""
        return _RNNSteps.apply(word_UG + parts["b"], parts["W_rec"].contiguous(), batch, steps), 0.0


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
        num_packed, num_texts, starts = batch.step_offsets[-1], len(batch.order), _starts(batch)
        gates = input_UG.new_empty(num_packed, input_UG.shape[1])
        cells = input_UG.new_empty(num_packed, len(recurrent_dG))
        previous = torch.zeros_like(cells)
        last = input_UG.new_empty(num_texts, len(recurrent_dG))
        with _device_of(last):
            gpu_kernels.lstm_forward[_programs(num_texts)](
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
        programs = _programs(len(by_last))
        by_peepholes = cells.new_zeros(*programs, *peepholes.shape) if switches["PEEPHOLES"] else cells
        with _device_of(by_last):
            gpu_kernels.lstm_backward[programs](
                recurrent_dG, peepholes, starts, gradient, cells, by_last, torch.zeros_like(by_last), by_peepholes,
                first, batch.num_steps, **switches,
            )  # fmt: skip
        sums = _sums(gradient, previous, batch, first)
        return *sums, by_peepholes.sum(0) if switches["PEEPHOLES"] else None, None, None, None


class _RNNSteps(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, input_UG: torch.Tensor, recurrent_dd: torch.Tensor, batch: TextBatch, steps: int
    ) -> torch.Tensor:
        starts, cells = _starts(batch), len(recurrent_dd)
        state = input_UG.new_empty(batch.step_offsets[-1], cells)
        previous = torch.zeros_like(state)
        last = input_UG.new_empty(len(batch.order), cells)
        with _device_of(state):
            gpu_kernels.rnn_forward[_programs(len(last))](
                input_UG.contiguous(), batch.packed_words, recurrent_dd, starts, state, previous, last,
                batch.num_steps, **block_sizes(cells), **OPTIONS,
            )  # fmt: skip
        ctx.of = batch, steps
        ctx.save_for_backward(recurrent_dd, starts, state, previous)
        return last

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, by_last: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        batch, steps = ctx.of
        recurrent_dd, starts, gradient, previous = ctx.saved_tensors  # the states are used up
        first = max(0, batch.num_steps - steps) if steps else 0
        with _device_of(gradient):
            gpu_kernels.rnn_backward[_programs(len(by_last))](
                recurrent_dd, starts, gradient, by_last.contiguous(),
                first, batch.num_steps, **block_sizes(len(recurrent_dd)), **OPTIONS,
            )  # fmt: skip
        return *_sums(gradient, previous, batch, first), None, None


def _sums(
    gradient_PG: torch.Tensor, previous_Pd: torch.Tensor, batch: TextBatch, first: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients (of the input of each distinct word, of W_rec) from that of every packed row from step `first` on."""
    begin = batch.step_offsets[first]
    gradient_PG[:begin].zero_()
    return sum_by_word(gradient_PG, batch), previous_Pd[begin:].t() @ gradient_PG[begin:]


def _starts(batch: TextBatch) -> torch.Tensor:
    """The packed rows where steps begin, on the batch's device, without waiting for it."""
    return copied(torch.tensor(batch.step_offsets), batch.packed_words.device)


def _programs(num_texts: int) -> tuple[int]:
    return (triton.cdiv(num_texts, BLOCK_TEXTS),)


def block_sizes(cells: int) -> dict[str, int]:
    """What a program works on at once; part of a kernel's code."""
    return {"CELLS": cells, "TEXTS": BLOCK_TEXTS, "BLOCK": 32 if cells % 32 == 0 else 16}


def _device_of(tensor: torch.Tensor) -> AbstractContextManager:
    """Triton launches on the thread's current device, which another thread's choice does not reach."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()
