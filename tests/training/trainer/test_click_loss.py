import math

import pytest
import torch

from clicktower.training.trainer.click_loss import DENSE, pair_losses
from clicktower.training.trainer.clicks import click_losses, cosines
from tests.training.finite_differences import by_autograd, require_gradient

DOCUMENTS = torch.tensor([[1.0, 1.0], [0.0, 2.0], [-3.0, 0.0]], dtype=torch.float64)


def loss_and_gradients(query_Bd, document_Nd, *of_pairs):
    """(w l of each pair, gradient of their sum by the query vectors, by the document vectors)."""
    return by_autograd(lambda query, document: pair_losses(query, document, *of_pairs), query_Bd, document_Nd)


def test_loss_of_one_pair_is_the_hand_worked_one():
    # q = (1, 0); clicked (1, 1): R = 1/√2 = 0.70711; unclicked (0, 2): R = 0, and (-3, 0): R = -1.
    # γ = 2: l = log(1 + exp(-2 · 0.70711) + exp(-2 · 1.70711)) = log(1 + 0.243117 + 0.032902) = 0.243745
    query = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    assert cosines(query, DOCUMENTS[None])[0].tolist() == pytest.approx([1 / math.sqrt(2), 0, -1])
    assert click_losses(cosines(query, DOCUMENTS[None]), 2.0).item() == pytest.approx(0.243745, abs=1e-6)
    losses, _, _ = loss_and_gradients(query, DOCUMENTS, torch.tensor([[0, 1, 2]]), 2.0)
    assert losses.item() == pytest.approx(0.243745, abs=1e-6)


@pytest.mark.parametrize("others", [0, 200], ids=["most documents are candidates", "few documents are candidates"])
def test_two_weighted_pairs_that_share_documents_are_the_hand_worked_ones(others):
    # The first pair is the one above: probabilities 1/1.276019 = 0.783687, 0.243117/1.276019 = 0.190528, 0.025785.
    # The second, of weight 3: q = (0, 1); clicked (0, 2): R = 1; unclicked (1, 1): R = 0.70711; no third candidate.
    #   3 l = 3 log(1 + exp(-2 · 0.29289)) = 3 log(1.556668) = 1.327643; of (1, 1) p = 0.556668/1.556668 = 0.357602
    #   its gradient by q: 3 · 2 · 0.357602 · ((0.70711, 0.70711) - 0.70711 (0, 1)) = 2.145612 · (0.70711, 0)
    # By (0, 2): 2 · 0.190528 · ((1, 0) - 0)/2 of the first; of the second nothing, since q has its direction.
    # By (1, 1): 2 (0.783687 - 1) · ((1, 0) - (0.5, 0.5))/√2 = -0.432626 · (0.353553, -0.353553) of the first,
    #   2.145612 · ((0, 1) - (0.5, 0.5))/√2 of the second: in all (-0.911545, 0.911545).
    query = torch.eye(2, dtype=torch.float64)
    documents = torch.cat([DOCUMENTS, torch.ones(others, 2, dtype=torch.float64)])
    candidates = torch.tensor([[0, 1, 2], [1, 0, -1]], dtype=torch.int32)
    assert (candidates.numel() < DENSE * 2 * len(documents)) == (others > 0)
    losses, by_query, by_document = loss_and_gradients(query, documents, candidates, 2.0, torch.tensor([1.0, 3.0]))
    assert losses.tolist() == pytest.approx([0.243745, 1.327643], abs=1e-6)
    assert by_query[1].tolist() == pytest.approx([2.145612 * 0.707107, 0], abs=1e-5)
    assert by_document[1].tolist() == pytest.approx([0.190528, 0], abs=1e-6)
    assert by_document[0].tolist() == pytest.approx([-0.911545, 0.911545], abs=1e-5)
    assert not by_document[3:].any()


def plain_loss(query_Bd, document_Nd, candidates_BC, gamma, weight_B) -> float:
    """Eq. 3-5, one pair after the other."""
    total = 0.0
    for query, candidates, weight in zip(query_Bd, candidates_BC.tolist(), weight_B, strict=True):
        relevance = [torch.nn.functional.cosine_similarity(query, document_Nd[c], dim=0) for c in candidates if c >= 0]
        total += weight * torch.log1p(sum(torch.exp(-gamma * (relevance[0] - r)) for r in relevance[1:]))
    return total


