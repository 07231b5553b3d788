"""The compiled path of a minibatch's gradient (paths), for recurrent towers in float32 on a CPU.

touched rows to the look-ahead point  ->  micro-batches, one thread each  ->  their sum, row by row  ->  Nesterov's step

Threads share the parts of each step, and no number depends on which thread computed what.
"""

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch

from training.compute.reduction import UNIT, fixed_point_limit, require_fit
from training.compute.threads import share_out
from training.compute.workers import Workers
from training.data.pairs import Pairs
from training.kernel.kernel_batch import BatchIndex, kernel_batch
from training.kernel.kernel_rows import RowSum, TouchedRows, from_fixed, ranges, squares_of, turns_of
from training.kernel.kernel_towers import TowerPoint, Workspace
from training.network.parameters import tower_name
from training.update.optimisers import LazyRows
from training.update.paths import Run

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


@dataclass(frozen=True, slots=True)
class CompiledSum:
    """As paths.Summed."""

    path: "CompiledPath"
    run: Run
    touched: Mapping[str, TouchedRows]
    gradients: Mapping[str, torch.Tensor]
    threads: Executor
    loss: float
    norms: Mapping[str, float]

    def step(self, scales: Mapping[str, float]) -> None:
        def step_rows(work: tuple[str, float, int, int]) -> None:
            tower, step, first, last = work
            self.touched[tower].step(self.gradients[tower], step, scales[tower], first, last)

        num_threads = self.path.num_threads
        work = [
            (tower, step, begin + first, begin + last)
            for tower in scales
            for begin, end, step in self.run.layout.stretches(len(self.touched[tower]), self.run.recipe)
            for first, last in ranges(end - begin, num_threads)
        ]
        share_out(step_rows, work, self.threads, num_threads)
        for tower in scales:
            self.touched[tower].made()


@dataclass(slots=True)
class CompiledPath:
    """As paths.Path. Its memory is reused in every update."""

    num_threads: int
    both_directions: bool
    share_prefixes: bool
    _workspaces: list[Workspace] = field(default_factory=list)
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

    def sum_gradients(
        self,
        run: Run,
        share: Sequence[CompiledBatch],
        touched: Mapping[str, torch.Tensor],
        *,
        update: int,
        num_micro_batches: int,
        workers: Workers,
        threads: Executor,
    ) -> CompiledSum:
        recipe, exact = run.recipe, run.recipe.reduction == "exact"
        rows = _touched_rows(run, touched, update)
        points = self._points(run, rows, threads)
        while len(self._workspaces) < len(share):
            self._workspaces.append(Workspace())
        workspaces = self._workspaces[: len(share)]

        def compute(work: tuple[Workspace, CompiledBatch]) -> float:
            return _gradient(run, points, *work)

        losses = np.array(list(threads.map(compute, zip(workspaces, share, strict=True))))

        limit = fixed_point_limit(num_micro_batches) if exact else math.inf
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
        norms = {name: math.sqrt(float(of.sum())) for name, of in squares.items()}
        return CompiledSum(self, run, rows, gradients, threads, loss, norms)

    def largest(self, run: Run, micro_batch: CompiledBatch, update: int) -> float:
        touched = {
            name: run.layout.touched(
                torch.cat(
                    [self.table_rows(micro_batch, side) for side in SIDES if tower_name(run.recipe, side) == name]
                ).unique()
            )
            for name in run.rows
        }
        rows = _touched_rows(run, touched, update)
        with ThreadPoolExecutor(self.num_threads) as threads:
            points = self._points(run, rows, threads)
        workspace = Workspace()
        loss = _gradient(run, points, workspace, micro_batch)
        sizes = [abs(loss), *(workspace.largest(side, run.layout.columns) for side in range(len(SIDES)))]
        return max(sizes) if all(map(math.isfinite, sizes)) else math.inf

    def _points(self, run: Run, rows: Mapping[str, TouchedRows], threads: Executor) -> dict[str, TowerPoint]:
        """Each tower at the look-ahead point: its touched rows, moved, and where each stands among them."""
        ahead = {name: self._room("ahead", name, len(of), of.columns) for name, of in rows.items()}
        moves = [(of, ahead[name], cut) for name, of in rows.items() for cut in ranges(len(of), self.num_threads)]
        share_out(lambda move: move[0].look_ahead(move[1], *move[2]), moves, threads, self.num_threads)
        points = {}
        for name, of in rows.items():
            table, parts = run.layout.split(ahead[name])
            place = self._room("place", name, run.layout.table_rows, 1, np.int32).numpy()[:, 0]
            place[of.index_R[: len(table)]] = np.arange(len(table), dtype=np.int32)
            points[name] = TowerPoint(run.recipe, table, parts, place)
        return points

    def _over(
        self,
        workers: Workers,
        sums: Mapping[str, RowSum],
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
                squares[name] = from_fixed(mine, gradient, threads, self.num_threads)
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


def _gradient(run: Run, points: Mapping[str, TowerPoint], workspace: Workspace, batch: CompiledBatch) -> float:
    recipe = run.recipe
    both = [points[tower_name(recipe, side)] for side in SIDES]
    batches = (batch.queries, batch.documents)
    return workspace.pair_gradient(
        recipe, both, batches, batch.candidates, batch.weights, run.layout.table_rows, batch.num_shared, batch.pair_ends
    )


def _fixed(losses: np.ndarray) -> np.ndarray:
    return (losses / UNIT).astype(np.int64)


def _touched_rows(run: Run, touched: Mapping[str, torch.Tensor], update: int) -> dict[str, TouchedRows]:
    rows = {}
    for name, index in touched.items():
        state = run.rows[name]
        assert isinstance(state, LazyRows), "training.kernel.trains serves no other"
        rows[name] = TouchedRows.of(state, index, update, run.schedule)
    return rows
