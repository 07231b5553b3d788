"""The sum of the reference path's gradients over a minibatch's micro-batches and over all workers (large_update)."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from clicktower.training.model.parameters import RowGradient
from clicktower.training.towers.threads import empty, in_blocks
from clicktower.training.trainer.large_update import UNIT, Workers, fixed_point_limit, require_fit

# A micro-batch's gradients, with their towers, and its loss.
Addend = tuple[Sequence[tuple[str, RowGradient]], torch.Tensor]
Norms = list[torch.Tensor]  # of the blocks of a sum


@dataclass(frozen=True, slots=True)
class Total:
    """The sum of a minibatch over all workers."""

    gradients: Mapping[str, RowGradient]  # of each tower; its parts flat
    norms: Mapping[str, float]
    loss: float


def total_gradient(
    addends: Sequence[Addend],
    rows: Mapping[str, torch.Tensor],
    sizes: Mapping[str, int],
    columns: int,
    dtype: torch.dtype,
    *,
    exact: bool,
    num_addends: int,
    workers: "Workers",
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
