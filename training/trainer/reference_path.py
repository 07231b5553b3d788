"""The reference path of an update (large_update.Path), in torch, on a CPU or a GPU, for every tower and objective.

gradients of micro-batches, one thread each  ->  their sum over micro-batches and workers, a block at a time  ->  steps

RowsPath leaves the sum and the steps to the kernel, for towers and objectives whose gradients the kernel lacks.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn.functional import pad

from clicktower.training.model.parameters import CPU, DTYPES, Device, Encoder, Layout, LossGradient, RowGradient
from clicktower.training.model.recipe_kinds import SGD
from clicktower.training.towers.threads import compute_threads, empty, in_blocks
from clicktower.training.trainer import kernel_path
from clicktower.training.trainer.click_loss import pair_batch
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
from clicktower.training.trainer.optimisers import Rows

# Some rows of a matrix (their numbers, or a range of them), their gradient, and ε.
Piece = tuple[torch.Tensor | slice, torch.Tensor, float]


def pieces_of(gradient: RowGradient, layout: Layout) -> Iterator[Piece]:
    """(some rows of the matrix, their gradient [rows, G], ε): first of W, then of the parts, padded with zeros."""
    yield gradient.rows, gradient.table_RG, layout.recipe.optimiser.step
    row = layout.table_rows
    for part, shape in layout.parts:
        values, length = gradient.parts[part], layout.step_of(part)
        num_full = len(values) // layout.columns * layout.columns
        last = row + num_full // layout.columns
        yield slice(row, last), values[:num_full].view(-1, layout.columns), length
        if num_left := len(values) - num_full:
            yield slice(last, last + 1), pad(values[num_full:], (0, layout.columns - num_left))[None], length
        row += layout.rows_of(shape)


def blocks_of(rows: Rows, values: torch.Tensor) -> Iterator[tuple[Rows, torch.Tensor]]:
    """Some rows of a matrix and values for them, a block that a thread works on at a time."""
    first = 0
    for block in in_blocks(values):
        last = first + len(block)
        yield slice(rows.start + first, rows.start + last) if isinstance(rows, slice) else rows[first:last], block
        first = last


class ReferencePath:
    """Each thread computes a whole micro-batch. `batch_of`: makes the batch of an objective's micro-batch."""

    def __init__(
        self, num_threads: int = 1, device: Device = CPU, batch_of: Callable[[Any], LossBatch] = pair_batch
    ) -> None:
        self._threads = compute_threads(num_threads if device.place.type == "cpu" else 1)  # a GPU has one queue
        self._device, self._batch_of = device, batch_of

    def prepare(self, examples: Any) -> LossBatch:
        return self._batch_of(examples).to(self._device.place)

    def sum_gradients(self, towers: Towers, share: WorkerShare, touched: Mapping[str, torch.Tensor]) -> GradientSum:
        layout, update, threads = towers.layout, share.update, self._threads
        recipe, encoder = layout.recipe, towers.look_ahead(update)
        exact, dtype = recipe.reduction == "exact", DTYPES[recipe.dtype]
        total = total_gradient(
            list(threads.map(lambda batch: batch.gradient(encoder, update), share.micro_batches)),
            {tower: rows[: len(rows) - layout.part_rows] for tower, rows in touched.items()},
            {part: math.prod(shape) for part, shape in layout.parts},
            layout.columns,
            dtype,
            exact=exact,
            num_addends=share.num_in_all,
            workers=share.workers,
            threads=threads,
        )
        most = recipe.optimiser.clip_value if isinstance(recipe.optimiser, SGD) else 0

        def step(scales: Mapping[str, float]) -> None:
            def step_block(tower: str, rows: Rows, values: torch.Tensor, length: float) -> None:
                if scales[tower] != 1:  # not in place, since written data leaves the cache
                    values = values * scales[tower]
                if most:
                    values = values.clamp(-most, most)
                towers.rows[tower].apply(rows, values, update, towers.schedule, length)

            blocks = (
                (tower, rows, values, length)
                for tower, gradient in total.gradients.items()
                for piece, of_piece, length in pieces_of(gradient, layout)
                for rows, values in blocks_of(piece, of_piece)
            )
            list(threads.map(lambda block: step_block(*block), blocks))

        return GradientSum(total.loss, total.norms, step)


