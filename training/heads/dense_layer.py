"""A hidden layer each of whose units sees every feature.

Shapes as in training.heads.head.
"""

from dataclasses import dataclass

import torch

from training.heads.head import Gradients
from training.towers.tower import Parts, Shapes


@dataclass(frozen=True, slots=True)
class DenseLayer:
    num_features: int
    units: int

    @property
    def parts(self) -> Shapes:
        return (("head.W_1", (self.num_features, self.units)),)

    def forward(self, features_BF: torch.Tensor, parts: Parts) -> torch.Tensor:
        """As training.heads.hidden_layer.HiddenLayer.forward."""
        return features_BF @ parts["head.W_1"]

    def backward(
        self, features_BF: torch.Tensor, by_arrived_BH: torch.Tensor, parts: Parts
    ) -> tuple[torch.Tensor, Gradients]:
        """As training.heads.hidden_layer.HiddenLayer.backward."""
        return by_arrived_BH @ parts["head.W_1"].t(), {"head.W_1": features_BF.t() @ by_arrived_BH}
