"""The loss of a clicked document against unclicked ones (eq. 3-5; docs/model.md section 3).

    R(Q, D) = cosine,   Δ_j = R(Q, D+) - R(Q, D-_j),   l = log(1 + Σ_j exp(-γ Δ_j)),   L = Σ over pairs of w l

also known as softmax cross-entropy over γ R with the clicked document as the class (DSSM loss, InfoNCE). A teacher's
probabilities p of the candidates may have a share a of the loss (Hinton et al., arXiv:1503.02531):

    l = (1 - a) log(1 + Σ_j exp(-γ Δ_j)) + a KL(p || softmax(γ R))

Shapes: B pairs, N documents, C = 1 + n candidates with the clicked one first, d cells.
"""

from dataclasses import dataclass

import torch

from clicktower.training.model.forward import encoded, gradients
from clicktower.training.model.parameters import Encoder, LossGradient
from clicktower.training.towers.text_batch import OnDevice, TextBatch, text_batch
from clicktower.training.towers.tower import gather_rows
from clicktower.training.trainer.clicks import click_losses, unit_vectors
from clicktower.training.trainer.shard_data import Pairs

DENSE = 1 / 16  # the share of all B x N similarities above which computing every one is faster


@dataclass(frozen=True, slots=True)
class Taught:
    """p of each candidate [B, C], 0 for an absent one, and a, from 0 to 1."""

    probability_BC: torch.Tensor
    share: float


def teacher_losses(similarity_BC: torch.Tensor, gamma: float, probability_BC: torch.Tensor) -> torch.Tensor:
    """KL(p || softmax(γR)) of each pair, [B]: 0 where both agree. A candidate with p = 0 may be minus infinity."""
    scaled = similarity_BC * gamma
    agreed = torch.where(probability_BC > 0, probability_BC * scaled, 0)
    return (torch.xlogy(probability_BC, probability_BC) - agreed).sum(1) + torch.logsumexp(scaled, dim=1)


def pair_losses(
    query_Bd: torch.Tensor,
    document_Nd: torch.Tensor,
    candidates_BC: torch.Tensor,
    gamma: float,
    weight_B: torch.Tensor | None = None,
    taught: Taught | None = None,
) -> torch.Tensor:
    """w l of each pair, [B].

    `candidates_BC`: the numbers of each pair's documents, the clicked one first; -1 for an absent one, which has the
    probability 0 exactly. A document that occurs in several pairs, or in one pair several times, gets the sum of its
    gradients, in a fixed order. `weight_B`: w of each pair; None: 1. `taught`: by a teacher; None: by clicks alone.

    dl/dR of candidate c comes out as γ (softmax(γR)_c - [c is the clicked one]): for c = j unclicked this is -α_j, with
    α_j = -γ exp(-γΔ_j) / (1 + Σ exp(-γΔ)) of eq. 7.
    """
    query_unit, document_unit, absent = unit_vectors(query_Bd), unit_vectors(document_Nd), candidates_BC < 0
    candidates_BC = candidates_BC.long().clamp(min=0)  # the index of an absent one does not matter
    if candidates_BC.numel() >= DENSE * len(query_Bd) * len(document_Nd):
        similarity_BC = (query_unit @ document_unit.T).gather(1, candidates_BC)
    else:
        document_BCd = gather_rows(document_unit, (candidates_BC.flatten(), None)).unflatten(0, candidates_BC.shape)
        similarity_BC = torch.einsum("bd,bcd->bc", query_unit, document_BCd)
    similarity_BC = similarity_BC.masked_fill(absent, -torch.inf)
    losses = click_losses(similarity_BC, gamma)
    if taught is not None:
        theirs = teacher_losses(similarity_BC, gamma, taught.probability_BC)
        losses = (1 - taught.share) * losses + taught.share * theirs
    return losses if weight_B is None else losses * weight_B


@dataclass(frozen=True, kw_only=True, slots=True)
class PairBatch(OnDevice):
    """As large_update.LossBatch: the pairs of shard_data.Pairs, with the texts laid out for the towers."""

    queries: TextBatch
    documents: TextBatch
    candidates: torch.Tensor  # int32 [B, C]
    weights: torch.Tensor | None  # float32 [B]
    taught: torch.Tensor | None = None  # float32 [B, C], the teacher's probability of each candidate

    def table_rows(self, side: str) -> torch.Tensor:
        return (self.queries if side == "query" else self.documents).rows

    def gradient(self, encoder: Encoder, update: int) -> LossGradient:
        return pair_gradient(self, encoder)


def pair_batch(pairs: Pairs) -> PairBatch:
    """The batch of some pairs. Raises ValueError for a text without words."""
    return PairBatch(
        queries=text_batch([pairs.queries]),
        documents=text_batch(pairs.documents),
        candidates=torch.from_numpy(pairs.candidates),
        weights=None if pairs.weights is None else torch.from_numpy(pairs.weights),
        taught=None if pairs.taught is None else torch.from_numpy(pairs.taught),
    )


def pair_gradient(batch: PairBatch, encoder: Encoder) -> LossGradient:
    """(the gradient of each side's tower, the loss), summed over the pairs of a micro-batch.

    A tower's own loss is added for each text that the micro-batch encodes.
    """
    queries = encoded(batch.queries, "query", encoder)
    documents = encoded(batch.documents, "document", encoder)
    clicks = encoder.layout.recipe.clicks
    taught = Taught(batch.taught, clicks.teacher.share) if batch.taught is not None and clicks.teacher else None
    losses = pair_losses(
        queries.vectors_Nd, documents.vectors_Nd, batch.candidates, clicks.gamma, batch.weights, taught
    )
    loss = losses.sum() + queries.own_loss + documents.own_loss
    return gradients(loss, (queries, documents), encoder), loss.detach()
