"""A head's parameters before training.

Weights are uniform in ±√(6 / (inputs + outputs)) (Glorot and Bengio 2010, eq. 16), inputs and outputs being those of
one matrix where a part has several; biases are 0.
"""

import math

import numpy as np
import torch

from training.heads.head import Head


def initial_head(head: Head, generator: np.random.Generator) -> dict[str, torch.Tensor]:
    """Every part, float64, a function of the generator's state alone: drawn part by part in their order, row by row."""
    return {name: _initial(shape, generator) for name, shape in head.parts}


def _initial(shape: tuple[int, ...], generator: np.random.Generator) -> torch.Tensor:
    if len(shape) == 1:
        return torch.zeros(shape, dtype=torch.float64)
    limit = math.sqrt(6 / (shape[-2] + shape[-1]))
    return torch.from_numpy((2 * generator.random(shape) - 1) * limit)
