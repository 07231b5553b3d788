"""A hidden layer each of whose units sees every feature.

Shapes as in head.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from training.heads.head import Gradients, Head, Masks
from training.towers.tower import Parts, Shapes


@dataclass(frozen=True, slots=True)
class DenseLayer:
    num_features: int
    units: int

    @property
    def parts(self) -> Shapes:
        return (("head.W_1", (self.num_features, self.units)),)

    def forward(self, features_BF: torch.Tensor, parts: Parts) -> torch.Tensor:
        """As layers.HiddenLayer.forward."""
        return features_BF @ parts["head.W_1"]

    def backward(
        self, features_BF: torch.Tensor, by_arrived_BH: torch.Tensor, parts: Parts
    ) -> tuple[torch.Tensor, Gradients]:
        """As layers.HiddenLayer.backward."""
        return by_arrived_BH @ parts["head.W_1"].t(), {"head.W_1": features_BF.t() @ by_arrived_BH}


# What a hidden layer is before its biases and its ReLU: a linear map of the features.
#
# Shapes as in head.


class HiddenLayer(Protocol):
    """The second half of heads.Classifier."""

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


# A hidden layer each of whose units sees one row or one column of M (Lin et al., arXiv:1703.03130, appendix A).
#
#     M^v   r groups of p units; group i sees row i of M alone
#     M^h   2u groups of q units; group j sees column j of M alone
#
# The softmax layer above sees them all: (r p + 2u q) C weights, without its biases 52,500 for Yelp (p = 150, q = 10),
# 63,750 for Age (25, 20) and 45,000 for SNLI (300, 10), as Table 4 prints them. M is a matrix of any features
# (head); for SNLI it is the gated encoder's F_r. The appendix calls M r by u; its numbers need 2u.
#
# The weights W_v have a matrix for each row, W_h one for each column; hidden units are those of M^v, group after group,
# then those of M^h. Shapes as in head, with r rows of w = 2u features each.


@dataclass(frozen=True, slots=True)
class PrunedLayer:
    rows: int
    row_width: int
    row_units: int  # p
    column_units: int  # q

    @property
    def units(self) -> int:
        return self.rows * self.row_units + self.row_width * self.column_units

    @property
    def parts(self) -> Shapes:
        return (
            ("head.W_v", (self.rows, self.row_width, self.row_units)),
            ("head.W_h", (self.row_width, self.rows, self.column_units)),
        )

    def forward(self, features_BF: torch.Tensor, parts: Parts) -> torch.Tensor:
        """As layers.HiddenLayer.forward."""
        features_Brw = features_BF.unflatten(1, (self.rows, -1))
        at_rows_Brp = torch.einsum("brw,rwp->brp", features_Brw, parts["head.W_v"])
        at_columns_Bwq = torch.einsum("brw,wrq->bwq", features_Brw, parts["head.W_h"])
        return torch.cat([at_rows_Brp.flatten(1), at_columns_Bwq.flatten(1)], dim=1)

    def backward(
        self, features_BF: torch.Tensor, by_arrived_BH: torch.Tensor, parts: Parts
    ) -> tuple[torch.Tensor, Gradients]:
        """As layers.HiddenLayer.backward."""
        features_Brw = features_BF.unflatten(1, (self.rows, -1))
        num_at_rows = self.rows * self.row_units
        by_rows_Brp = by_arrived_BH[:, :num_at_rows].unflatten(1, (self.rows, -1))
        by_columns_Bwq = by_arrived_BH[:, num_at_rows:].unflatten(1, (self.row_width, -1))
        by_features_Brw = torch.einsum("brp,rwp->brw", by_rows_Brp, parts["head.W_v"])
        by_features_Brw = by_features_Brw + torch.einsum("bwq,wrq->brw", by_columns_Bwq, parts["head.W_h"])
        return by_features_Brw.flatten(1), {
            "head.W_v": torch.einsum("brw,brp->rwp", features_Brw, by_rows_Brp),
            "head.W_h": torch.einsum("brw,bwq->wrq", features_Brw, by_columns_Bwq),
        }


# Dropout: in training, numbers are left out at random and the others scaled up, so that evaluation changes nothing.
#
#     x' = x / (1 - p) if x is kept, with probability 1 - p, else 0        ("inverted" dropout)
#
# Shapes as in head.


def draw_masks(head: Head, size: int, generator: np.random.Generator) -> Masks | None:
    """Masks on the CPU for `size` texts or pairs; None for a head without dropout, and nothing is drawn.

    A function of the generator's state alone: first the features' mask row by row, then the hidden units'.
    """
    if not head.dropout:
        return None
    num_features, num_hidden = head.droppable
    return Masks(_kept(head, size, num_features, generator), _kept(head, size, num_hidden, generator))


def dropped(values: torch.Tensor, kept: torch.Tensor, dropout: float) -> torch.Tensor:
    """The values, those that are not kept 0. Its own gradient: of what went in, given that of what came out."""
    return (values * kept).mul_(1 / (1 - dropout))


def _kept(head: Head, size: int, width: int, generator: np.random.Generator) -> torch.Tensor:
    # Steps of 2^-24 are fine enough for a probability, and float32 is drawn in half the time.
    return torch.from_numpy(generator.random((size, width), dtype=np.float32) >= head.dropout)


# Penalties that keep a head's weights small, with their gradients.
#
#     L1   c Σ |w|     c = 1e-5 of Deudon, "Learning semantic similarity in a continuous space" (1e-5 ||ψ||_1)
#     L2   c Σ w²      c = 1e-4 of Lin et al., arXiv:1703.03130
#
# over the weights, not the biases, as in both authors' programs. Both add it to the MEAN of a minibatch's losses: to a
# sum over B texts or pairs it is c B.


def l1_penalty(parts: Parts, coefficient: float) -> tuple[torch.Tensor, Gradients]:
    """(the penalty [], its gradient by each weight matrix); |w| has the derivative 0 at 0."""
    weights = head_weights(parts)
    value = coefficient * torch.stack([weight.abs().sum() for weight in weights.values()]).sum()
    return value, {name: coefficient * weight.sign() for name, weight in weights.items()}


def l2_penalty(parts: Parts, coefficient: float) -> tuple[torch.Tensor, Gradients]:
    """(the penalty [], its gradient by each weight matrix)."""
    weights = head_weights(parts)
    value = coefficient * torch.stack([weight.square().sum() for weight in weights.values()]).sum()
    return value, {name: 2 * coefficient * weight for name, weight in weights.items()}


def head_weights(parts: Parts) -> dict[str, torch.Tensor]:
    """A head's parts without its biases; a tower's among them are left out."""
    return {name: part for name, part in parts.items() if name.startswith("head.W_")}


# The loss of labelled texts and pairs: l = -log softmax(logits)_label, and its gradient.
#
# Shapes as in head.


def cross_entropy(logits_BC: torch.Tensor, labels_B: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(l of each text or pair [B], gradient of their SUM by the logits [B, C]); finite for any finite logits.

    `labels_B`: classes as integers from 0 to C - 1; on a CPU another one raises RuntimeError.
    """
    labels_B1 = labels_B.long()[:, None]
    logarithm_BC = torch.log_softmax(logits_BC, dim=1)
    losses_B = logarithm_BC.gather(1, labels_B1)[:, 0].neg()
    by_logits_BC = logarithm_BC.exp_()
    by_logits_BC.scatter_add_(1, labels_B1, by_logits_BC.new_full(labels_B1.shape, -1))
    return losses_B, by_logits_BC
