"""The generative loss of VAR-Siamese (Deudon, NeurIPS 2018): saying s' from one sample of q(z|s).

    z = μ + σ ∘ ε,    l = -log p(s'|z) + κ KL(q(z|s) || N(0, I)),    L = Σ over texts of w l

s' = s is repeating, s' a paraphrase of s reformulating. μ and σ of s are the halves of its vector, as the variational
tower (training.towers.variational) gives it.

Shapes: B texts, d = 2 h dimensions of a vector.
"""

from dataclasses import dataclass

import torch

from training.generative.decoder import Decoder
from training.generative.gaussian import kl, sample, sample_gradient
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
