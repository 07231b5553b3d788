"""Texts through a tower, and the gradient of a loss by the tower's parameters.

Shapes: N texts, d dimensions, R touched rows, G columns.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from training.compute.reduction import RowGradient
from training.data.text_batch import TextBatch
from training.gpu.device import CPU, Device
from training.network.parameters import Layout, tower_name
from training.recipes.recipe import Recipe
from training.recipes.towers import Truncated
from training.towers import Parts, tower_of
from training.towers.tower import word_inputs


@dataclass(frozen=True, slots=True)
class Encoder:
    """All parameters at one point: where a gradient is taken, the published Λ, or a model's.

    `rows_at(name, rows)` gives some rows [R, G] of a tower's matrix (parameters).
    """

    recipe: Recipe
    layout: Layout
    rows_at: Callable[[str, torch.Tensor], torch.Tensor]
    device: Device = CPU

    @property
    def dimensions(self) -> int:
        return tower_of(self.recipe).dimensions

    def parts(self, name: str) -> Parts:
        """All parts of a tower's matrix, without its table."""
        none = torch.zeros(0, dtype=torch.int64, device=self.device.place)
        return self.layout.split(self.rows_at(name, self.layout.touched(none)))[1]


@dataclass(frozen=True, slots=True)
class Encoded:
    """The embeddings of a batch's texts, in the caller's order, with the parameters that autograd made them of."""

    vectors_Nd: torch.Tensor
    own_loss: torch.Tensor | float  # what the tower adds to the loss
    name: str  # of the tower
    rows: torch.Tensor  # of W
    table_RG: torch.Tensor  # those rows
    parts: Parts  # all of the tower's matrix: the tower's own, and those that an objective put beside them


def encode_batch(batch: TextBatch, side: str, encoder: Encoder) -> torch.Tensor:
    """The embeddings of a batch's texts, [N, d], in the caller's order."""
    with torch.no_grad():
        return encoded(batch, side, encoder).vectors_Nd


def encoded(batch: TextBatch, side: str, encoder: Encoder) -> Encoded:
    """A batch's texts through the tower of a side."""
    recipe, layout, name = encoder.recipe, encoder.layout, tower_name(encoder.recipe, side)
    table_RG, parts = layout.split(encoder.rows_at(name, layout.touched(batch.rows)))
    # Leaves of their own, not views of one matrix: a view's gradient would be as large as the matrix.
    table_RG = table_RG.detach().requires_grad_()
    parts = {part: values.detach().requires_grad_() for part, values in parts.items()}
    inputs_UG = word_inputs(table_RG, batch)
    steps = recipe.tower.truncate_steps if isinstance(recipe.tower, Truncated) else 0
    sorted_Nd, own = encoder.device.tower(recipe).forward(inputs_UG, parts, batch, steps)
    vectors_Nd = torch.empty_like(sorted_Nd).index_copy(0, batch.order, sorted_Nd)
    return Encoded(vectors_Nd, own, name, batch.rows, table_RG, parts)


def gradients(loss: torch.Tensor, sides: Sequence[Encoded], encoder: Encoder) -> list[tuple[str, RowGradient]]:
    """(the tower's name, the gradient of a loss by its parameters) for each of some sides, once."""
    layout = encoder.layout
    leaves = [leaf for side in sides for leaf in (side.table_RG, *side.parts.values())]
    found = iter(torch.autograd.grad(loss, leaves, materialize_grads=True))
    by_sides = [(next(found), {part: next(found) for part in side.parts}) for side in sides]
    gradients = []
    for side, (by_table_RG, by_parts) in zip(sides, by_sides, strict=True):
        trained = layout.trained(side.rows)
        values = layout.join(by_table_RG[: len(trained)], by_parts)
        gradients.append((side.name, RowGradient(layout.touched(trained), values)))
    return gradients
