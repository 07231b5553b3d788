import math

import numpy as np
import torch

from tests.training.finite_differences import STEP
from tests.training.generative import reference_decoder as reference
from tests.training.generative.small_decoder import SMALL, TEXTS, as_arrays, some_parts, targets
from training.generative.generative_loss import generative_gradient

torch.set_num_threads(1)
KAPPA, LATENT = 0.3, SMALL.latent


def reference_loss(parts: dict[str, np.ndarray], vector: np.ndarray, noise: np.ndarray, said: list[int]) -> float:
    """-log p(s'|z) + κ KL of one text, dimension by dimension."""
    mu, sigma = vector[:LATENT], vector[LATENT:]
    divergence = math.fsum(0.5 * (m * m + s * s - 1 - math.log(s * s)) for m, s in zip(mu, sigma, strict=True))
    return reference.loss(parts, mu + sigma * noise, said) + KAPPA * divergence


def test_gradient_of_every_mean_and_spread_equals_finite_differences_with_weights():
    rng = np.random.default_rng(4)
    noise = rng.normal(size=(len(TEXTS), LATENT))
    vectors = np.hstack([rng.normal(size=noise.shape), rng.gamma(2.0, size=noise.shape)])
    weights = np.array([1.0, 3.0, 0.0, 0.5])
    parts = some_parts(SMALL)
    losses, by_vectors, by_parts = generative_gradient(
        torch.from_numpy(vectors), torch.from_numpy(noise), targets(TEXTS), KAPPA, SMALL, parts,
        torch.from_numpy(weights),
    )  # fmt: skip
    arrays = as_arrays(parts)

    def total(moved: np.ndarray) -> float:
        return sum(
            w * reference_loss(arrays, *row, said)
            for w, row, said in zip(weights, zip(moved, noise, strict=True), TEXTS, strict=True)
        )

    found = float((torch.from_numpy(weights) * (losses.words_B + KAPPA * losses.divergence_B)).sum())
    np.testing.assert_allclose(found, total(vectors), rtol=1e-12)
    expected = np.zeros(vectors.shape)
    for at in np.ndindex(vectors.shape):
        for sign in (1, -1):
            moved = vectors.copy()
            moved[at] += sign * STEP
            expected[at] += sign * total(moved) / (2 * STEP)
    np.testing.assert_allclose(by_vectors.numpy(), expected, rtol=1e-6, atol=1e-8)
    assert not by_vectors[2].any(), "a text of weight 0 teaches nothing"
    # The decoder's own gradient is its losses' alone, with the same weights.
    z = torch.from_numpy(vectors[:, :LATENT] + vectors[:, LATENT:] * noise)
    _, trace = SMALL.losses(z, targets(TEXTS), parts)
    for name, gradient in SMALL.backward(trace, torch.from_numpy(weights), parts)[1].items():
        np.testing.assert_allclose(by_parts[name].numpy(), gradient.numpy(), rtol=1e-9, atol=1e-12)


def test_without_weights_every_text_counts_once_and_with_kappa_0_its_distribution_is_free():
    generator = torch.Generator().manual_seed(1)
    vectors = torch.rand(len(TEXTS), 2 * LATENT, generator=generator, dtype=torch.float64) + 0.5
    noise, parts = torch.zeros(len(TEXTS), LATENT, dtype=torch.float64), some_parts(SMALL)
    _, by_vectors, _ = generative_gradient(vectors, noise, targets(TEXTS), 0.0, SMALL, parts)
    assert by_vectors[:, :LATENT].any()
    assert not by_vectors[:, LATENT:].any(), "without noise and divergence nothing depends on the spread"
    ones = torch.ones(len(TEXTS))
    again = generative_gradient(vectors, noise, targets(TEXTS), 0.0, SMALL, parts, ones)[1]
    np.testing.assert_array_equal(again.numpy(), by_vectors.numpy())
