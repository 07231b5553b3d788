"""The LSTM and RNN towers computed by the fused kernels: the same towers, for float32 on a GPU.

    fused(tower)   the tower, its recurrence in one launch per direction where there is a kernel for it

Each differs from training.towers in who computes, not in what; what is computed at once for all steps (W_rec's
gradient, the sums over words) is torch's as there. Shapes as in lstm.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import triton

from training.data.text_batch import TextBatch, copied
from training.gpu import gpu_kernels
from training.towers import Parts, Shapes, Tower
from training.towers.bilstm import BidirectionalLSTM
from training.towers.lstm import LSTM
from training.towers.projected import Projected
from training.towers.rnn import RNN
from training.towers.tower import sum_by_word

BLOCK_TEXTS = 32  # of a program; with 4 warps each thread holds 8 texts-times-cells of each gate in registers
# Fused multiply-add is asked for by name: its default is another one in Triton 3.10.
OPTIONS = {"num_warps": 4, "enable_fp_fusion": True}


def fused(tower: Tower) -> Tower:
    """A tower with its recurrence fused, or the tower itself: the kernels take cells in blocks of 16 or 32."""
    match tower:
        case LSTM() if tower.cells % 16 == 0:
            return FusedLSTM(tower)
        case RNN() if tower.cells % 16 == 0:
            return FusedRNN(tower)
        case BidirectionalLSTM(one_way) if isinstance(one_way, LSTM) and one_way.cells % 16 == 0:
            return BidirectionalLSTM(FusedLSTM(one_way))
        case Projected(inner, word_columns):
            return Projected(fused(inner), word_columns)
    return tower


@dataclass(frozen=True, slots=True)
class FusedTrace:
    """What the backward pass needs of the forward pass."""

    starts: torch.Tensor  # int64 [steps + 1], batch.step_offsets on the device
    values: Sequence[torch.Tensor]  # gates, c and y(t-1) of each packed row, or an RNN's y


@dataclass(frozen=True, slots=True)
class FusedLSTM:
    """lstm.LSTM with fused steps."""

    plain: LSTM

    @property
    def columns(self) -> int:
        return self.plain.columns

    @property
    def dimensions(self) -> int:
        return self.plain.dimensions

    @property
    def parts(self) -> Shapes:
        return self.plain.parts

    def forward(self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch) -> tuple[torch.Tensor, FusedTrace]:
        """As tower.Tower.forward."""
        input_UG, starts = (word_UG + parts["b"]).contiguous(), _starts(batch)
        num_packed, num_texts = batch.step_offsets[-1], len(batch.order)
        gates = input_UG.new_empty(num_packed, self.columns)
        cells = input_UG.new_empty(num_packed, self.dimensions)
        previous = input_UG.new_zeros(num_packed, self.dimensions)
        last = input_UG.new_empty(num_texts, self.dimensions)
        with _device_of(last):
            gpu_kernels.lstm_forward[_programs(num_texts)](
                input_UG, batch.packed_words, *self._weights(parts), starts, gates, cells, previous, last,
                batch.num_steps, **self._switches,
            )  # fmt: skip
        return last, FusedTrace(starts, (gates, cells, previous))

    def backward(
        self, trace: FusedTrace, by_vectors_Nd: torch.Tensor, parts: Parts, batch: TextBatch, steps: int = 0
    ) -> tuple[torch.Tensor, Parts]:
        """As tower.Tower.backward."""
        gradient, cells, previous = trace.values
        first = max(0, batch.num_steps - steps) if steps else 0
        by_last = by_vectors_Nd.contiguous()
        programs = _programs(len(by_last))
        by_peepholes = cells.new_zeros(*programs, *parts["W_peep"].shape) if self.plain.peepholes else cells
        with _device_of(by_last):
            gpu_kernels.lstm_backward[programs](
                *self._weights(parts), trace.starts, gradient, cells, by_last, torch.zeros_like(by_last), by_peepholes,
                first, batch.num_steps, **self._switches,
            )  # fmt: skip
        by_word_UG, by_parts = _sums(gradient, previous, batch, first)
        return by_word_UG, {**by_parts, **({"W_peep": by_peepholes.sum(0)} if self.plain.peepholes else {})}

    def _weights(self, parts: Parts) -> tuple[torch.Tensor, torch.Tensor]:
        """W_rec, and the peepholes or, where there are none, something that is not read."""
        recurrent = parts["W_rec"].contiguous()
        return recurrent, parts["W_peep"].contiguous() if self.plain.peepholes else recurrent

    @property
    def _switches(self) -> dict[str, Any]:
        return {
            "FORGET": self.plain.forget_gate,
            "PEEPHOLES": self.plain.peepholes,
            **block_sizes(self.plain.cells),
            **OPTIONS,
        }


@dataclass(frozen=True, slots=True)
class FusedRNN:
    """rnn.RNN with fused steps."""

    plain: RNN

    @property
    def columns(self) -> int:
        return self.plain.columns

    @property
    def dimensions(self) -> int:
        return self.plain.dimensions

    @property
    def parts(self) -> Shapes:
        return self.plain.parts

    def forward(self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch) -> tuple[torch.Tensor, FusedTrace]:
        """As tower.Tower.forward."""
        input_UG, starts = (word_UG + parts["b"]).contiguous(), _starts(batch)
        state = input_UG.new_empty(batch.step_offsets[-1], self.dimensions)
        previous = torch.zeros_like(state)
        last = input_UG.new_empty(len(batch.order), self.dimensions)
        with _device_of(state):
            gpu_kernels.rnn_forward[_programs(len(last))](
                input_UG, batch.packed_words, parts["W_rec"].contiguous(), starts, state, previous, last,
                batch.num_steps, **block_sizes(self.plain.cells), **OPTIONS,
            )  # fmt: skip
        return last, FusedTrace(starts, (state, previous))

    def backward(
        self, trace: FusedTrace, by_vectors_Nd: torch.Tensor, parts: Parts, batch: TextBatch, steps: int = 0
    ) -> tuple[torch.Tensor, Parts]:
        """As tower.Tower.backward."""
        gradient, previous = trace.values
        first = max(0, batch.num_steps - steps) if steps else 0
        with _device_of(gradient):
            gpu_kernels.rnn_backward[_programs(len(by_vectors_Nd))](
                parts["W_rec"].contiguous(), trace.starts, gradient, by_vectors_Nd.contiguous(),
                first, batch.num_steps, **block_sizes(self.plain.cells), **OPTIONS,
            )  # fmt: skip
        return _sums(gradient, previous, batch, first)


def _sums(
    gradient_PG: torch.Tensor, previous_Pd: torch.Tensor, batch: TextBatch, first: int
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """(gradient by W l of each distinct word, by W_rec and b) from that of every packed row from step `first` on."""
    begin = batch.step_offsets[first]
    gradient_PG[:begin].zero_()
    by_word_UG = sum_by_word(gradient_PG, batch)
    return by_word_UG, {"W_rec": previous_Pd[begin:].t() @ gradient_PG[begin:], "b": by_word_UG.sum(0)}


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
