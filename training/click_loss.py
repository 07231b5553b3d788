"""The loss of a clicked document against unclicked ones (eq. 3-5; docs/model.md section 3), and its gradient.

    R(Q, D) = cosine,   Δ_j = R(Q, D+) - R(Q, D-_j),   l = log(1 + Σ_j exp(-γ Δ_j))

also known as softmax cross-entropy over γ R with the clicked document as the class (DSSM loss, InfoNCE).
Shapes: B pairs, C = 1 + n candidates with the clicked one first, d cells.
"""

import torch


def cosines(query_Bd: torch.Tensor, document_BCd: torch.Tensor) -> torch.Tensor:
    """R of each query and each of its candidates, [B, C]; 0 where a vector is zero."""
    query_unit, _ = _unit(query_Bd)
    document_unit, _ = _unit(document_BCd)
    return torch.einsum("bd,bcd->bc", query_unit, document_unit)


def click_losses(similarity_BC: torch.Tensor, gamma: float) -> torch.Tensor:
    """l of each pair, [B]."""
    scaled = similarity_BC * gamma
    return torch.logsumexp(scaled, dim=1) - scaled[:, 0]


def click_loss_gradient(
    query_Bd: torch.Tensor, document_BCd: torch.Tensor, gamma: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(losses [B], gradient by the query vectors [B, d], by the candidates' vectors [B, C, d]) of the SUM of losses.

    dl/dR of candidate c is γ (softmax(γR)_c - [c is the clicked one]): for c = j unclicked this is -α_j, with
    α_j = -γ exp(-γΔ_j) / (1 + Σ exp(-γΔ)) of eq. 7.
    """
    query_unit, query_scale = _unit(query_Bd)
    document_unit, document_scale = _unit(document_BCd)
    similarity_BC = torch.einsum("bd,bcd->bc", query_unit, document_unit)
    by_similarity = torch.softmax(similarity_BC * gamma, dim=1)
    by_similarity[:, 0] -= 1
    by_similarity *= gamma
    # dR/dq = (d/|d| - R q/|q|) / |q|, and the same with the roles exchanged.
    weighted = (by_similarity * similarity_BC)[..., None]
    by_query = torch.einsum("bc,bcd->bd", by_similarity, document_unit) - weighted.sum(1) * query_unit
    by_document = by_similarity[..., None] * query_unit[:, None] - weighted * document_unit
    return click_losses(similarity_BC, gamma), by_query * query_scale, by_document * document_scale


def _unit(vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(vectors of length 1, 1/length); both 0 for a zero vector, whose similarity to anything is defined as 0."""
    length = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    scale = torch.where(length > 0, 1 / length, torch.zeros_like(length))
    return vectors * scale, scale
