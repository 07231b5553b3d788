"""What every head is: the embeddings of a labelled text, or of both texts of a labelled pair, become logits of classes.

Shapes: B labelled texts or pairs, d dimensions of an embedding, F features, H hidden units, C classes. An embedding may
be a matrix, its r rows of w numbers one after the other (training.towers.self_attentive); of other towers r is 1. All
parts are stored as they multiply rows.
"""

from typing import Any, NamedTuple, Protocol

import torch

from training.towers.tower import Parts, Shapes

Vectors = tuple[torch.Tensor, ...]  # (x [B, d],) of labelled texts, (a [B, d], b [B, d]) of labelled pairs
Gradients = dict[str, torch.Tensor]  # by some parts


class Masks(NamedTuple):
    """What dropout keeps in one micro-batch (training.heads.dropout)."""

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
