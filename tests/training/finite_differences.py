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


def by_autograd(
    value_of: Callable[..., torch.Tensor], *at: torch.Tensor, by_value: torch.Tensor | None = None
) -> tuple[torch.Tensor, ...]:
    """(what a function makes of some tensors, the gradient by each of them of its sum, with factors where given)."""
    leaves = [x.detach().clone().requires_grad_() for x in at]
    value = value_of(*leaves)
    return value.detach(), *torch.autograd.grad(
        value, leaves, torch.ones_like(value) if by_value is None else by_value, materialize_grads=True
    )
