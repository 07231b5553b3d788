"""Features of a pair of normal distributions (Deudon, "Learning semantic similarity in a continuous space", 2018).

    W_2² = Σ_i (μ_1i - μ_2i)² + (σ_1i - σ_2i)²        of N(μ_1, diag σ_1²) and N(μ_2, diag σ_2²)

What is classified are the terms of that sum before they are summed, and the Hadamard product μ_1 ∘ μ_2: three rows of
h features, (μ_1 - μ_2)², (σ_1 - σ_2)² and μ_1 ∘ μ_2. The author's program adds the first two per dimension and so has
two rows of h; apart, the hidden layer may weigh them alike or not. An embedding is μ and σ side by side, h numbers
each, as the variational tower gives it; of another tower's these features mean nothing. They do not tell which text of
a pair came first.

Shapes as in training.heads.head, with d = 2 h and F = 3 h.
"""

from dataclasses import dataclass

import torch

from training.heads.head import Gradients, Vectors
from training.towers.tower import Parts, Shapes


@dataclass(frozen=True, slots=True)
class W2:
    latent: int  # h

    @property
    def rows(self) -> int:
        return 3

    @property
    def row_width(self) -> int:
        return self.latent

    @property
    def parts(self) -> Shapes:
        return ()

    def forward(self, vectors: Vectors, parts: Parts) -> tuple[torch.Tensor, Vectors]:
        """As training.heads.features.Features.forward."""
        first_Bd, second_Bd = vectors
        squared_Bd = (first_Bd - second_Bd).square_()
        product_Bh = first_Bd[:, : self.latent] * second_Bd[:, : self.latent]
        return torch.cat([squared_Bd, product_Bh], dim=1), vectors

    def backward(self, trace: Vectors, by_features_BF: torch.Tensor, parts: Parts) -> tuple[Vectors, Gradients]:
        """As training.heads.features.Features.backward."""
        first_Bd, second_Bd = trace
        by_squared_Bd, by_product_Bh = by_features_BF.split([2 * self.latent, self.latent], dim=1)
        by_first_Bd = 2 * (first_Bd - second_Bd) * by_squared_Bd
        by_second_Bd = -by_first_Bd
        by_first_Bd[:, : self.latent] += second_Bd[:, : self.latent] * by_product_Bh
        by_second_Bd[:, : self.latent] += first_Bd[:, : self.latent] * by_product_Bh
        return (by_first_Bd, by_second_Bd), {}
