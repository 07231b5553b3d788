"""A gradient beside central differences of the loss, in float64."""

from collections.abc import Callable

import pytest
import torch

# Of a third derivative its square is left in, some 1e-10; of the loss's rounding, which depends on the processor, some
# 1e-16 over it.
STEP = 1e-5


def require_gradient(loss: Callable[[], float], vectors: torch.Tensor, gradient: torch.Tensor) -> None:
    """Nothing, where `gradient` is that of `loss()` by every entry of `vectors` [N, d], which is moved in place."""
    for entry in range(vectors.numel()):
        at = divmod(entry, vectors.shape[1])
        middle = vectors[at].item()
        ends = []
        for moved in (middle + STEP, middle - STEP):
            vectors[at] = moved
            ends.append(loss())
        vectors[at] = middle
        assert gradient[at].item() == pytest.approx((ends[0] - ends[1]) / (2 * STEP), rel=1e-6, abs=1e-8)
