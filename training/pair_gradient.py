"""Texts through a tower, and the loss's gradient for one micro-batch: everything that is computed between two sums.

Shapes: B pairs, C = 1 + n candidates with the clicked one first, N texts, d cells, R touched rows, G columns.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from training.click_loss import click_loss_gradient
from training.parameters import Layout, tower_name
from training.recipes import Recipe
from training.reduction import RowGradient
from training.text_batch import TextBatch, TextTable, text_batch
from training.towers import tower_of
from training.trigram_embedding import input_gradient, word_inputs


@dataclass(frozen=True, slots=True)
class Encoder:
    """Both towers with their parameters at one point: where a gradient is taken, the published Λ, or a model's.

    `rows_at(name, rows)` gives some rows [R, G] of a tower's matrix (training.parameters).
    """

    recipe: Recipe
    layout: Layout
    rows_at: Callable[[str, torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class PairBatch:
    """A micro-batch ready to compute: B queries, and their B x C candidates pair after pair."""

    queries: TextBatch
    documents: TextBatch
    num_pairs: int


def pair_batch(
    query: tuple[TextTable, np.ndarray], clicked: tuple[TextTable, np.ndarray], negatives: tuple[TextTable, np.ndarray]
) -> PairBatch:
    """The batch of texts given as table and index: queries [B], clicked titles [B], negatives [B, n]."""
    num_pairs, n = negatives[1].shape
    documents = text_batch([clicked, (negatives[0], negatives[1].ravel())])
    # text_batch numbers the clicked titles first, then all negatives; candidates are wanted pair after pair.
    place = np.concatenate(
        [np.arange(num_pairs)[:, None] * (n + 1), np.arange(num_pairs)[:, None] * (n + 1) + np.arange(1, n + 1)],
        axis=None,
    )
    return PairBatch(text_batch([query]), documents.renumbered(torch.from_numpy(place)), num_pairs)


def encode_batch(batch: TextBatch, side: str, encoder: Encoder) -> torch.Tensor:
    """The embeddings of a batch's texts, [N, d], in the caller's order."""
    return _forward(batch, side, encoder)[0]


def pair_gradient(batch: PairBatch, encoder: Encoder) -> tuple[list[tuple[str, RowGradient]], torch.Tensor]:
    """(the gradient of each side's tower, the loss), summed over the pairs of a micro-batch."""
    query_Bd, query_back = _forward(batch.queries, "query", encoder)
    document_Nd, document_back = _forward(batch.documents, "document", encoder)
    losses, by_query, by_document = click_loss_gradient(
        query_Bd, document_Nd.view(batch.num_pairs, -1, encoder.recipe.cells), encoder.recipe.gamma
    )
    return [query_back(by_query), document_back(by_document.reshape(document_Nd.shape))], losses.sum()


def _forward(
    batch: TextBatch, side: str, encoder: Encoder
) -> tuple[torch.Tensor, Callable[[torch.Tensor], tuple[str, RowGradient]]]:
    recipe, layout = encoder.recipe, encoder.layout
    tower, name, rows = tower_of(recipe), tower_name(recipe, side), layout.touched(batch.rows)
    table_RG, recurrent_dG, bias_G = layout.split(encoder.rows_at(name, rows))
    sorted_Nd, trace = tower.forward(word_inputs(table_RG, bias_G, batch), recurrent_dG, batch)
    vectors_Nd = torch.empty_like(sorted_Nd)
    vectors_Nd[batch.order] = sorted_Nd

    def back(by_vectors_Nd: torch.Tensor) -> tuple[str, RowGradient]:
        packed_PG, by_recurrent_dG = tower.backward(
            trace, by_vectors_Nd[batch.order], recurrent_dG, batch, recipe.truncate_steps
        )
        by_table_RG, by_bias_G = input_gradient(packed_PG, batch)
        return name, RowGradient(rows, torch.cat([by_table_RG, by_recurrent_dG, by_bias_G[None]]))

    return vectors_Nd, back
