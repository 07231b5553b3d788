"""The head: features of the embeddings, one hidden layer of ReLU units, a softmax layer.

    x = features        h = max(0, L(x) + b_1)        logits = h W_2 + b_2

L is x W_1, or the pruned map (training.heads.pruned_layer). In training, x and h go through dropout
(training.heads.dropout). max(0, x) has the derivative 0 at 0.

Shapes as in training.heads.head.
"""

from dataclasses import dataclass
from typing import Any

import torch

from training.heads.dropout import dropped
from training.heads.features import Features
from training.heads.head import Gradients, Masks, Vectors
from training.heads.hidden_layer import HiddenLayer
from training.towers.tower import Parts, Shapes


@dataclass(frozen=True, slots=True)
class ClassifierTrace:
    of_features: Any
    features_BF: torch.Tensor  # after dropout
    hidden_BH: torch.Tensor  # after dropout
    masks: Masks | None


@dataclass(frozen=True, slots=True)
class Classifier:
    features: Features
    layer: HiddenLayer
    classes: int
    dropout: float

    @property
    def parts(self) -> Shapes:
        units = self.layer.units
        above: Shapes = (
            ("head.b_1", (units,)),
            ("head.W_2", (units, self.classes)),
            ("head.b_2", (self.classes,)),
        )
        return self.features.parts + self.layer.parts + above

    @property
    def droppable(self) -> tuple[int, int]:
        return self.features.rows * self.features.row_width, self.layer.units

    def forward(self, vectors: Vectors, parts: Parts, masks: Masks | None) -> tuple[torch.Tensor, ClassifierTrace]:
        """As training.heads.head.Head.forward."""
        features_BF, of_features = self.features.forward(vectors, parts)
        if masks is not None:
            features_BF = dropped(features_BF, masks.features, self.dropout)
        hidden_BH = self.layer.forward(features_BF, parts).add_(parts["head.b_1"]).relu_()
        if masks is not None:
            hidden_BH = dropped(hidden_BH, masks.hidden, self.dropout)
        logits_BC = torch.addmm(parts["head.b_2"], hidden_BH, parts["head.W_2"])
        return logits_BC, ClassifierTrace(of_features, features_BF, hidden_BH, masks)

    def backward(self, trace: ClassifierTrace, by_logits_BC: torch.Tensor, parts: Parts) -> tuple[Vectors, Gradients]:
        """As training.heads.head.Head.backward."""
        by_arrived_BH = by_logits_BC @ parts["head.W_2"].t()
        if trace.masks is not None:
            by_arrived_BH = dropped(by_arrived_BH, trace.masks.hidden, self.dropout)
        by_arrived_BH *= trace.hidden_BH > 0
        by_features_BF, by_layer = self.layer.backward(trace.features_BF, by_arrived_BH, parts)
        if trace.masks is not None:
            by_features_BF = dropped(by_features_BF, trace.masks.features, self.dropout)
        by_vectors, by_features_parts = self.features.backward(trace.of_features, by_features_BF, parts)
        above = {
            "head.b_1": by_arrived_BH.sum(0),
            "head.W_2": trace.hidden_BH.t() @ by_logits_BC,
            "head.b_2": by_logits_BC.sum(0),
        }
        return by_vectors, {**by_features_parts, **by_layer, **above}
