"""The compiled path of an update (large_update.Path), in float32 on a CPU, with its own or with torch's gradients.

touched rows to the look-ahead point  ->  micro-batches, one thread each  ->  their sum, row by row  ->  Nesterov's step

Threads share the parts of each step, and no number depends on which thread computed what.
"""

import ctypes
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from clicktower.training.kernel.kernel_library import Owned, fields, library, require_memory
from clicktower.training.model.kernel_towers import CHUNK_TEXTS, BatchIndex, TowerPoint, TowerStruct, kernel_batch
from clicktower.training.model.recipe import tower_name
from clicktower.training.trainer.large_update import (
    UNIT,
    GradientSum,
    LossBatch,
    Towers,
    Workers,
    WorkerShare,
    fixed_point_limit,
    require_fit,
)
from clicktower.training.trainer.optimisers import LazyRows, MomentumSchedule
from clicktower.training.trainer.shard_data import Pairs

SIDES = ("query", "document")


@dataclass(frozen=True, slots=True)
class CompiledBatch:
    """A prepared micro-batch. Documents of only a few pairs are processed in turns."""

    queries: BatchIndex
    documents: BatchIndex
    candidates: np.ndarray  # int32 [B, C]
    weights: np.ndarray | None  # float32 [B]
    num_shared: int  # documents before this one may belong to any pair
    pair_ends: np.ndarray  # int64 [turns], one past the pairs that each turn of the others completes
    rows: dict[str, torch.Tensor]  # of W that each side touches

    def table_rows(self, side: str) -> torch.Tensor:
        return self.rows[side]


def compiled_batch(pairs: Pairs, *, both_directions: bool, share_prefixes: bool) -> CompiledBatch:
    """The batch of some pairs. Raises ValueError for a text without words."""
    turns = turns_of(np.asarray(pairs.candidates, np.int32), sum(len(index) for _, index in pairs.documents))
    (table, queries), weights = pairs.queries, pairs.weights
    if turns.pair_order is not None:
        queries = queries[turns.pair_order]
        weights = None if weights is None else weights[turns.pair_order]
    batch_of = partial(kernel_batch, both_directions=both_directions, share_prefixes=share_prefixes)
    of_queries = batch_of([(table, queries)])
    of_documents = batch_of(pairs.documents, place=turns.place, ungrouped=turns.num_shared, group=turns.group)
    rows = (torch.from_numpy(batch.array("rows").astype(np.int64)) for batch in (of_queries, of_documents))
    return CompiledBatch(
        queries=of_queries,
        documents=of_documents,
        candidates=turns.candidates,
        weights=None if weights is None else np.ascontiguousarray(weights, np.float32),
        num_shared=turns.num_shared,
        pair_ends=turns.pair_ends,
        rows=dict(zip(SIDES, rows, strict=True)),
    )


