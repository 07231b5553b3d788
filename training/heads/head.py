"""What every head is: the embeddings of a labelled text, or of both texts of a labelled pair, become logits of classes.

Shapes: B labelled texts or pairs, d dimensions of an embedding, F features, H hidden units, C classes. An embedding may
be a matrix, its r rows of w numbers one after the other (self_attentive); of other towers r is 1. All
parts are stored as they multiply rows.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, get_args, get_type_hints

import numpy as np
import torch

from schemas.errors import UsageError
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


# What a head is made of, as one frozen value that needs no torch.


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadSettings:
    """Which features of the embeddings are classified, and how. Raises UsageError for a value that means nothing.

    plain: the embedding of a text itself (heads); w2, siamese, gated: of the two of a pair (the files of
    those names). Every kind has one hidden layer of ReLU units below the softmax layer.
    """

    kind: Literal["mlp", "pruned"] = "mlp"
    features: Literal["plain", "w2", "siamese", "gated"] = "plain"
    hidden: int = 0  # of mlp: hidden units
    row_units: int = 0  # of pruned: p, hidden units that see one row
    column_units: int = 0  # of pruned: q, hidden units that see one column
    factors: int = 0  # of gated: k, numbers of a row of F_h and F_p; 0: as many as an embedding's row has
    dropout: float = 0.0  # the probability with which a feature, and a hidden unit, is left out in training

    def __post_init__(self) -> None:
        for field, kind in get_type_hints(HeadSettings).items():
            if choices := get_args(kind):
                _require(field, getattr(self, field), f"one of {', '.join(choices)}", getattr(self, field) in choices)
        self._require_units("hidden", self.kind == "mlp")
        for field in ("row_units", "column_units"):
            self._require_units(field, self.kind == "pruned")
        gated = self.features == "gated"
        wanted = "at least 0" if gated else f"0 (features {self.features} have no factors)"
        _require("factors", self.factors, wanted, (self.factors >= 0) if gated else self.factors == 0)
        in_range = math.isfinite(self.dropout) and 0 <= self.dropout < 1
        _require("dropout", self.dropout, "at least 0 and below 1", in_range)

    def _require_units(self, field: str, has: bool) -> None:
        wanted = "at least 1" if has else f"0 (a head of kind {self.kind} has none)"
        units = getattr(self, field)
        _require(field, units, wanted, (units >= 1) if has else units == 0)


def _require(field: str, value: Any, wanted: str, holds: bool) -> None:
    if not holds:
        raise UsageError(
            asked=f"the head's {field} is {value!r}",
            found=f"it must be {wanted}",
            do=f"set {field} to a value of that kind",
        )