# The sum of gradients over a minibatch's micro-batches and over all workers.

Norms = list[torch.Tensor]  # of the blocks of a sum


@dataclass(frozen=True, slots=True)
class Total:
    """The sum of a minibatch over all workers."""

    gradients: Mapping[str, RowGradient]  # of each tower; its parts flat
    norms: Mapping[str, float]
    loss: float


def total_gradient(
    addends: Sequence[LossGradient],
    rows: Mapping[str, torch.Tensor],
    sizes: Mapping[str, int],
    columns: int,
    dtype: torch.dtype,
    *,
    exact: bool,
    num_addends: int,
    workers: Workers,
    threads: Executor,
) -> Total:
    """The sum of this worker's micro-batches (which it overwrites) and of all others'.

    `rows`: of W of each tower, touched by any worker; the same on all. `sizes`: of a tower's parts. `num_addends`: on
    all workers. Raises Diverged, on every worker alike, if an addend is not finite or too large for the fixed point.

    Numbers go from the addends to the sum a block at a time; 64-bit numbers leave the cache only for the exchange.
    """
    limit, like = fixed_point_limit(num_addends), torch.zeros((), dtype=dtype, device=next(iter(rows.values())).device)
    number, travels = like.to(torch.int64) if exact else like, workers.size > 1
    bounds: list[list[torch.Tensor]] = [[] for _ in addends]

    def scaled(addend: int, values: torch.Tensor) -> torch.Tensor:
        if values.numel():  # no row of W if all words are frozen
            bounds[addend] += values.aminmax()
        return values.mul_(1 / UNIT)

    def as_sum_type(addend: int, values: torch.Tensor) -> torch.Tensor:
        return empty(values.shape, number).copy_(scaled(addend, values)) if exact else values.to(dtype)

    def sum_table(to: torch.Tensor, touched: torch.Tensor, gradients: Sequence[tuple[int, RowGradient]]) -> Norms:
        total = empty(to.shape, number).zero_()
        for addend, gradient in gradients:
            at = torch.searchsorted(touched, gradient.rows)
            total.index_add_(0, at, as_sum_type(addend, gradient.table_RG))
        return _write_sum(to, total)

    def sum_block(to: torch.Tensor, values: Sequence[tuple[int, torch.Tensor]]) -> Norms:
        if not values:
            return _write_sum(to, torch.zeros_like(to))
        if len(values) == 1 and exact and not travels:  # truncated like integers, without them; -0 is 0 there
            return _norms(torch.add(like, _truncate(scaled(*values[0])), alpha=UNIT, out=to))
        total = as_sum_type(*values[0])
        for addend in values[1:]:
            total = total.add_(as_sum_type(*addend))
        return _write_sum(to, total)

    # Towers one after the other, then the loss and the number of addends that do not fit: one message a step.
    lengths = [length for touched in rows.values() for length in (len(touched) * columns, *sizes.values())]
    message = empty((sum(lengths) + 2,), number) if travels else None
    room = iter(() if message is None else message.split([*lengths, 2]))
    sums, tasks = {}, {}
    for tower, touched in rows.items():
        of_worker = [(k, gradient) for k, (named, _) in enumerate(addends) for name, gradient in named if name == tower]
        table_RG = next(room).view(-1, columns) if travels else empty((len(touched), columns), like)
        tasks[tower], parts = [partial(sum_table, table_RG, touched, of_worker)], {}
        for part, size in sizes.items():
            flat = [(addend, gradient.parts[part].reshape(-1)) for addend, gradient in of_worker]
            # Without an exchange the sum overwrites the first addend.
            parts[part] = next(room) if travels else flat[0][1] if flat else like.new_zeros(size)
            blocks = [(addend, in_blocks(values)) for addend, values in flat]
            for place, block in enumerate(in_blocks(parts[part])):
                tasks[tower].append(partial(sum_block, block, [(addend, values[place]) for addend, values in blocks]))
        sums[tower] = RowGradient(touched, table_RG, parts)
    norms = _run_tasks(tasks, threads)
    losses = [as_sum_type(addend, loss) for addend, (_, loss) in enumerate(addends)]
    misfits = [~(torch.stack(extremes).abs() < limit).all() for extremes in bounds if extremes]  # also where one is NaN
    figures = torch.stack([torch.stack([number, *values]).sum() for values in (losses, misfits)])
    if message is not None:
        message[-2:] = figures
        workers.add_up(message)
        figures = message[-2:]
    loss, num_misfits = figures.tolist()  # both at once, since reading waits for a GPU
    require_fit(int(num_misfits), limit)
    if travels:
        for tower, gradient in sums.items():
            arrived = [gradient.table_RG, *gradient.parts.values()]
            table_RG, *of_parts = floats = [empty(values.shape, like) if exact else values for values in arrived]
            tasks[tower] = [
                partial(_write_sum, to, values)
                for pair in zip(floats, arrived, strict=True)
                for to, values in zip(*map(in_blocks, pair), strict=True)
            ]
            sums[tower] = RowGradient(gradient.rows, table_RG, dict(zip(sizes, of_parts, strict=True)))
        norms = _run_tasks(tasks, threads)
    of_towers = [torch.linalg.vector_norm(torch.stack(of_blocks)) for of_blocks in norms.values()]
    return Total(sums, dict(zip(rows, torch.stack(of_towers).tolist(), strict=True)), loss * UNIT if exact else loss)


