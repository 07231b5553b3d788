"""The reference path of an update (large_update.Path), in torch, on a CPU or a GPU, for every tower and objective."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import pad

from clicktower.training.model.parameters import CPU, DTYPES, Device, Layout, RowGradient
from clicktower.training.model.recipe import Recipe
from clicktower.training.model.recipe_kinds import SGD
from clicktower.training.towers.threads import in_blocks
from clicktower.training.trainer.click_loss import pair_batch
from clicktower.training.trainer.gradient_sums import total_gradient
from clicktower.training.trainer.large_update import GradientSum, LossBatch, Towers, WorkerShare
from clicktower.training.trainer.optimisers import Rows

# Some rows of a matrix (their numbers, or a range of them), their gradient, and ε.
Piece = tuple[torch.Tensor | slice, torch.Tensor, float]


def pieces_of(gradient: RowGradient, layout: Layout, recipe: Recipe) -> Iterator[Piece]:
    """(some rows of the matrix, their gradient [rows, G], ε): first of W, then of the parts, padded with zeros."""
    yield gradient.rows, gradient.table_RG, recipe.optimiser.step
    row = layout.table_rows
    for part, shape in layout.parts:
        values, length = gradient.parts[part], layout.step_of(part, recipe)
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


@dataclass(frozen=True, slots=True)
class ReferencePath:
    """Each thread computes a whole micro-batch."""

    device: Device = CPU
    batch_of: Callable[[Any], LossBatch] = pair_batch  # makes the batch of an objective's micro-batch

    def prepare(self, examples: Any) -> LossBatch:
        return self.batch_of(examples).to(self.device.place)

    def sum_gradients(self, towers: Towers, share: WorkerShare, touched: Mapping[str, torch.Tensor]) -> GradientSum:
        recipe, update, threads = towers.recipe, share.update, share.threads
        encoder = towers.look_ahead(update)
        exact, dtype = recipe.reduction == "exact", DTYPES[recipe.dtype]
        layout = towers.layout
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
                for piece, of_piece, length in pieces_of(gradient, layout, recipe)
                for rows, values in blocks_of(piece, of_piece)
            )
            list(threads.map(lambda block: step_block(*block), blocks))

        return GradientSum(total.loss, total.norms, step)

    def largest(self, towers: Towers, micro_batch: LossBatch, update: int) -> float:
        gradients, loss = micro_batch.gradient(towers.look_ahead(update), update)
        arrays = [
            loss,
            *(values for _, of_tower in gradients for values in (of_tower.table_RG, *of_tower.parts.values())),
        ]
        sizes = [values.abs().max().item() for values in arrays if values.numel()]
        return max(sizes) if all(map(math.isfinite, sizes)) else math.inf
