"""The compiled path of a minibatch's gradient (large_update.Path), for recurrent towers in float32 on a CPU.

touched rows to the look-ahead point  ->  micro-batches, one thread each  ->  their sum, row by row  ->  Nesterov's step

Threads share the parts of each step, and no number depends on which thread computed what.
"""

import ctypes
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch

from training.compute.reduction import UNIT, Workers, fixed_point_limit, require_fit
from training.compute.threads import share_out
from training.data.shard_data import Pairs
from training.kernel.kernel_library import Owned, fields, library, require_memory
from training.kernel.kernel_towers import CHUNK_TEXTS, BatchIndex, TowerPoint, TowerStruct, kernel_batch
from training.network.parameters import tower_name
from training.recipes.recipe import Recipe
from training.recipes.towers import Truncated
from training.update.large_update import Share, Summed, Towers
from training.update.optimisers import LazyRows, MomentumSchedule

SIDES = ("query", "document")


@dataclass(frozen=True, slots=True)
class CompiledBatch:
    """A prepared micro-batch. Documents of only a few pairs are processed in turns."""

    queries: BatchIndex
    documents: BatchIndex
    candidates: np.ndarray  # int32 [B, C]
    weights: np.ndarray | None  # float32 [B]
    num_shared: int  # documents before this one may be any pair's
    pair_ends: np.ndarray  # int64 [turns], the pair after those that each turn of the others completes


