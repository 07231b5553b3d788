"""The click loss's gradient for one micro-batch: everything that is computed between two sums.

Shapes: B pairs, C = 1 + n candidates with the clicked one first.
"""

from dataclasses import dataclass, replace

import torch

from training.click_loss import Taught, click_loss_gradient
from training.encoder import Encoder, encoded
from training.pairs import Pairs
from training.profile import OFF, Recorder
from training.reduction import RowGradient
from training.text_batch import TextBatch, copied, text_batch


@dataclass(frozen=True, kw_only=True, slots=True)
class PairBatch:
    """As training.reference_path.Batch: what training.pairs.Pairs says, with the texts laid out for the towers."""

    queries: TextBatch
    documents: TextBatch
    candidates: torch.Tensor  # int32 [B, C]
    weights: torch.Tensor | None  # float32 [B]
    taught: torch.Tensor | None = None  # float32 [B, C], what a teacher takes each candidate to be

    def to(self, device: torch.device) -> "PairBatch":
        """This batch, from the CPU, on a device, as TextBatch.to."""
        return replace(
            self,
            queries=self.queries.to(device),
            documents=self.documents.to(device),
            candidates=copied(self.candidates, device),
            weights=None if self.weights is None else copied(self.weights, device),
            taught=None if self.taught is None else copied(self.taught, device),
        )

    def table_rows(self, side: str) -> torch.Tensor:
        return (self.queries if side == "query" else self.documents).rows

    def gradient(
        self, encoder: Encoder, update: int, phases: Recorder = OFF
    ) -> tuple[list[tuple[str, RowGradient]], torch.Tensor]:
        return pair_gradient(self, encoder, phases)


def pair_batch(pairs: Pairs) -> PairBatch:
    """The batch of some pairs. Raises ValueError for a text without words."""
    return PairBatch(
        queries=text_batch([pairs.queries]),
        documents=text_batch(pairs.documents),
        candidates=torch.from_numpy(pairs.candidates),
        weights=None if pairs.weights is None else torch.from_numpy(pairs.weights),
        taught=None if pairs.taught is None else torch.from_numpy(pairs.taught),
    )


def pair_gradient(
    batch: PairBatch, encoder: Encoder, phases: Recorder = OFF
) -> tuple[list[tuple[str, RowGradient]], torch.Tensor]:
    """(the gradient of each side's tower, the loss), summed over the pairs of a micro-batch.

    A tower's own loss (training.towers.tower.Penalised) is added for each text that the micro-batch encodes.
    """
    queries = encoded(batch.queries, "query", encoder, phases)
    documents = encoded(batch.documents, "document", encoder, phases)
    with phases("loss"):
        taught = None if batch.taught is None else Taught(batch.taught, encoder.recipe.teacher_share)
        losses, by_query, by_document = click_loss_gradient(
            queries.vectors_Nd, documents.vectors_Nd, batch.candidates, encoder.recipe.gamma, batch.weights, taught
        )
    (of_query, query_own), (of_document, document_own) = queries.gradient(by_query), documents.gradient(by_document)
    return [of_query, of_document], losses.sum() + query_own + document_own
