"""What a head sees of embeddings: for each labelled text or pair a matrix of features, [rows, row width] laid out flat.

Shapes as in training.heads.head.
"""

from typing import Any, Protocol

import torch

from training.heads.head import Gradients, Vectors
from training.towers.tower import Parts, Shapes


class Features(Protocol):
    """The first half of training.heads.classifier.Classifier."""

    @property
    def rows(self) -> int:
        """Of the matrix."""

    @property
    def row_width(self) -> int:
        """Numbers in one of its rows; F = rows x row_width."""

    @property
    def parts(self) -> Shapes:
        """Parameters of the features themselves."""

    def forward(self, vectors: Vectors, parts: Parts) -> tuple[torch.Tensor, Any]:
        """(the features [B, F], what backward needs)."""

    def backward(self, trace: Any, by_features_BF: torch.Tensor, parts: Parts) -> tuple[Vectors, Gradients]:
        """Gradients (of each of the vectors, of each part), given that of the features."""
