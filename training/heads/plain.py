"""Features of a labelled text: its embedding as it is, M of Lin et al. or a vector."""

from dataclasses import dataclass

import torch

from training.heads.head import Gradients, Vectors
from training.towers.tower import Parts, Shapes


@dataclass(frozen=True, slots=True)
class Plain:
    rows: int
    row_width: int

    @property
    def parts(self) -> Shapes:
        return ()

    def forward(self, vectors: Vectors, parts: Parts) -> tuple[torch.Tensor, None]:
        """As training.heads.features.Features.forward; the features are the vectors themselves."""
        (vector_Bd,) = vectors
        return vector_Bd, None

    def backward(self, trace: None, by_features_BF: torch.Tensor, parts: Parts) -> tuple[Vectors, Gradients]:
        """As training.heads.features.Features.backward."""
        return (by_features_BF,), {}
