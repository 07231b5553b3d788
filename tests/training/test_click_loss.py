import math

import pytest
import torch

from training.click_loss import click_loss_gradient, click_losses, cosines


def test_loss_of_one_pair_is_the_hand_worked_one():
    # q = (1, 0); clicked (1, 1): R = 1/√2 = 0.70711; unclicked (0, 2): R = 0, and (-3, 0): R = -1.
    # γ = 2: l = log(1 + exp(-2 · 0.70711) + exp(-2 · 1.70711)) = log(1 + 0.243117 + 0.032902) = 0.243745
    query = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    documents = torch.tensor([[[1.0, 1.0], [0.0, 2.0], [-3.0, 0.0]]], dtype=torch.float64)
    assert cosines(query, documents)[0].tolist() == pytest.approx([1 / math.sqrt(2), 0, -1])
    assert click_losses(cosines(query, documents), 2.0).item() == pytest.approx(0.243745, abs=1e-6)
    assert click_loss_gradient(query, documents, 2.0)[0].item() == pytest.approx(0.243745, abs=1e-6)


def test_gradient_is_that_of_the_sum_over_pairs():
    generator = torch.Generator().manual_seed(1)
    query = torch.randn(5, 7, dtype=torch.float64, generator=generator, requires_grad=True)
    documents = torch.randn(5, 4, 7, dtype=torch.float64, generator=generator, requires_grad=True)
    relevance = torch.nn.functional.cosine_similarity(query[:, None], documents, dim=-1)
    clicked, unclicked = relevance[:, :1], relevance[:, 1:]
    torch.log1p(torch.exp(-6.0 * (clicked - unclicked)).sum(1)).sum().backward()
    _, by_query, by_document = click_loss_gradient(query.detach(), documents.detach(), 6.0)
    torch.testing.assert_close(by_query, query.grad)
    torch.testing.assert_close(by_document, documents.grad)


def test_a_zero_vector_has_similarity_zero_and_no_gradient():
    query, documents = torch.zeros(1, 3), torch.ones(1, 2, 3)
    losses, by_query, by_document = click_loss_gradient(query, documents, 5.0)
    assert losses.item() == pytest.approx(math.log(2))  # both similarities are 0: log(1 + exp(0))
    assert not by_query.any()
    assert not by_document.any()
