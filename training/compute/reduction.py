"""The sum of the micro-batches' gradients over a minibatch and over all workers, and what the workers exchange.

exact: every gradient is rounded once to a 64-bit fixed-point number with unit 2^-40; integers add up to the same
sum in any grouping, so one, two or five workers give the same bytes. Values of 2^-16 and more keep every bit of a
float32. fast: floating point, an ordinary all-reduce, equal up to rounding.

Only rows that some worker touched are summed and travel.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch

from schemas.errors import Diverged
from training.compute.threads import empty

UNIT = 2.0**-40
# The sum of a minibatch must stay below 2^63; half of that is far enough.
LARGEST = 2.0**62


# Numbers that a thread works on at once on a CPU, so that they stay in its cache from one operation to the next.
BLOCK = 1 << 17

Parts = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class RowGradient:
    """The gradient of one tower: of some rows of W (ascending, none twice; zero elsewhere), and of all parts."""

    rows: torch.Tensor
    table_RG: torch.Tensor
    parts: Parts


def fixed_point_limit(num_addends: int) -> float:
    """The limit for the values of each of so many addends."""
    return LARGEST * UNIT / max(1, num_addends)


def require_fit(num_misfits: int, limit: float) -> None:
    """Raise Diverged if some micro-batches did not fit the fixed point."""
    if num_misfits:
        raise Diverged(
            f"The gradients of {num_misfits} micro-batches are not finite, or above {limit:.3g} in size: an exact sum"
            " would silently be wrong.",
            "Lower `step`, set `clip_norm`, or set reduction=fast if gradients of that size are meant.",
        )


class Divided(Protocol):
    """How the rows that a minibatch touches divide (parameters.Layout)."""

    @property
    def columns(self) -> int: ...

    def split(self, matrix: torch.Tensor) -> tuple[torch.Tensor, Parts]:
        """Those of W, and each part in its own shape, as views."""

    def zero_filling(self, matrix: torch.Tensor) -> None:
        """Zero what belongs to no part."""


# A micro-batch's gradients, with their towers, and its loss.
Addend = tuple[Sequence[tuple[str, RowGradient]], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Total:
    """The sum of a minibatch over all workers."""

    gradients: Mapping[str, torch.Tensor]  # at the rows of each tower
    norms: Mapping[str, float]
    loss: float


def total_gradient(
    addends: Sequence[Addend],
    rows: Mapping[str, torch.Tensor],
    layout: Divided,
    dtype: torch.dtype,
    *,
    exact: bool,
    num_addends: int,
    workers: "Workers",
    threads: Executor,
) -> Total:
    """The sum of this worker's micro-batches (used up) and of all others'.

    `rows`: what is summed, by tower; on every worker the same. `num_addends`: on all workers. Raises Diverged, on every
    worker alike, where an addend is not finite or too large for the fixed point.

    A block of numbers goes from the addends to the sum at once, so 64-bit numbers leave the cache only to travel.
    """
    limit, device = fixed_point_limit(num_addends), next(iter(rows.values())).device
    integers = torch.zeros((), dtype=torch.int64, device=device)
    kind = integers if exact and workers.size > 1 else torch.zeros((), dtype=dtype, device=device)
    # Towers one after the other, then the loss and the number of addends that do not fit: one message a step.
    sizes = [len(r) * layout.columns for r in rows.values()]
    message = empty((sum(sizes) + 2,), kind)
    views = message.split([*sizes, 2])
    sums = {tower: view.view(-1, layout.columns) for tower, view in zip(rows, views, strict=False)}
    bounds: list[list[torch.Tensor]] = [[] for _ in addends]

    def number(addend: int, values: torch.Tensor) -> torch.Tensor:
        if not exact:
            return values.to(dtype)
        return empty(values.shape, integers).copy_(scaled(addend, values))

    def scaled(addend: int, values: torch.Tensor) -> torch.Tensor:
        bounds[addend] += values.aminmax()
        return values.mul_(1 / UNIT)

    def put(sums: torch.Tensor, total: torch.Tensor) -> None:
        sums.copy_(total)
        if total.dtype != sums.dtype:
            sums *= UNIT

    def sum_table(tower: str, table_sums: torch.Tensor) -> None:
        total = empty(table_sums.shape, integers if exact else table_sums).zero_()
        for addend, (gradients, _) in enumerate(addends):
            for _, gradient in (named for named in gradients if named[0] == tower):
                at = torch.searchsorted(rows[tower], gradient.rows)
                total.index_add_(0, at, number(addend, gradient.table_RG))
        put(table_sums, total)

    def sum_block(part_sums: torch.Tensor, values: Sequence[tuple[int, torch.Tensor]]) -> None:
        if len(values) == 1 and exact and part_sums.dtype == dtype:  # nothing to add: cut alike without integers
            torch.trunc(scaled(*values[0]), out=part_sums).mul_(UNIT).add_(0.0)  # -0 is 0 in integers
            return
        total = number(*values[0]) if values else torch.zeros_like(part_sums)
        for addend in values[1:]:
            total = total.add_(number(*addend))
        put(part_sums, total)

    tasks: list[Callable[[], None]] = []
    for tower, tower_sums in sums.items():
        layout.zero_filling(tower_sums)
        table_sums, parts = layout.split(tower_sums)
        tasks.append(partial(sum_table, tower, table_sums))
        of_tower = [(k, gradient) for k, (named, _) in enumerate(addends) for name, gradient in named if name == tower]
        for part, part_sums in parts.items():
            blocks = [(addend, in_blocks(gradient.parts[part].reshape(-1))) for addend, gradient in of_tower]
            for place, sums_of_block in enumerate(in_blocks(part_sums.view(-1))):
                tasks.append(partial(sum_block, sums_of_block, [(addend, values[place]) for addend, values in blocks]))
    list(threads.map(lambda task: task(), tasks))
    losses = [number(addend, loss) for addend, (_, loss) in enumerate(addends)]
    misfits = [~(torch.stack(extremes).abs() < limit).all() for extremes in bounds if extremes]  # also where one is NaN
    figures = torch.stack([_sum(losses, integers if exact else message), _sum(misfits, integers if exact else message)])
    if workers.size > 1:
        message[-2:] = figures
        workers.add_up(message)
        figures = message[-2:]
    loss, num_misfits = figures.tolist()  # both at once: a GPU is waited for
    require_fit(int(num_misfits), limit)

    gradients = sums
    if kind is integers:
        gradients = {
            tower: empty(of_tower.shape, torch.zeros((), dtype=dtype, device=device))
            for tower, of_tower in sums.items()
        }
    # The norm of the rows' norms: five times faster than one sum in float64, and as good.
    norms = {tower: values.new_empty(len(values), dtype=torch.float64) for tower, values in gradients.items()}

    def finish(tower: str, block: slice) -> None:
        values = gradients[tower][block]
        if kind is integers:
            put(values, sums[tower][block])
        norms[tower][block] = torch.linalg.vector_norm(values, dim=1)

    blocks_of_towers = [(tower, block) for tower, values in gradients.items() for block in row_blocks(values)]
    list(threads.map(finish, *zip(*blocks_of_towers, strict=True)))
    of_towers = torch.stack([torch.linalg.vector_norm(of_rows) for of_rows in norms.values()]).tolist()
    return Total(gradients, dict(zip(norms, of_towers, strict=True)), loss * UNIT if exact else loss)


def _sum(values: Sequence[torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    return torch.stack([like.new_zeros(()), *(value.to(like.dtype) for value in values)]).sum()


def in_blocks(values: torch.Tensor) -> Sequence[torch.Tensor]:
    """A vector in blocks that a thread works on at once; on a GPU it is one."""
    return values.split(BLOCK) if values.device.type == "cpu" else (values,)


def row_blocks(matrix: torch.Tensor, first: int = 0, last: int | None = None) -> list[slice]:
    """As `in_blocks`, rows of a matrix from `first` to `last`."""
    last = len(matrix) if last is None else last
    step = max(1, BLOCK // matrix.shape[1]) if matrix.device.type == "cpu" else max(1, last - first)
    return [slice(begin, min(begin + step, last)) for begin in range(first, last, step)]


class Workers:
    """The workers of a run from the view of one of them, between which touched rows and sums travel.

    As it is, a single one, in process.
    """

    rank, size = 0, 1
    sent_bytes = 0  # that this worker has handed to the sums so far

    def unite(self, touched: torch.Tensor) -> None:
        """Make a bool mask true wherever it is true on any worker, in place."""

    def add_up(self, values: torch.Tensor) -> None:
        """Replace values by their sum over all workers, in place. Never the mean."""

    def report(self, figures: Mapping[str, Any]) -> None:
        """Report an epoch's figures to whoever started the workers. All call it; those of the first one count."""


class ProcessGroup(Workers):
    """Workers in the processes of torch's default process group."""

    def __init__(self) -> None:
        self.rank = torch.distributed.get_rank()
        self.size = torch.distributed.get_world_size()

    def unite(self, touched: torch.Tensor) -> None:
        as_bytes = touched.to(torch.uint8)
        self.sent_bytes += as_bytes.nbytes
        torch.distributed.all_reduce(as_bytes, torch.distributed.ReduceOp.MAX)
        touched.copy_(as_bytes)

    def add_up(self, values: torch.Tensor) -> None:
        self.sent_bytes += values.nbytes
        torch.distributed.all_reduce(values, torch.distributed.ReduceOp.SUM)
