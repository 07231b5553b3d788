"""Normal distributions with diagonal covariance, N(μ, diag σ²): VAR-Siamese's texts (Deudon, NeurIPS 2018).

    z = μ + σ ∘ ε,  ε ~ N(0, I)
    KL(N(μ, σ²) || N(0, I)) = ½ Σ (μ² + σ² - 1 - ln σ²)
    W₂²(N(μ1, σ1²), N(μ2, σ2²)) = Σ (μ1 - μ2)² + (σ1 - σ2)²

so W₂ is the Euclidean distance between μ and σ laid side by side. σ is above 0: at 0 the divergence is infinite, and
comes out so.

Shapes: B texts, h dimensions; μ, σ, ε and z are [B, h].
"""

import math

import torch


def sample(mu: torch.Tensor, sigma: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """z, given ε."""
    return torch.addcmul(mu, sigma, noise)


def sample_gradient(by_z: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients (of μ, of σ), given that of z."""
    return by_z, by_z * noise


def kl(mu: torch.Tensor, sigma: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(the divergence from N(0, I) of each text, in nats [B]; its gradient by μ, μ; by σ, σ - 1/σ)."""
    divergence = (mu.square() + sigma.square() - 1).sum(1) / 2 - sigma.log().sum(1)
    return divergence, mu.clone(), sigma - 1 / sigma


def w2_squared(
    mu: torch.Tensor, sigma: torch.Tensor, other_mu: torch.Tensor, other_sigma: torch.Tensor
) -> torch.Tensor:
    """W₂² of each pair, [B]: 2-Wasserstein distance of two normal distributions, squared."""
    return (mu - other_mu).square().sum(1) + (sigma - other_sigma).square().sum(1)


def kappa(step: int, rate: float = 0.002, middle: float = 2500) -> float:
    """κ, what the divergence counts in the loss at a step (from 0): sigmoid(rate (step - middle))."""
    x = rate * (step - middle)
    e = math.exp(-abs(x))  # at most 1, so that no step is too far from the middle
    return 1 / (1 + e) if x >= 0 else e / (1 + e)
