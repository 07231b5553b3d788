"""Dropout: in training, numbers are left out at random and the others scaled up, so that evaluation changes nothing.

    x' = x / (1 - p) if x is kept, with probability 1 - p, else 0        ("inverted" dropout)

Shapes as in training.heads.head.
"""

import numpy as np
import torch

from training.heads.head import Head, Masks


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