@dataclass(slots=True)
class CompiledPath:
    """Memory is reused in every update."""

    num_threads: int
    both_directions: bool
    share_prefixes: bool
    _workspaces: "list[Workspace]" = field(default_factory=list)
    _memory: dict[tuple[str, str], np.ndarray] = field(default_factory=dict)

    def prepare(self, pairs: Pairs) -> CompiledBatch:
        turns = turns_of(np.asarray(pairs.candidates, np.int32), sum(len(index) for _, index in pairs.documents))
        table, queries = pairs.queries
        weights = pairs.weights
        if turns.pair_order is not None:
            queries = queries[turns.pair_order]
            weights = None if weights is None else weights[turns.pair_order]
        batch_of = partial(kernel_batch, both_directions=self.both_directions, share_prefixes=self.share_prefixes)
        return CompiledBatch(
            queries=batch_of([(table, queries)]),
            documents=batch_of(pairs.documents, place=turns.place, ungrouped=turns.num_shared, group=turns.group),
            candidates=turns.candidates,
            weights=None if weights is None else np.ascontiguousarray(weights, np.float32),
            num_shared=turns.num_shared,
            pair_ends=turns.pair_ends,
        )

    def table_rows(self, micro_batch: CompiledBatch, side: str) -> torch.Tensor:
        batch = micro_batch.queries if side == "query" else micro_batch.documents
        return torch.from_numpy(batch.array("rows").astype(np.int64))

    def sum_gradients(self, towers: Towers, share: Share, touched: Mapping[str, torch.Tensor]) -> Summed:
        recipe, exact = towers.recipe, towers.recipe.reduction == "exact"
        batches, workers, threads = share.micro_batches, share.workers, share.threads
        rows = _touched_rows(towers, touched, share.update)
        points = self._points(towers, rows, threads)
        while len(self._workspaces) < len(batches):
            self._workspaces.append(Workspace())
        workspaces = self._workspaces[: len(batches)]

        def gradient(workspace: Workspace, batch: CompiledBatch) -> float:
            return workspace.gradient(batch, recipe, points, towers.layout.table_rows)

        losses = np.array(list(threads.map(gradient, workspaces, batches)))
        limit = fixed_point_limit(share.num_in_all) if exact else math.inf
        fit = np.abs(losses) < limit
        sums = {}
        for name, touched_rows in rows.items():
            sides = [place for place, side in enumerate(SIDES) if tower_name(recipe, side) == name]
            addends = [workspace.addend(side) for workspace in workspaces for side in sides]
            sums[name] = RowSum(addends, touched_rows, limit)
        gradients = {name: self._room("gradient", name, len(of), of.columns) for name, of in rows.items()}
        if workers.size == 1:
            squares = {}
            for name, total in sums.items():
                (total.exactly if exact else total.in_floats)(gradients[name], threads, self.num_threads)
                squares[name] = total.squares_R
            loss = float(_fixed(losses[fit]).sum()) * UNIT if exact else float(losses.sum())
            misfits = int((~fit).sum()) + sum(total.num_misfits for total in sums.values())
        else:
            squares, loss, misfits = self._over(workers, sums, gradients, losses, fit, threads, exact)
        if exact:
            require_fit(misfits, limit)
        elif misfits:
            loss = math.nan

        def step(scales: Mapping[str, float]) -> None:
            work = [
                (name, length, begin + first, begin + last)
                for name in scales
                for begin, end, length in towers.layout.stretches(len(rows[name]), recipe)
                for first, last in ranges(end - begin, self.num_threads)
            ]

            def step_rows(part: tuple[str, float, int, int]) -> None:
                name, length, first, last = part
                rows[name].step(gradients[name], length, scales[name], first, last)

            share_out(step_rows, work, threads, self.num_threads)
            for name in scales:
                rows[name].made()

        return Summed(loss, {name: math.sqrt(float(of.sum())) for name, of in squares.items()}, step)

    def largest(self, towers: Towers, micro_batch: CompiledBatch, update: int) -> float:
        touched = {}
        for name in towers.rows:
            sides = [side for side in SIDES if tower_name(towers.recipe, side) == name]
            of_sides = torch.cat([self.table_rows(micro_batch, side) for side in sides])
            touched[name] = towers.layout.touched(of_sides.unique())
        with ThreadPoolExecutor(self.num_threads) as threads:
            points = self._points(towers, _touched_rows(towers, touched, update), threads)
        workspace = Workspace()
        sizes = [abs(workspace.gradient(micro_batch, towers.recipe, points, towers.layout.table_rows))]
        for addend in map(workspace.addend, range(len(SIDES))):
            values = (ctypes.c_float * (addend.num_rows * towers.layout.columns)).from_address(addend.values)
            sizes.append(float(np.abs(np.frombuffer(values, np.float32)).max()))
        return max(sizes) if all(map(math.isfinite, sizes)) else math.inf

    def _points(self, towers: Towers, rows: "Mapping[str, TouchedRows]", threads: Executor) -> dict[str, TowerPoint]:
        """Each tower at the look-ahead point: its touched rows, moved, and where each stands among them."""
        ahead = {name: self._room("ahead", name, len(of), of.columns) for name, of in rows.items()}
        moves = [(of, ahead[name], cut) for name, of in rows.items() for cut in ranges(len(of), self.num_threads)]
        share_out(lambda move: move[0].look_ahead(move[1], *move[2]), moves, threads, self.num_threads)
        points = {}
        for name, of in rows.items():
            table, parts = towers.layout.split(ahead[name])
            place = self._room("place", name, towers.layout.table_rows, 1, np.int32).numpy()[:, 0]
            place[of.index_R[: len(table)]] = np.arange(len(table), dtype=np.int32)
            points[name] = TowerPoint(towers.recipe, table, parts, place)
        return points

    def _over(
        self,
        workers: Workers,
        sums: "Mapping[str, RowSum]",
        gradients: Mapping[str, torch.Tensor],
        losses: np.ndarray,
        fit: np.ndarray,
        threads: Executor,
        exact: bool,
    ) -> tuple[dict[str, np.ndarray], float, int]:
        """The sums over all workers, in one message: (squares of each tower's rows, loss, misfits)."""
        dtype = np.int64 if exact else np.float32
        size = sum(gradient.numel() for gradient in gradients.values()) + 2
        flat = self._room("message", "", size, 1, dtype)[:, 0]
        views = dict(zip(gradients, flat.split([*(of.numel() for of in gradients.values()), 2]), strict=False))
        for name, total in sums.items():
            mine = views[name].view_as(gradients[name])
            (total.in_fixed_point if exact else total.in_floats)(mine, threads, self.num_threads)
        flat[-2] = int(_fixed(losses[fit]).sum()) if exact else float(losses[fit].sum())
        flat[-1] = int((~fit).sum()) + sum(total.num_misfits for total in sums.values())
        workers.add_up(flat)
        squares = {}
        for name, gradient in gradients.items():
            mine = views[name].view_as(gradient)
            if exact:
                squares[name] = squares_of(mine, threads, self.num_threads, to_RG=gradient)
            else:
                gradient.copy_(mine)
                squares[name] = squares_of(gradient, threads, self.num_threads)
        return squares, int(flat[-2]) * UNIT if exact else float(flat[-2]), int(flat[-1])

    def _room(self, what: str, name: str, rows: int, columns: int, dtype: type = np.float32) -> torch.Tensor:
        """Uninitialised, reusable memory [rows, columns] for one use at a time; NumPy's, in large pages."""
        kept = self._memory.get((what, name))
        if kept is None or kept.dtype != dtype or len(kept) < rows * columns:
            kept = self._memory[what, name] = np.empty(rows * columns * 5 // 4, dtype)
        return torch.from_numpy(kept[: rows * columns].reshape(rows, columns))


def _fixed(losses: np.ndarray) -> np.ndarray:
    return (losses / UNIT).astype(np.int64)


def _touched_rows(towers: Towers, touched: Mapping[str, torch.Tensor], update: int) -> "dict[str, TouchedRows]":
    rows = {}
    for name, index in touched.items():
        state = towers.rows[name]
        assert isinstance(state, LazyRows), "training.kernel.trains serves no other"
        rows[name] = TouchedRows.of(state, index, update, towers.schedule)
    return rows


class _PairTask(ctypes.Structure):
    _fields_ = (
        ("query", TowerStruct),
        ("document", TowerStruct),
        *fields(
            queries="p", documents="p", candidates="p", pair_weights="p", num_candidates="q", gamma="f",
            max_steps="i", table_rows="q", num_shared="q", pair_ends="p",
        ),
    )  # fmt: skip


class Workspace(Owned):
    """Reusable memory for the gradient of one micro-batch at a time."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("workspace", library().workspace_new(), "a gradient")

    def gradient(
        self, batch: CompiledBatch, recipe: Recipe, points: Mapping[str, TowerPoint], table_rows: int
    ) -> float:
        """The sum of the pairs' losses; the gradient stays here until the next call. `points`: of each tower."""
        assert isinstance(recipe.tower, Truncated)
        task = _PairTask(
            *(points[tower_name(recipe, side)].struct for side in SIDES),
            batch.queries.handle,
            batch.documents.handle,
            batch.candidates.ctypes.data,
            None if batch.weights is None else batch.weights.ctypes.data,
            batch.candidates.shape[1],
            recipe.clicks.gamma,
            recipe.tower.truncate_steps,
            table_rows,
            batch.num_shared,
            batch.pair_ends.ctypes.data,
        )
        loss = library().pair_gradient(self.handle, ctypes.byref(task))
        require_memory(loss != -1, f"the gradient of {len(batch.candidates):,} pairs")
        return loss

    def addend(self, side: int) -> "CompiledAddend":
        """The gradient of the queries' tower (0) or the documents' (1)."""
        found = CompiledAddend()
        library().workspace_addend(self.handle, side, ctypes.byref(found))
        return found


# Rows of a tower: look-ahead, sum over micro-batches, update. The reference is optimisers.LazyRows and reduction.
# Threads take ranges of rows, and no number depends on where a range ends.
#
# Shapes: R touched rows, G columns.

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


def squares_of(
    rows_RG: torch.Tensor, threads: Executor, num_threads: int, *, to_RG: torch.Tensor | None = None
) -> np.ndarray:
    """The squares of each row, float64 [R]; with `to_RG` of rows in fixed point, which are written there as floats."""
    squares = np.zeros(len(rows_RG))
    function = library().rows_squares if to_RG is None else library().rows_from_fixed

    def one(cut: tuple[int, int]) -> None:
        first, last = cut
        to = () if to_RG is None else (to_RG[first:].data_ptr(),)
        function(rows_RG[first:].data_ptr(), last - first, rows_RG.shape[1], *to, squares[first:].ctypes.data)

    share_out(one, ranges(len(rows_RG), num_threads), threads, num_threads)
    return squares


# Turns: which documents of a micro-batch go forward and back together. What they leave for the way back stays in the
# cache.
#
# A document waits for the loss of every pair that has it. Those that pairs share go forward first and back last. What
# one pair alone has, or a few pairs, takes turns: TURN_TEXTS documents forward, the loss of their pairs, and back,
# before the next ones. A function of the candidates alone, so a micro-batch has the same sums wherever it is computed.

TURN_TEXTS = CHUNK_TEXTS // 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Turns:
    """How documents and pairs are numbered for turns.

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
    if num_candidates > TURN_TEXTS or len(flat) != num_documents or flat.min() < 0:
        return None
    if (np.bincount(flat, minlength=num_documents) != 1).any():
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