def _truncate(values: torch.Tensor) -> torch.Tensor:
    """These values, rounded towards zero in place: on a CPU by NumPy, since torch's takes fifteen times as long."""
    if values.device.type != "cpu":
        return values.trunc_()
    np.trunc(values.numpy(), out=values.numpy())
    return values


def _run_tasks(tasks: Mapping[str, Sequence[Callable[[], Norms]]], threads: Executor) -> dict[str, Norms]:
    """The norms from all tasks of each tower."""
    futures = {tower: [threads.submit(task) for task in of_tower] for tower, of_tower in tasks.items()}
    return {tower: [norm for future in of_tower for norm in future.result()] for tower, of_tower in futures.items()}


def _write_sum(to: torch.Tensor, total: torch.Tensor) -> Norms:
    """Write a sum to its destination, as integers or floating point; returns its norms."""
    to.copy_(total)
    if to.dtype != total.dtype:
        to *= UNIT
    return _norms(to)


def _norms(values: torch.Tensor) -> Norms:
    """The norm of each block of a sum in floating point, from the norms of its rows: five times faster than one sum in
    float64, and as accurate.
    """
    if not values.is_floating_point():
        return []
    norm = torch.linalg.vector_norm
    return [norm(norm(block, dim=-1).double()) for block in in_blocks(values, 1)]


class RowsPath(kernel_path.CompiledPath):
    """The compiled path's updates with torch's gradients, of the batches of an objective."""

    def __init__(self, num_threads: int, batch_of: Callable[[Any], LossBatch]) -> None:
        super().__init__(num_threads, batch_of)
        self._threads = compute_threads(num_threads)

    def micro_batch_gradients(
        self, share: WorkerShare, towers: Towers, rows: Mapping[str, kernel_path.TouchedRows]
    ) -> tuple[np.ndarray, list[tuple[str, kernel_path.Addend]]]:
        layout = towers.layout
        points = {name: layout.split(torch.from_numpy(tower_rows.ahead_RG)) for name, tower_rows in rows.items()}
        place = {name: torch.from_numpy(tower_rows.place_of_row) for name, tower_rows in rows.items()}

        def table_at(name: str, index: torch.Tensor) -> torch.Tensor:
            return points[name][0].index_select(0, place[name].index_select(0, index))

        parts, part_rows = {name: parts for name, (_, parts) in points.items()}, layout.touched(torch.empty(0).long())
        encoder = Encoder(layout, table_at, parts, towers.device)
        results = list(self._threads.map(lambda batch: batch.gradient(encoder, share.update), share.micro_batches))
        addends = [
            (name, addend)
            for gradients, _ in results
            for name, gradient in gradients
            for addend in (
                _addend(gradient.rows, gradient.table_RG),
                _addend(part_rows, layout.join(gradient.table_RG[:0], gradient.parts)),
            )
        ]
        return np.array([float(loss) for _, loss in results]), addends


def _addend(rows: torch.Tensor, values: torch.Tensor) -> kernel_path.Addend:
    rows, values = rows.to(torch.int32), values.contiguous()
    addend = kernel_path.Addend(rows.data_ptr(), values.data_ptr(), len(rows))
    addend.kept = rows, values  # the kernel reads their memory
    return addend
