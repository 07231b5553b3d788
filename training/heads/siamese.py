"""Features of a pair of any two vectors: [a, b, |a - b|, a ∘ b] (InferSent: Conneau et al., arXiv:1705.02364, Fig. 1).

Section 3.1 names them as the concatenation, the element-wise product and the absolute element-wise difference of the
two. |x| has the derivative 0 at 0, so two equal texts do not drive each other apart.

Shapes as in training.heads.head, with F = 4 d.
"""

from dataclasses import dataclass

import torch

from training.heads.head import Gradients, Vectors
from training.towers.tower import Parts, Shapes


@dataclass(frozen=True, slots=True)
class Siamese:
    vector_rows: int  # of one embedding
    row_width: int

    @property
    def rows(self) -> int:
        return 4 * self.vector_rows

    @property
    def parts(self) -> Shapes:
        return ()

    def forward(self, vectors: Vectors, parts: Parts) -> tuple[torch.Tensor, Vectors]:
        """As training.heads.features.Features.forward."""
        first_Bd, second_Bd = vectors
        return torch.cat([first_Bd, second_Bd, (first_Bd - second_Bd).abs_(), first_Bd * second_Bd], dim=1), vectors

    def backward(self, trace: Vectors, by_features_BF: torch.Tensor, parts: Parts) -> tuple[Vectors, Gradients]:
        """As training.heads.features.Features.backward."""
        first_Bd, second_Bd = trace
        by_first_Bd, by_second_Bd, by_distance_Bd, by_product_Bd = by_features_BF.chunk(4, dim=1)
        by_difference_Bd = (first_Bd - second_Bd).sign_() * by_distance_Bd
        return (
            by_first_Bd + by_difference_Bd + second_Bd * by_product_Bd,
            by_second_Bd - by_difference_Bd + first_Bd * by_product_Bd,
        ), {}
