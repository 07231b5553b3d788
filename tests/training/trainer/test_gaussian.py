import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clicktower.training.trainer.generate import divergence, kappa
from tests.training.finite_differences import by_autograd


def rows(*values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_the_divergence_from_the_standard_normal_worked_by_hand():
    # μ = (1, -2), σ = (1, 0.5): ½ (1 + 1 - 1 - 0) = 0.5, and ½ (4 + 0.25 - 1 - ln 0.25) = ½ (3.25 + 1.386294)
    # = 2.318147; in all 2.818147.
    # The standard normal itself: 0. By μ: μ; by σ: σ - 1/σ = 0 and 0.5 - 2 = -1.5.
    found, by_mu, by_sigma = by_autograd(divergence, rows([1, -2], [0, 0]), rows([1, 0.5], [1, 1]))
    assert found.tolist() == pytest.approx([2.818147, 0], abs=1e-6)
    assert by_mu.tolist() == [[1, -2], [0, 0]]
    assert by_sigma.tolist() == [[0, -1.5], [0, 0]]


def test_the_divergence_and_its_gradient_equal_the_librarys_and_autograd():
    rng = np.random.default_rng(1)
    mu = torch.from_numpy(rng.normal(size=(5, 3))).requires_grad_()
    sigma = torch.from_numpy(rng.gamma(2.0, size=(5, 3))).requires_grad_()
    standard = torch.distributions.Normal(torch.zeros(3).double(), torch.ones(3).double())
    expected = torch.distributions.kl_divergence(torch.distributions.Normal(mu, sigma), standard).sum(1)
    expected.sum().backward()
    found, by_mu, by_sigma = by_autograd(divergence, mu, sigma)
    np.testing.assert_allclose(found, expected.detach(), rtol=1e-12)
    np.testing.assert_allclose(by_mu, mu.grad, rtol=1e-12)
    np.testing.assert_allclose(by_sigma, sigma.grad, rtol=1e-10, atol=1e-12)


def test_a_spread_of_zero_diverges_infinitely_and_is_no_quiet_number():
    found, _, by_sigma = by_autograd(divergence, rows([0, 0]), rows([1, 0]))
    assert found.tolist() == [math.inf]
    assert by_sigma.tolist() == [[0, -math.inf]]


def test_kappa_rises_from_nearly_nothing_through_a_half_to_nearly_one():
    # 0.002 x 2,500 = 5: sigmoid(-5) = 1 / (1 + e^5) = 1 / 149.413159 = 0.006693, sigmoid(5) = 1 - that.
    assert [kappa(step) for step in (0, 2_500, 5_000)] == pytest.approx([0.006693, 0.5, 0.993307], abs=5e-7)
    assert kappa(10, rate=0.1, middle=20) == pytest.approx(1 / (1 + math.e))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**9), st.floats(0, 1e3), st.floats(-1e9, 1e9))
def test_kappa_is_a_share_at_any_step(step, rate, middle):
    assert 0 <= kappa(step, rate, middle) <= 1
    assert kappa(step, rate, middle) <= kappa(step + 1, rate, middle)
