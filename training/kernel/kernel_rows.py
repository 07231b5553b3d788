"""Rows of a tower on the compiled path: look-ahead, sum over micro-batches, update.

The reference is optimisers.LazyRows and reduction. Threads take ranges of rows, and no number depends on where a range
ends.

Shapes: R touched rows, G columns.
"""

import ctypes
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np
import torch

from training.compute.threads import share_out
from training.kernel.kernel_library import fields, library, require_memory
from training.update.optimisers import LazyRows, MomentumSchedule

RANGE_ROWS = 512  # of one thread's turn, at least: a turn costs some 20 microseconds


class CompiledAddend(ctypes.Structure):
    """One side's gradient from one micro-batch, in its workspace's memory (kernel_path)."""

    _fields_ = fields(rows="p", values="p", num_rows="q")


class _RowSum(ctypes.Structure):
    _fields_ = fields(
        addends="p", num_addends="q", rows="p", first="q", last="q", columns="q", limit="f", misfits="p",
    )  # fmt: skip


def ranges(num_rows: int, num_threads: int) -> list[tuple[int, int]]:
    """Split rows into about two ranges per thread, so that one delayed thread does not delay all."""
    size = max(RANGE_ROWS, -(-num_rows // (2 * num_threads)))
    return [(first, min(first + size, num_rows)) for first in range(0, num_rows, size)]


@dataclass(frozen=True, slots=True)
class TouchedRows:
    """Rows of a tower that update k touches, and what brings each up to date for it (optimisers)."""

    state: LazyRows
    index_R: np.ndarray  # int64, ascending
    gain_R: np.ndarray  # float32
    decay_R: np.ndarray  # float32, μ_{k-1} included
    update: int

    @staticmethod
    def of(state: LazyRows, rows: torch.Tensor, update: int, schedule: MomentumSchedule) -> "TouchedRows":
        index = rows.numpy()
        gain, decay = schedule.drift(state.last[index], update - 1)
        decay *= schedule.momentum(update)
        return TouchedRows(state, index, gain.astype(np.float32), decay.astype(np.float32), update)

    def __len__(self) -> int:
        return len(self.index_R)

    @property
    def columns(self) -> int:
        return self.state.parameters.shape[1]

    def look_ahead(self, to_RG: torch.Tensor, first: int, last: int) -> None:
        """Write Λ_{k-1} + μ_{k-1} ΔΛ_{k-1} of rows first to last to theirs of `to_RG`."""
        by_velocity = self.gain_R[first:last] + self.decay_R[first:last]
        library().rows_move(
            self.state.parameters.data_ptr(), self.state.velocity.data_ptr(), self.index_R[first:].ctypes.data,
            last - first, self.columns, by_velocity.ctypes.data, to_RG[first:].data_ptr(),
        )  # fmt: skip

    def step(self, gradient_RG: torch.Tensor, step: float, scale: float, first: int, last: int) -> None:
        """Make the update on rows first to last; `made` when all of them are."""
        library().rows_step(
            self.state.parameters.data_ptr(), self.state.velocity.data_ptr(), self.index_R[first:].ctypes.data,
            last - first, self.columns, self.gain_R[first:].ctypes.data, self.decay_R[first:].ctypes.data,
            gradient_RG[first:].data_ptr(), step, scale,
        )  # fmt: skip

    def made(self) -> None:
        """Note the update as the last one of all its rows."""
        self.state.last[self.index_R] = self.update


class RowSum:
    """The sum of one tower's addends at its touched rows."""

    def __init__(self, addends: Sequence[CompiledAddend], touched: TouchedRows, limit: float) -> None:
        self._array = (CompiledAddend * len(addends))(*addends)
        self._touched, self._limit = touched, limit
        self.squares_R = np.zeros(len(touched))
        self.misfits = np.zeros((0, len(addends)), np.int32)

    @property
    def num_misfits(self) -> int:
        """Addends with a value that is not finite, or not below the limit."""
        return int(self.misfits.any(axis=0).sum())

    def exactly(self, to_RG: torch.Tensor, threads: Executor, num_threads: int) -> None:
        """In fixed point, to floats; and the rows' squares."""
        self._all("rows_sum_exactly_to_floats", to_RG, self.squares_R, threads, num_threads)

    def in_fixed_point(self, to_RG: torch.Tensor, threads: Executor, num_threads: int) -> None:
        """As int64, ready to be added up over workers."""
        self._all("rows_sum_exactly", to_RG, None, threads, num_threads)

    def in_floats(self, to_RG: torch.Tensor, threads: Executor, num_threads: int) -> None:
        """In the order of the addends; and the rows' squares, which hold for a single worker."""
        self._all("rows_sum_fast", to_RG, self.squares_R, threads, num_threads)

    def _all(
        self, function: str, to_RG: torch.Tensor, squares_R: np.ndarray | None, threads: Executor, num_threads: int
    ) -> None:
        cut = ranges(len(self._touched), num_threads)
        self.misfits = np.zeros((len(cut), len(self._array)), np.int32)

        def sum_range(place: int) -> None:
            first, last = cut[place]
            task = _RowSum(
                ctypes.addressof(self._array), len(self._array), self._touched.index_R.ctypes.data, first, last,
                self._touched.columns, self._limit, self.misfits[place:].ctypes.data,
            )  # fmt: skip
            squares = () if squares_R is None else (squares_R[first:].ctypes.data,)
            done = getattr(library(), function)(ctypes.byref(task), to_RG[first:].data_ptr(), *squares)
            require_memory(done is None or done >= 0, "the sum of a row")

        share_out(sum_range, range(len(cut)), threads, num_threads)


def from_fixed(sums_RG: torch.Tensor, to_RG: torch.Tensor, threads: Executor, num_threads: int) -> np.ndarray:
    """Write fixed-point sums as floats to `to_RG`; the squares of each row, float64 [R]."""
    squares = np.zeros(len(sums_RG))

    def one(cut: tuple[int, int]) -> None:
        first, last = cut
        library().rows_from_fixed(
            sums_RG[first:].data_ptr(), last - first, sums_RG.shape[1], to_RG[first:].data_ptr(),
            squares[first:].ctypes.data,
        )  # fmt: skip

    share_out(one, ranges(len(sums_RG), num_threads), threads, num_threads)
    return squares


def squares_of(rows_RG: torch.Tensor, threads: Executor, num_threads: int) -> np.ndarray:
    """The squares of each row, float64 [R]."""
    squares = np.zeros(len(rows_RG))

    def one(cut: tuple[int, int]) -> None:
        first, last = cut
        library().rows_squares(
            rows_RG[first:].data_ptr(), last - first, rows_RG.shape[1], squares[first:].ctypes.data
        )  # fmt: skip

    share_out(one, ranges(len(rows_RG), num_threads), threads, num_threads)
    return squares