class CompiledPath:
    """Gradients and updates in the kernel, of `compiled_batch`. Memory is reused in every update."""

    def __init__(self, num_threads: int, batch_of: Callable[[Any], CompiledBatch | LossBatch]) -> None:
        self.prepare = batch_of
        self._crew = KernelThreads(num_threads)
        self._memory: dict[tuple[str, str], np.ndarray] = {}

    def sum_gradients(self, towers: Towers, share: WorkerShare, touched: Mapping[str, torch.Tensor]) -> GradientSum:
        layout, exact, workers = towers.layout, towers.layout.recipe.reduction == "exact", share.workers
        limit = fixed_point_limit(share.num_in_all) if exact else math.inf
        rows = self._touched_rows(towers, touched, share.update)
        losses = self._gradients(towers, rows, share, limit)
        fit = np.abs(losses) < limit
        if workers.size == 1:
            self._crew.make("sum_exactly" if exact else "sum_in_order", map(whole, rows.values()))
            loss = float(_fixed(losses[fit]).sum()) * UNIT if exact else float(losses.sum())
            misfits = int((~fit).sum()) + sum(tower_rows.num_misfits for tower_rows in rows.values())
        else:
            loss, misfits = self._sum_over_workers(workers, rows, losses, fit, exact)
        if exact:
            require_fit(misfits, limit)
        elif misfits:
            loss = math.nan

        def step(scales: Mapping[str, float]) -> None:
            self._crew.make(
                "step",
                (
                    (tower_rows, first, last, float(-np.float32(length) * np.float32(scales[name])))
                    for name, tower_rows in rows.items()
                    for first, last, length in layout.stretches(len(tower_rows))
                ),
            )
            for tower_rows in rows.values():
                tower_rows.mark_updated(share.update)

        return GradientSum(
            loss, {name: math.sqrt(float(tower_rows.squares_R.sum())) for name, tower_rows in rows.items()}, step
        )

    def micro_batch_gradients(
        self, share: WorkerShare, towers: Towers, rows: "Mapping[str, TouchedRows]"
    ) -> "tuple[np.ndarray, list[tuple[str, Addend]]]":
        """(the micro-batches' losses, their gradients with the names of their towers), at the look-ahead point."""
        return self._crew.gradients(share.micro_batches, towers, rows)

    def _touched_rows(
        self, towers: Towers, touched: Mapping[str, torch.Tensor], update: int
    ) -> "dict[str, TouchedRows]":
        result = {}
        for name, index in touched.items():
            state = towers.rows[name]
            assert isinstance(state, LazyRows), "kernel_towers.can_train accepts no other"
            result[name] = TouchedRows(state, index, update, towers.schedule, partial(self._room, name))
        return result

    def _gradients(
        self, towers: Towers, rows: "Mapping[str, TouchedRows]", share: WorkerShare, limit: float
    ) -> np.ndarray:
        """The micro-batches' losses; the rows hold their gradients, ready to be added up."""
        for name, tower_rows in rows.items():
            tower_rows.stand_at(self._room(name, "place", (towers.layout.rows,), np.int32))
        self._crew.make("look_ahead", map(whole, rows.values()))
        losses, addends = self.micro_batch_gradients(share, towers, rows)
        for name, tower_rows in rows.items():
            tower_rows.add_up([addend for tower, addend in addends if tower == name], limit)
        return losses

    def _sum_over_workers(
        self, workers: Workers, rows: "Mapping[str, TouchedRows]", losses: np.ndarray, fit: np.ndarray, exact: bool
    ) -> tuple[float, int]:
        """(loss, misfits) over all workers; the rows receive their sums. It is one message."""
        sizes = [tower_rows.gradient_RG.size for tower_rows in rows.values()]
        flat = self._room("", "message", (sum(sizes) + 2,), np.int64 if exact else np.float32)
        for tower_rows, sums in zip(rows.values(), np.split(flat[:-2], np.cumsum(sizes[:-1])), strict=True):
            tower_rows.sum_in(sums)
        self._crew.make("sum_to_fixed" if exact else "sum_in_order", map(whole, rows.values()))
        flat[-2] = _fixed(losses[fit]).sum() if exact else losses[fit].sum()
        flat[-1] = (~fit).sum() + sum(tower_rows.num_misfits for tower_rows in rows.values())
        workers.add_up(torch.from_numpy(flat))
        self._crew.make("from_fixed" if exact else "squares", map(whole, rows.values()))
        return int(flat[-2]) * UNIT if exact else float(flat[-2]), int(flat[-1])

    def _room(self, name: str, use: str, shape: tuple[int, ...], dtype: type = np.float32) -> np.ndarray:
        """Uninitialised, reusable memory for one use at a time; NumPy's, in large pages."""
        kept, size = self._memory.get((use, name)), math.prod(shape)
        if kept is None or kept.dtype != dtype or len(kept) < size:
            kept = self._memory[use, name] = np.empty(size * 5 // 4, dtype)
        return kept[:size].reshape(shape)


def _fixed(losses: np.ndarray) -> np.ndarray:
    return (losses / UNIT).astype(np.int64)


class Addend(ctypes.Structure):
    """One side's gradient from one micro-batch, in the kernel's memory."""

    _fields_ = fields(rows="p", values="p", num_rows="q")


class TouchedRows(ctypes.Structure):
    """Rows of a tower that update k touches, and their update (instructions.h describes each field).

    The reference is optimisers.LazyRows and reduction. Shapes: R touched rows, G columns.
    """

    _fields_ = fields(
        parameters="p", velocity="p", rows="p", gain="p", decay="p", ahead="p", place="p", addends="p", misfits="p",
        fixed="p", gradient="p", squares="p", num_rows="q", columns="q", num_places="q", num_addends="q", limit="f",
    )  # fmt: skip

    def __init__(
        self, state: LazyRows, index_R: torch.Tensor, update: int, schedule: MomentumSchedule, room: Callable[..., Any]
    ) -> None:
        """`room`: returns memory for a use, of a shape (CompiledPath)."""
        gain, decay = schedule.drift(state.last.index_select(0, index_R), update - 1)
        self.index_R, self._state = index_R, state
        self._drift = gain.float(), (decay * schedule.momentum(update)).float()
        shape = len(index_R), state.parameters.shape[1]
        self.ahead_RG, self.gradient_RG = room("ahead", shape), room("gradient", shape)
        self.squares_R = np.zeros(len(index_R))
        super().__init__(
            parameters=state.parameters.data_ptr(), velocity=state.velocity.data_ptr(), rows=index_R.data_ptr(),
            gain=self._drift[0].data_ptr(), decay=self._drift[1].data_ptr(), ahead=self.ahead_RG.ctypes.data,
            gradient=self.gradient_RG.ctypes.data, squares=self.squares_R.ctypes.data,
            num_rows=shape[0], columns=shape[1],
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.index_R)

    @property
    def num_misfits(self) -> int:
        """Addends with a value that is not finite, or not below the limit."""
        return int(self._misfits.sum())

    def stand_at(self, place_of_row: np.ndarray) -> None:
        """Record, int32 [rows], which of these rows is which of the tower's."""
        self.place_of_row, self.place, self.num_places = place_of_row, place_of_row.ctypes.data, len(place_of_row)

    def add_up(self, addends: Sequence[Addend], limit: float) -> None:
        """Set the addends, each number below a limit in size."""
        self._addends, self._misfits = (Addend * len(addends))(*addends), np.zeros(len(addends), np.int32)
        self.addends, self.misfits = ctypes.addressof(self._addends), self._misfits.ctypes.data
        self.num_addends, self.limit, self.given = len(addends), limit, addends

    def sum_in(self, sums: np.ndarray) -> None:
        """Set the memory of this worker's sums, flat: in fixed point, or floats that become the gradient."""
        if sums.dtype == np.int64:
            self.fixed = sums.ctypes.data
        else:
            self.gradient, self.gradient_RG = sums.ctypes.data, sums.reshape(self.gradient_RG.shape)

    def mark_updated(self, update: int) -> None:
        """Record the update as the last one of all these rows."""
        self._state.last.index_fill_(0, self.index_R, update)


# Some of a tower's touched rows, first to last, and -ε times the scale of their gradient.
Stretch = tuple[TouchedRows, int, int, float]


def whole(rows: TouchedRows) -> Stretch:
    return rows, 0, len(rows), 0.0


class _Stretch(ctypes.Structure):
    _fields_ = fields(of="p", first="q", last="q", by_gradient="f")


class _PairTask(ctypes.Structure):
    _fields_ = (
        ("query", TowerStruct),
        ("document", TowerStruct),
        *fields(
            queries="p", documents="p", candidates="p", pair_weights="p", num_candidates="q", gamma="f",
            max_steps="i", table_rows="q", num_shared="q", pair_ends="p",
        ),
    )  # fmt: skip


class KernelThreads(Owned):
    """The kernel's own threads, and the memory of their gradients."""

    __slots__ = ("_workspaces",)
    _RESULTS = "look_ahead", "sum_to_fixed", "sum_in_order", "sum_exactly", "from_fixed", "squares", "step"

    def __init__(self, num_threads: int) -> None:
        super().__init__("crew", library().crew_new(num_threads), f"{num_threads:,} threads")
        self._workspaces: list[Owned] = []

    def gradients(
        self, batches: Sequence[CompiledBatch], towers: Towers, rows: Mapping[str, TouchedRows]
    ) -> tuple[np.ndarray, list[tuple[str, Addend]]]:
        """(the batches' losses, their gradients with the names of their towers); these stay valid until the next call.

        `rows`: at the look-ahead point.
        """
        layout, points = towers.layout, dict[str, TowerPoint]()
        recipe = layout.recipe
        for name, tower_rows in rows.items():
            parts = layout.arrays(torch.from_numpy(tower_rows.ahead_RG))
            points[name] = TowerPoint(recipe, parts["W"], parts, tower_rows.place_of_row)
        while len(self._workspaces) < len(batches):
            self._workspaces.append(Owned("workspace", library().workspace_new(), "a gradient"))
        used = [workspace.handle for workspace in self._workspaces[: len(batches)]]
        names = [tower_name(recipe, side) for side in SIDES]
        structs = [points[name].struct for name in names]
        tasks = [
            _PairTask(
                *structs,
                batch.queries.handle,
                batch.documents.handle,
                batch.candidates.ctypes.data,
                None if batch.weights is None else batch.weights.ctypes.data,
                batch.candidates.shape[1],
                recipe.clicks.gamma,
                recipe.tower.truncation,
                layout.table_rows,
                batch.num_shared,
                batch.pair_ends.ctypes.data,
            )
            for batch in batches
        ]
        losses = np.zeros(len(batches))
        code = library().pair_gradients(
            self.handle, (ctypes.c_void_p * len(used))(*used), (_PairTask * len(tasks))(*tasks), len(tasks),
            losses.ctypes.data,
        )  # fmt: skip
        require_memory(code >= 0, f"the gradients of {len(batches):,} micro-batches")
        addends = [(name, Addend()) for _ in used for name in names]
        for at, (_, addend) in enumerate(addends):
            library().workspace_addend(used[at // 2], at % 2, ctypes.byref(addend))
        return losses, addends

    def make(self, result: str, stretches: Iterable[Stretch]) -> None:
        """One of TouchedRows' results, at some stretches of them."""
        c_stretches = [_Stretch(ctypes.addressof(pointer), *bounds) for pointer, *bounds in stretches]
        code = library().rows_make(
            self.handle, (_Stretch * len(c_stretches))(*c_stretches), len(c_stretches), self._RESULTS.index(result)
        )
        require_memory(code >= 0, "the update of touched rows")


# Turns: which documents of a micro-batch go forward and back together, so that intermediate results stay in the cache.
#
# A document waits for the loss of every pair that contains it. Shared documents go forward first and back last.
# Documents of one pair, or of a few, take turns: TURN_TEXTS documents forward, the loss of their pairs, and back,
# before the next ones. Turns are a function of the candidates alone, so a micro-batch has the same sums wherever it is
# computed.

TURN_TEXTS = CHUNK_TEXTS // 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Turns:
    """The numbering of documents and pairs for turns.

    Shapes: B pairs, C candidates with the clicked one first, N documents.
    """

    candidates: np.ndarray  # int32 [B, C], by the new numbers
    num_shared: int  # documents numbered below it are shared; the others are in runs of `group`
    group: int
    pair_ends: np.ndarray  # int64 [turns], one past the pairs of each turn
    place: np.ndarray | None = None  # int32 [N], the new number of each document; None: unchanged
    pair_order: np.ndarray | None = None  # int64 [B], the new order of pairs; None: unchanged


def turns_of(candidates: np.ndarray, num_documents: int) -> Turns:
    """The turns of pairs whose candidates are all their own, or whose clicked ones follow those that all share.

    `candidates`: int32 [B, C], -1 without one. Other pairs have no turns.
    """
    return _separate_documents(candidates, num_documents) or _separate_clicks(candidates, num_documents) or Turns(
        candidates=np.ascontiguousarray(candidates),
        num_shared=num_documents,
        group=0,
        pair_ends=np.empty(0, np.int64),
    )  # fmt: skip


def _separate_documents(candidates: np.ndarray, num_documents: int) -> Turns | None:
    """No two pairs share a document: documents are numbered pair after pair."""
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


def _separate_clicks(candidates: np.ndarray, num_documents: int) -> Turns | None:
    """No pair's clicked document is another one's negative, and they come last: pairs are put in their order."""
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
