"""The loss of a clicked document against unclicked ones (eq. 3-5; docs/model.md section 3), and its gradient.

    R(Q, D) = cosine,   Δ_j = R(Q, D+) - R(Q, D-_j),   l = log(1 + Σ_j exp(-γ Δ_j)),   L = Σ over pairs of w l

also known as softmax cross-entropy over γ R with the clicked document as the class (DSSM loss, InfoNCE). What a teacher
takes each candidate to be, the probabilities p, may have a share a of it (Hinton et al., arXiv:1503.02531):

    l = (1 - a) log(1 + Σ_j exp(-γ Δ_j)) + a KL(p || softmax(γ R))

Shapes: B pairs, N documents, C = 1 + n candidates with the clicked one first, d cells.
"""

from dataclasses import dataclass, replace

import torch
from torch.nn.functional import embedding_bag

from training.compute.reduction import RowGradient
from training.data.pairs import Pairs
from training.data.text_batch import TextBatch, copied, text_batch
from training.network.encoder import Encoder, encoded

DENSE = 1 / 16  # the share of all B x N similarities from which it is faster to compute every one of them


@dataclass(frozen=True, slots=True)
class Taught:
    """p of each candidate [B, C], 0 where there is none, and a, from 0 to 1."""

    probability_BC: torch.Tensor
    share: float


def cosines(query_Bd: torch.Tensor, document_BCd: torch.Tensor) -> torch.Tensor:
    """R of each query and each of its candidates, [B, C]; 0 where a vector is zero."""
    query_unit, _ = _unit(query_Bd)
    document_unit, _ = _unit(document_BCd)
    return torch.einsum("bd,bcd->bc", query_unit, document_unit)


def click_losses(similarity_BC: torch.Tensor, gamma: float) -> torch.Tensor:
    """l of each pair, [B]. A similarity of minus infinity is no candidate."""
    scaled = similarity_BC * gamma
    return torch.logsumexp(scaled, dim=1) - scaled[:, 0]


def teacher_losses(similarity_BC: torch.Tensor, gamma: float, probability_BC: torch.Tensor) -> torch.Tensor:
    """KL(p || softmax(γR)) of each pair, [B]: 0 where both agree. A candidate with p = 0 may be minus infinity."""
    scaled = similarity_BC * gamma
    agreed = torch.where(probability_BC > 0, probability_BC * scaled, 0)
    return (torch.xlogy(probability_BC, probability_BC) - agreed).sum(1) + torch.logsumexp(scaled, dim=1)