def random_case(num_documents: int):
    """Queries, documents, candidates of which some are absent and some stand twice, and weights."""
    generator = torch.Generator().manual_seed(1)
    query = torch.randn(5, 7, dtype=torch.float64, generator=generator)
    document = torch.randn(num_documents, 7, dtype=torch.float64, generator=generator)
    candidates = torch.randint(0, 6, (5, 4), generator=generator, dtype=torch.int32)
    candidates[1, 2] = candidates[3, 1] = candidates[3, 3] = -1
    weight = torch.tensor([1.0, 0.25, 3.0, 2.0, 0.0])
    return query, document, candidates, weight


@pytest.mark.parametrize("num_documents", [8, 80])
def test_gradient_equals_finite_differences(num_documents):
    query, document, candidates, weight = random_case(num_documents)
    assert (candidates.numel() >= DENSE * 5 * num_documents) == (num_documents == 8)  # both ways to compute it
    losses, by_query, by_document = loss_and_gradients(query, document, candidates, 6.0, weight)
    assert losses.sum().item() == pytest.approx(plain_loss(query, document, candidates, 6.0, weight).item(), rel=1e-12)
    for vectors, gradient in ((query, by_query), (document, by_document)):
        require_gradient(
            lambda: plain_loss(query, document, candidates, 6.0, weight).item(), vectors=vectors, gradient=gradient
        )


def test_a_weight_of_two_is_the_pair_twice():
    query, document, candidates, _ = random_case(8)
    twice = torch.tensor([0, 1, 2, 2, 3, 4])
    weight = torch.tensor([1.0, 1.0, 2.0, 1.0, 1.0])
    losses, by_query, by_document = loss_and_gradients(query, document, candidates, 6.0, weight)
    plain = loss_and_gradients(query[twice], document, candidates[twice], 6.0)
    torch.testing.assert_close(losses.sum(), plain[0].sum())
    torch.testing.assert_close(by_query[2], plain[1][2] + plain[1][3])
    torch.testing.assert_close(by_document, plain[2])


@pytest.mark.parametrize("num_documents", [8, 80])
def test_sharing_documents_changes_no_loss_and_adds_their_gradients_up(num_documents):
    query, document, candidates, weight = random_case(num_documents)
    shared = loss_and_gradients(query, document, candidates, 6.0, weight)
    of_its_own = torch.arange(candidates.numel(), dtype=torch.int32).view(candidates.shape)
    copies = document[candidates.flatten().long()]
    apart = loss_and_gradients(query, copies, of_its_own.masked_fill(candidates < 0, -1), 6.0, weight)
    torch.testing.assert_close(shared[0], apart[0])
    torch.testing.assert_close(shared[1], apart[1])
    present = candidates.flatten() >= 0
    added = torch.zeros_like(document).index_add(0, candidates.flatten()[present].long(), apart[2][present])
    torch.testing.assert_close(shared[2], added)
    assert not apart[2][~present].any()


@pytest.mark.parametrize("num_documents", [3, 300])
def test_a_pair_without_any_other_candidate_has_loss_and_gradient_of_exactly_zero(num_documents):
    documents = torch.randn(num_documents, 4, generator=torch.Generator().manual_seed(2))
    losses, *gradients = loss_and_gradients(torch.ones(1, 4), documents, torch.tensor([[2, -1, -1]]), 5.0)
    assert losses.tolist() == [0.0]
    assert not any(gradient.any() for gradient in gradients)


def test_a_zero_vector_has_similarity_zero_and_no_gradient():
    query, documents = torch.zeros(1, 3), torch.ones(2, 3)
    losses, by_query, by_document = loss_and_gradients(query, documents, torch.tensor([[0, 1]]), 5.0)
    assert losses.item() == pytest.approx(math.log(2))  # both similarities are 0: log(1 + exp(0))
    assert not by_query.any()
    assert not by_document.any()
