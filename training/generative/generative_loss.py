"""The generative loss of VAR-Siamese (Deudon, NeurIPS 2018): saying s' from one sample of q(z|s).

    z = μ + σ ∘ ε,    l = -log p(s'|z) + κ KL(q(z|s) || N(0, I)),    L = Σ over texts of w l

s' = s is repeating, s' a paraphrase of s reformulating. μ and σ of s are the halves of its vector, as the variational
tower (variational) gives it.

Shapes: B texts, d = 2 h dimensions of a vector.
"""

import math
from dataclasses import dataclass

import torch

from training.generative.decoder import Decoder
from training.generative.targets import Targets
from training.towers.tower import Parts


@dataclass(frozen=True, slots=True)
class GenerativeLosses:
    """Of each text, in nats, neither weighted nor multiplied by κ."""

    words_B: torch.Tensor  # -log p(s'|z)
    divergence_B: torch.Tensor  # KL(q(z|s) || N(0, I))


def generative_gradient(
    vectors_Bd: torch.Tensor,
    noise_Bh: torch.Tensor,
    targets: Targets,
    kappa: float,
    decoder: Decoder,
    parts: Parts,
    weight_B: torch.Tensor | None = None,
) -> tuple[GenerativeLosses, torch.Tensor, dict[str, torch.Tensor]]:
    """(the losses, gradient of L by the vectors [B, d], by each part of the decoder).

    `noise_Bh`: ε. `targets`: s' of each text. `weight_B`: w of each text; None: 1.
    """
    mu, sigma = vectors_Bd.chunk(2, dim=1)
    weights = vectors_Bd.new_ones(len(vectors_Bd)) if weight_B is None else weight_B.to(vectors_Bd)
    words_B, trace = decoder.losses(sample(mu, sigma, noise_Bh), targets, parts)
    by_z_Bh, by_parts = decoder.backward(trace, weights, parts)
    divergence_B, *by_kl = kl(mu, sigma)
    counted = kappa * weights[:, None]
    halves = [through + counted * own for through, own in zip(sample_gradient(by_z_Bh, noise_Bh), by_kl, strict=True)]
    return GenerativeLosses(words_B, divergence_B), torch.cat(halves, dim=1), by_parts


# Normal distributions with diagonal covariance, N(μ, diag σ²): VAR-Siamese's texts (Deudon, NeurIPS 2018).
#
#     z = μ + σ ∘ ε,  ε ~ N(0, I)
#     KL(N(μ, σ²) || N(0, I)) = ½ Σ (μ² + σ² - 1 - ln σ²)
#     W₂²(N(μ1, σ1²), N(μ2, σ2²)) = Σ (μ1 - μ2)² + (σ1 - σ2)²
#
# so W₂ is the Euclidean distance between μ and σ laid side by side. σ is above 0: at 0 the divergence is infinite, and
# comes out so.
#
# Shapes: B texts, h dimensions; μ, σ, ε and z are [B, h].


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


def kappa(step: int, rate: float = 0.002, middle: float = 2500) -> float:
    """κ, what the divergence counts in the loss at a step (from 0): sigmoid(rate (step - middle))."""
    x = rate * (step - middle)
    e = math.exp(-abs(x))  # at most 1, so that no step is too far from the middle
    return 1 / (1 + e) if x >= 0 else e / (1 + e)