def click_loss_gradient(
    query_Bd: torch.Tensor,
    document_Nd: torch.Tensor,
    candidates_BC: torch.Tensor,
    gamma: float,
    weight_B: torch.Tensor | None = None,
    taught: Taught | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(w l of each pair [B], gradient of their SUM by the query vectors [B, d], by the document vectors [N, d]).

    `candidates_BC`: the numbers of each pair's documents, the clicked one first; -1 where there is none, which has the
    probability 0 exactly. A document that stands in several pairs, or in one pair several times, gets the sum of its
    gradients, in a fixed order. `weight_B`: w of each pair; None: 1. `taught`: by a teacher; None: by clicks alone.

    dl/dR of candidate c is γ (softmax(γR)_c - [c is the clicked one]): for c = j unclicked this is -α_j, with
    α_j = -γ exp(-γΔ_j) / (1 + Σ exp(-γΔ)) of eq. 7. With a teacher it is γ (softmax(γR)_c - (1 - a) [c is the clicked
    one] - a p_c).
    """
    query_unit, query_scale = _unit(query_Bd)
    document_unit, document_scale = _unit(document_Nd)
    absent = candidates_BC < 0
    candidates_BC = candidates_BC.long().clamp(min=0)  # what stands there for an absent one gets the factor 0 below
    dense = candidates_BC.numel() >= DENSE * len(query_Bd) * len(document_Nd)
    similarities, through = (_all_similarities, _through_all) if dense else (_similarities, _through)

    similarity_BC = similarities(query_unit, document_unit, candidates_BC).masked_fill(absent, -torch.inf)
    losses = click_losses(similarity_BC, gamma)
    by_similarity = torch.softmax(similarity_BC * gamma, dim=1)
    if taught is None:
        by_similarity[:, 0] -= 1
    else:
        losses = (1 - taught.share) * losses
        losses += taught.share * teacher_losses(similarity_BC, gamma, taught.probability_BC)
        by_similarity[:, 0] -= 1 - taught.share
        by_similarity -= taught.share * taught.probability_BC
    by_similarity *= gamma
    if weight_B is not None:
        losses *= weight_B
        by_similarity *= weight_B[:, None]
    by_query, by_document = through(by_similarity, query_unit, document_unit, candidates_BC)
    return (
        losses,
        _before_unit(by_query, query_unit, query_scale),
        _before_unit(by_document, document_unit, document_scale),
    )


def _similarities(query_Bd: torch.Tensor, document_Nd: torch.Tensor, candidates_BC: torch.Tensor) -> torch.Tensor:
    return torch.einsum("bd,bcd->bc", query_Bd, document_Nd[candidates_BC])


def _through(
    by_similarity_BC: torch.Tensor, query_Bd: torch.Tensor, document_Nd: torch.Tensor, candidates_BC: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients by the vectors that `_similarities` multiplied. The scatter to documents is written as a gather."""
    by_query_Bd = torch.einsum("bc,bcd->bd", by_similarity_BC, document_Nd[candidates_BC])
    document, place = candidates_BC.flatten().sort(stable=True)
    first = torch.searchsorted(document, torch.arange(len(document_Nd), device=document.device))
    pair = place.div(candidates_BC.shape[1], rounding_mode="floor")
    by_document_Nd = embedding_bag(
        pair, query_Bd, first, mode="sum", per_sample_weights=by_similarity_BC.flatten()[place]
    )
    return by_query_Bd, by_document_Nd


def _all_similarities(query_Bd: torch.Tensor, document_Nd: torch.Tensor, candidates_BC: torch.Tensor) -> torch.Tensor:
    return (query_Bd @ document_Nd.T).gather(1, candidates_BC)


def _through_all(
    by_similarity_BC: torch.Tensor, query_Bd: torch.Tensor, document_Nd: torch.Tensor, candidates_BC: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients by the vectors that `_all_similarities` multiplied."""
    by_similarity_BN = by_similarity_BC.new_zeros(len(query_Bd), len(document_Nd))
    by_similarity_BN.scatter_add_(1, candidates_BC, by_similarity_BC)
    return by_similarity_BN @ document_Nd, by_similarity_BN.T @ query_Bd


def _unit(vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(vectors of length 1, 1/length); both 0 for a zero vector, whose similarity to anything is defined as 0."""
    length = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    scale = torch.where(length > 0, 1 / length, torch.zeros_like(length))
    return vectors * scale, scale


def _before_unit(by_unit: torch.Tensor, unit: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """The gradient by vectors from that by their unit vectors u: its part across u, divided by the length."""
    return (by_unit - (by_unit * unit).sum(-1, keepdim=True) * unit) * scale


# The click loss's gradient for one micro-batch: everything that is computed between two sums.
#
# Shapes: B pairs, C = 1 + n candidates with the clicked one first.


@dataclass(frozen=True, kw_only=True, slots=True)
class PairBatch:
    """As reference_path.Batch: what pairs.Pairs says, with the texts laid out for the towers."""

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

    def gradient(self, encoder: Encoder, update: int) -> tuple[list[tuple[str, RowGradient]], torch.Tensor]:
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


def pair_gradient(batch: PairBatch, encoder: Encoder) -> tuple[list[tuple[str, RowGradient]], torch.Tensor]:
    """(the gradient of each side's tower, the loss), summed over the pairs of a micro-batch.

    A tower's own loss (tower.Penalised) is added for each text that the micro-batch encodes.
    """
    queries = encoded(batch.queries, "query", encoder)
    documents = encoded(batch.documents, "document", encoder)
    taught = None if batch.taught is None else Taught(batch.taught, encoder.recipe.teacher_share)
    losses, by_query, by_document = click_loss_gradient(
        queries.vectors_Nd, documents.vectors_Nd, batch.candidates, encoder.recipe.gamma, batch.weights, taught
    )
    (of_query, query_own), (of_document, document_own) = queries.gradient(by_query), documents.gradient(by_document)
    return [of_query, of_document], losses.sum() + query_own + document_own
