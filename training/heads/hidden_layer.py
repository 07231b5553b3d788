"""What a hidden layer is before its biases and its ReLU: a linear map of the features.

Shapes as in training.heads.head.
"""

from typing import Protocol

import torch

from training.heads.head import Gradients
from training.towers.tower import Parts, Shapes


class HiddenLayer(Protocol):
    """The second half of training.heads.classifier.Classifier."""

    @property
    def units(self) -> int:
        """H."""

    @property
    def parts(self) -> Shapes:
        """The weights."""

    def forward(self, features_BF: torch.Tensor, parts: Parts) -> torch.Tensor:
        """What arrives at each hidden unit, [B, H], in a tensor of its own."""

    def backward(
        self, features_BF: torch.Tensor, by_arrived_BH: torch.Tensor, parts: Parts
    ) -> tuple[torch.Tensor, Gradients]:
        """Gradients (of the features [B, F], of the weights), given that of what arrives."""
