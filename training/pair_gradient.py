"""Texts through a tower, and the loss's gradient for one micro-batch: everything that is computed between two sums.

Shapes: B pairs, C = 1 + n candidates with the clicked one first, N texts, d cells, R touched rows, G columns.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from training.click_loss import click_loss_gradient
from training.gpu.device import CPU, Device
from training.pairs import Pairs
from training.parameters import Layout, tower_name
from training.profile import OFF, Recorder
from training.recipes import Recipe
from training.reduction import RowGradient
from training.text_batch import TextBatch, copied, text_batch
from training.towers import Penalised, tower_of
from training.trigram_embedding import table_gradient, word_inputs


@dataclass(frozen=True, slots=True)
class Encoder:
    """Both towers with their parameters at one point: where a gradient is taken, the published Λ, or a model's.

    `rows_at(name, rows)` gives some rows [R, G] of a tower's matrix (training.parameters).
    """

    recipe: Recipe
    layout: Layout
    rows_at: Callable[[str, torch.Tensor], torch.Tensor]
    device: Device = CPU

    @property
    def dimensions(self) -> int:
        return tower_of(self.recipe).dimensions


@dataclass(frozen=True, kw_only=True, slots=True)
class PairBatch:
    """A micro-batch ready to compute: what training.pairs.Pairs says, with the texts laid out for the towers."""

    queries: TextBatch
    documents: TextBatch
    candidates: torch.Tensor  # int32 [B, C]
    weights: torch.Tensor | None  # float32 [B]

    def to(self, device: torch.device) -> "PairBatch":
        """This batch, from the CPU, on a device, as TextBatch.to."""
        return replace(
            self,
            queries=self.queries.to(device),
            documents=self.documents.to(device),
            candidates=copied(self.candidates, device),
            weights=None if self.weights is None else copied(self.weights, device),
        )


def pair_batch(pairs: Pairs) -> PairBatch:
    """The batch of some pairs. Raises ValueError for a text without words."""
    return PairBatch(
        queries=text_batch([pairs.queries]),
        documents=text_batch(pairs.documents),
        candidates=torch.from_numpy(pairs.candidates),
        weights=None if pairs.weights is None else torch.from_numpy(pairs.weights),
    )


def encode_batch(batch: TextBatch, side: str, encoder: Encoder) -> torch.Tensor:
    """The embeddings of a batch's texts, [N, d], in the caller's order."""
    return _forward(batch, side, encoder)[0]


def pair_gradient(
    batch: PairBatch, encoder: Encoder, phases: Recorder = OFF
) -> tuple[list[tuple[str, RowGradient]], torch.Tensor]:
    """(the gradient of each side's tower, the loss), summed over the pairs of a micro-batch.

    A tower's own loss (training.towers.tower.Penalised) is added for each text that the micro-batch encodes.
    """
    query_Bd, query_back = _forward(batch.queries, "query", encoder, phases)
    document_Nd, document_back = _forward(batch.documents, "document", encoder, phases)
    with phases("loss"):
        losses, by_query, by_document = click_loss_gradient(
            query_Bd, document_Nd, batch.candidates, encoder.recipe.gamma, batch.weights
        )
    (of_query, query_own), (of_document, document_own) = query_back(by_query), document_back(by_document)
    return [of_query, of_document], losses.sum() + query_own + document_own


Back = Callable[[torch.Tensor], tuple[tuple[str, RowGradient], torch.Tensor | float]]


def _forward(batch: TextBatch, side: str, encoder: Encoder, phases: Recorder = OFF) -> tuple[torch.Tensor, Back]:
    """(the embeddings, what turns their gradient into that of the tower beside the tower's own loss)."""
    recipe, layout = encoder.recipe, encoder.layout
    tower, name, rows = encoder.device.tower(recipe), tower_name(recipe, side), layout.touched(batch.rows)
    with phases("gather"):
        table_RG, parts = layout.split(encoder.rows_at(name, rows))
        inputs_UG = word_inputs(table_RG, batch)
    with phases("recurrence"):
        sorted_Nd, trace = tower.forward(inputs_UG, parts, batch)
    vectors_Nd = torch.empty_like(sorted_Nd)
    vectors_Nd[batch.order] = sorted_Nd

    def back(by_vectors_Nd: torch.Tensor) -> tuple[tuple[str, RowGradient], torch.Tensor | float]:
        with phases("recurrence"):
            own = tower.own_loss(trace) if isinstance(tower, Penalised) else 0.0
            by_word_UG, by_parts = tower.backward(
                trace, by_vectors_Nd[batch.order], parts, batch, recipe.truncate_steps
            )
        with phases("scatter"):
            return (name, RowGradient(rows, layout.join(table_gradient(by_word_UG, batch), by_parts))), own

    return vectors_Nd, back
