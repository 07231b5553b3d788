"""Texts through a tower, and the way back from the gradients of their embeddings to that of the tower.

Shapes: N texts, d dimensions, R touched rows, G columns.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from training.compute.reduction import RowGradient
from training.data.text_batch import TextBatch
from training.gpu.device import CPU, Device
from training.network.parameters import Layout, tower_name
from training.recipes.recipe import Recipe
from training.towers import Parts, Penalised, Tower, tower_of
from training.towers.tower import table_gradient, word_inputs


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
    """The embeddings of a batch's texts, in the caller's order, and what the way back needs."""

    vectors_Nd: torch.Tensor
    parts: Parts  # all of the tower's matrix: the tower's own, and those that an objective put beside them
    _back: Callable[[torch.Tensor, Parts], tuple[tuple[str, RowGradient], torch.Tensor | float]]

    def gradient(
        self, by_vectors_Nd: torch.Tensor, beside: Parts | None = None
    ) -> tuple[tuple[str, RowGradient], torch.Tensor | float]:
        """((the tower's name, its gradient), the tower's own loss), once.

        `by_vectors_Nd`: the gradient of the embeddings; `beside`: of the parts that are not the tower's.
        """
        return self._back(by_vectors_Nd, beside or {})


def encode_batch(batch: TextBatch, side: str, encoder: Encoder) -> torch.Tensor:
    """The embeddings of a batch's texts, [N, d], in the caller's order."""
    return encoded(batch, side, encoder).vectors_Nd


def encoded(batch: TextBatch, side: str, encoder: Encoder) -> Encoded:
    """A batch's texts through the tower of a side."""
    recipe, layout = encoder.recipe, encoder.layout
    tower, name, rows = encoder.device.tower(recipe), tower_name(recipe, side), layout.touched(batch.rows)
    table_RG, parts = layout.split(encoder.rows_at(name, rows))
    inputs_UG = word_inputs(table_RG, batch)
    of_tower = {part: parts[part] for part, _ in tower.parts}
    sorted_Nd, trace = tower.forward(inputs_UG, of_tower, batch)
    vectors_Nd = torch.empty_like(sorted_Nd)
    vectors_Nd[batch.order] = sorted_Nd

    def back(by_vectors_Nd: torch.Tensor, beside: Parts) -> tuple[tuple[str, RowGradient], torch.Tensor | float]:
        own, by_word_UG, by_parts = _back(tower, trace, by_vectors_Nd[batch.order], of_tower, batch, recipe)
        trained = layout.trained(batch.rows)
        by_table_RG = table_gradient(by_word_UG, batch)[: len(trained)]
        values = layout.join(by_table_RG, {**by_parts, **beside})
        return (name, RowGradient(layout.touched(trained), values)), own

    return Encoded(vectors_Nd, parts, back)


def _back(
    tower: Tower, trace: Any, by_vectors_Nd: torch.Tensor, parts: Parts, batch: TextBatch, recipe: Recipe
) -> tuple[torch.Tensor | float, torch.Tensor, Mapping[str, torch.Tensor]]:
    own = tower.own_loss(trace) if isinstance(tower, Penalised) else 0.0
    return own, *tower.backward(trace, by_vectors_Nd, parts, batch, recipe.truncate_steps)
