"""What every head is: the embeddings of a labelled text, or of both texts of a labelled pair, become logits of classes.

Shapes: B labelled texts or pairs, d dimensions of an embedding, F features, H hidden units, C classes. An embedding may
be a matrix, its r rows of w numbers one after the other (self_attentive); of other towers r is 1. All
parts are stored as they multiply rows.
"""

import math
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from training.towers.tower import Parts, Shapes

Vectors = tuple[torch.Tensor, ...]  # (x [B, d],) of labelled texts, (a [B, d], b [B, d]) of labelled pairs
Gradients = dict[str, torch.Tensor]  # by some parts


class Masks(NamedTuple):
    """What dropout keeps in one micro-batch (layers)."""

    features: torch.Tensor  # bool [B, F]
    hidden: torch.Tensor  # bool [B, H]


class Head(Protocol):
    """What training and evaluation need of a head."""

    @property
    def parts(self) -> Shapes:
        """All parameters. Each name begins with `head.`."""

    @property
    def dropout(self) -> float:
        """The probability with which a feature, and a hidden unit, is left out in training."""

    @property
    def droppable(self) -> tuple[int, int]:
        """(F, H): how many numbers of a text or pair that may happen to."""

    def forward(self, vectors: Vectors, parts: Parts, masks: Masks | None) -> tuple[torch.Tensor, Any]:
        """(the logits [B, C], what backward needs). `masks`: None where nothing is left out, as in evaluation."""

    def backward(self, trace: Any, by_logits_BC: torch.Tensor, parts: Parts) -> tuple[Vectors, Gradients]:
        """Gradients (of each of the vectors, of each part), given that of the logits."""


# What a head sees of embeddings: for each labelled text or pair a matrix of features, [rows, row width] laid out flat.
#
# Shapes as in head.


class Features(Protocol):
    """The first half of heads.Classifier."""

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


# A head's parameters before training.
#
# Weights are uniform in ±√(6 / (inputs + outputs)) (Glorot and Bengio 2010, eq. 16), inputs and outputs being those of
# one matrix where a part has several; biases are 0.


def initial_head(head: Head, generator: np.random.Generator) -> dict[str, torch.Tensor]:
    """Every part, float64, a function of the generator's state alone: drawn part by part in their order, row by row."""
    return {name: _initial(shape, generator) for name, shape in head.parts}


def _initial(shape: tuple[int, ...], generator: np.random.Generator) -> torch.Tensor:
    if len(shape) == 1:
        return torch.zeros(shape, dtype=torch.float64)
    limit = math.sqrt(6 / (shape[-2] + shape[-1]))
    return torch.from_numpy((2 * generator.random(shape) - 1) * limit)
