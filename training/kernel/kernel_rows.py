"""Rows of a tower on the compiled path: look-ahead, sum over micro-batches, update.

The reference is optimisers.LazyRows and reduction. Threads take ranges of rows, and no number depends on where a range
ends.

Shapes: R touched rows, G columns.
"""

import ctypes
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

from training.compute.threads import share_out
from training.kernel.kernel_batch import CHUNK_TEXTS
from training.kernel.kernel_library import library, require_memory
from training.kernel.kernel_towers import CompiledAddend
from training.update.optimisers import LazyRows, MomentumSchedule

RANGE_ROWS = 512  # of one thread's turn, at least: a turn costs some 20 microseconds


class _RowSum(ctypes.Structure):
    _fields_ = (
        ("addends", ctypes.c_void_p),
        ("num_addends", ctypes.c_int64),
        ("rows", ctypes.c_void_p),
        ("first", ctypes.c_int64),
        ("last", ctypes.c_int64),
        ("columns", ctypes.c_int64),
        ("limit", ctypes.c_float),
        ("misfits", ctypes.c_void_p),
    )


@cache
def _library() -> ctypes.CDLL:
    loaded = library()
    pointer, number, real = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
    functions = {
        "rows_move": (pointer, pointer, pointer, number, number, pointer, pointer),
        "rows_step": (pointer, pointer, pointer, number, number, pointer, pointer, pointer, real, real),
        "rows_sum_exactly": (pointer, pointer),
        "rows_sum_fast": (pointer, pointer, pointer),
        "rows_sum_exactly_to_floats": (pointer, pointer, pointer),
        "rows_from_fixed": (pointer, number, number, pointer, pointer),
        "rows_squares": (pointer, number, number, pointer),
    }
    for name, arguments in functions.items():
        function = getattr(loaded, name)
        function.argtypes, function.restype = arguments, None
    loaded.rows_sum_exactly_to_floats.restype = ctypes.c_int32
    return loaded


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
        _library().rows_move(
            self.state.parameters.data_ptr(), self.state.velocity.data_ptr(), self.index_R[first:].ctypes.data,
            last - first, self.columns, by_velocity.ctypes.data, to_RG[first:].data_ptr(),
        )  # fmt: skip

    def step(self, gradient_RG: torch.Tensor, step: float, scale: float, first: int, last: int) -> None:
        """Make the update on rows first to last; `made` when all of them are."""
        _library().rows_step(
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

        def one(first: int, task: _RowSum) -> None:
            squares = self.squares_R[first:].ctypes.data
            done = _library().rows_sum_exactly_to_floats(ctypes.byref(task), to_RG[first:].data_ptr(), squares)
            require_memory(done >= 0, "the sum of a row")

        self._all(one, threads, num_threads)

    def in_fixed_point(self, to_RG: torch.Tensor, threads: Executor, num_threads: int) -> None:
        """As int64, ready to be added up over workers."""

        def one(first: int, task: _RowSum) -> None:
            _library().rows_sum_exactly(ctypes.byref(task), to_RG[first:].data_ptr())

        self._all(one, threads, num_threads)

    def in_floats(self, to_RG: torch.Tensor, threads: Executor, num_threads: int) -> None:
        """In the order of the addends; and the rows' squares, which hold for a single worker."""

        def one(first: int, task: _RowSum) -> None:
            squares = self.squares_R[first:].ctypes.data
            _library().rows_sum_fast(ctypes.byref(task), to_RG[first:].data_ptr(), squares)

        self._all(one, threads, num_threads)

    def _all(self, one: Callable[[int, _RowSum], None], threads: Executor, num_threads: int) -> None:
        cut = ranges(len(self._touched), num_threads)
        self.misfits = np.zeros((len(cut), len(self._array)), np.int32)

        def run(place: int) -> None:
            first, last = cut[place]
            task = _RowSum(
                ctypes.addressof(self._array), len(self._array), self._touched.index_R.ctypes.data, first, last,
                self._touched.columns, self._limit, self.misfits[place:].ctypes.data,
            )  # fmt: skip
            one(first, task)

        share_out(run, range(len(cut)), threads, num_threads)


def from_fixed(sums_RG: torch.Tensor, to_RG: torch.Tensor, threads: Executor, num_threads: int) -> np.ndarray:
    """Write fixed-point sums as floats to `to_RG`; the squares of each row, float64 [R]."""
    squares = np.zeros(len(sums_RG))

    def one(cut: tuple[int, int]) -> None:
        first, last = cut
        _library().rows_from_fixed(
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
        _library().rows_squares(
            rows_RG[first:].data_ptr(), last - first, rows_RG.shape[1], squares[first:].ctypes.data
        )  # fmt: skip

    share_out(one, ranges(len(rows_RG), num_threads), threads, num_threads)
    return squares


TURN_TEXTS = CHUNK_TEXTS // 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Turns:
    """How documents and pairs are numbered for them.

    Which documents of a micro-batch go forward and back together: what they leave for the way back stays in the cache.

    A document waits for the loss of every pair that has it. Those that pairs share go forward first and back last. What
    one pair alone has, or a few pairs, takes turns: TURN_TEXTS documents forward, the loss of their pairs, and back,
    before the next ones. A function of the candidates alone, so a micro-batch has the same sums wherever it is
    computed.

    Shapes: B pairs, C candidates with the clicked one first, N documents.
    """

    candidates: np.ndarray  # int32 [B, C], by the new numbers
    num_shared: int  # documents numbered below it are shared; the others are in runs of `group`
    group: int
    pair_ends: np.ndarray  # int64 [turns], the pair after those of each turn
    place: np.ndarray | None = None  # int32 [N], the new number of each document; None: as before
    pair_order: np.ndarray | None = None  # int64 [B], which pair is where; None: as before


def turns_of(candidates: np.ndarray, num_documents: int) -> Turns:
    """The turns of pairs whose candidates are all their own, or whose clicked ones follow those that all share.

    `candidates`: int32 [B, C], -1 where there is none. Other pairs have no turns.
    """
    return _apart(candidates, num_documents) or _clicked_apart(candidates, num_documents) or Turns(
        candidates=np.ascontiguousarray(candidates),
        num_shared=num_documents,
        group=0,
        pair_ends=np.empty(0, np.int64),
    )  # fmt: skip


def _apart(candidates: np.ndarray, num_documents: int) -> Turns | None:
    """No two pairs share a document: they are numbered pair after pair."""
    (num_pairs, num_candidates), flat = candidates.shape, candidates.ravel()
    if num_candidates > TURN_TEXTS or len(flat) != num_documents or not _is_permutation(flat):
        return None
    place = np.empty(num_documents, np.int32)
    place[flat] = numbers = np.arange(num_documents, dtype=np.int32)
    pairs_of_turn = TURN_TEXTS // num_candidates
    return Turns(
        candidates=numbers.reshape(candidates.shape),
        num_shared=0,
        group=pairs_of_turn * num_candidates,
        pair_ends=np.minimum(np.arange(0, num_pairs, pairs_of_turn) + pairs_of_turn, num_pairs),
        place=place,
    )


def _clicked_apart(candidates: np.ndarray, num_documents: int) -> Turns | None:
    """No pair's clicked document is another one's negative, and they stand last: pairs are put in their order."""
    clicked, negatives = candidates[:, 0], candidates[:, 1:]
    num_shared = int(clicked.min())
    if negatives.size and negatives.max() >= num_shared:
        return None
    if (np.bincount(clicked - num_shared, minlength=num_documents - num_shared) == 0).any():
        return None
    pair_order = np.argsort(clicked, kind="stable")
    ends = np.arange(num_shared, num_documents, TURN_TEXTS) + TURN_TEXTS
    return Turns(
        candidates=np.ascontiguousarray(candidates[pair_order]),
        num_shared=num_shared,
        group=TURN_TEXTS,
        pair_ends=np.searchsorted(clicked[pair_order], ends),
        pair_order=pair_order,
    )


def _is_permutation(numbers: np.ndarray) -> bool:
    return numbers.min() >= 0 and bool((np.bincount(numbers, minlength=len(numbers)) == 1).all())
