"""Texts through a tower in torch, and the gradient of a loss by the tower's parameters: the reference path.

Shapes: N texts, d dimensions, R touched rows, G columns.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from clicktower.training.model.parameters import Encoder, RowGradient
from clicktower.training.model.recipe import tower_name
from clicktower.training.towers.text_batch import TextBatch, text_batch
from clicktower.training.towers.text_table import TextTable, grouped_order
from clicktower.training.towers.threads import alone, compute_threads
from clicktower.training.towers.tower import Parts, word_inputs

BATCH_TEXTS = 1_024


@dataclass(frozen=True, slots=True)
class Encoded:
    """The embeddings of a batch's texts, in the caller's order, with the parameters that autograd made them of."""

    vectors_Nd: torch.Tensor
    own_loss: torch.Tensor | float  # the tower's own part of the loss
    name: str  # of the tower
    rows: torch.Tensor  # of W
    table_RG: torch.Tensor  # those rows
    parts: Parts  # all other parts in the tower's matrix: its own, and an objective's


def encode_batch(batch: TextBatch, side: str, encoder: Encoder) -> torch.Tensor:
    """The embeddings of a batch's texts, [N, d], in the caller's order."""
    with torch.no_grad():
        return encoded(batch, side, encoder).vectors_Nd


def encoded(batch: TextBatch, side: str, encoder: Encoder) -> Encoded:
    """A batch's texts through the tower of a side."""
    recipe = encoder.layout.recipe
    name = tower_name(recipe, side)
    # Leaves of their own, not views of one matrix: a view's gradient would be as large as the matrix.
    table_RG = encoder.table_at(name, batch.rows).detach().requires_grad_()
    parts = {part: values.detach().requires_grad_() for part, values in encoder.parts[name].items()}
    inputs_UG = word_inputs(table_RG, batch)
    sorted_Nd, own_loss = encoder.device.tower(recipe).forward(inputs_UG, parts, batch)
    vectors_Nd = torch.empty_like(sorted_Nd).index_copy(0, batch.order, sorted_Nd)
    return Encoded(vectors_Nd, own_loss, name, batch.rows, table_RG, parts)


def gradients(loss: torch.Tensor, sides: Sequence[Encoded], encoder: Encoder) -> list[tuple[str, RowGradient]]:
    """(the tower's name, the gradient of a loss by its parameters) for each of some sides, once.

    Each array is contiguous and alone in its memory, since it is added to in place; autograd gives one tensor to two
    parameters that were only added.
    """
    leaves = [leaf for side in sides for leaf in (side.table_RG, *side.parts.values())]
    memory, arrays = set[int](), []
    for array in torch.autograd.grad(loss, leaves, materialize_grads=True):
        is_shared = array.untyped_storage().data_ptr() in memory
        arrays.append(array.clone(memory_format=torch.contiguous_format) if is_shared else array.contiguous())
        memory.add(arrays[-1].untyped_storage().data_ptr())
    remaining = iter(arrays)
    gradients = []
    for side in sides:
        by_table_RG, by_parts = next(remaining), {part: next(remaining) for part in side.parts}
        trained = encoder.layout.trained(side.rows)
        gradients.append((side.name, RowGradient(trained, by_table_RG[: len(trained)], by_parts)))
    return gradients


def encode_in_torch(encoder: Encoder, table: TextTable, side: str) -> np.ndarray:
    """As `encode_table` of the objective."""
    vectors = np.zeros((len(table), encoder.layout.recipe.tower.dimensions), np.float32)
    lengths = table.words.lengths
    by_length = grouped_order(lengths)
    by_length = by_length[np.count_nonzero(lengths == 0) :]

    def encode_some(start: int) -> None:
        index = by_length[start : start + BATCH_TEXTS]
        batch = text_batch([(table, index)]).to(encoder.device.place)
        vectors[index] = encode_batch(batch, side, encoder).cpu().numpy()

    batches = range(0, len(by_length), BATCH_TEXTS)
    if len(batches) == 1:  # a query being served: not worth a pool
        with alone():
            encode_some(0)
    elif batches:
        with compute_threads(min(len(batches), len(os.sched_getaffinity(0)))) as threads:
            list(threads.map(encode_some, batches))
    return vectors
