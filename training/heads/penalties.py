"""Penalties that keep a head's weights small, with their gradients.

    L1   c Σ |w|     c = 1e-5 of Deudon, "Learning semantic similarity in a continuous space" (1e-5 ||ψ||_1)
    L2   c Σ w²      c = 1e-4 of Lin et al., arXiv:1703.03130

over the weights, not the biases, as in both authors' programs. Both add it to the MEAN of a minibatch's losses: to a
sum over B texts or pairs it is c B.
"""

import torch

from training.heads.head import Gradients
from training.towers.tower import Parts


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
