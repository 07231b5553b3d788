"""Products and tanh, which a CPU computes faster elsewhere than where torch computes them.

Products of float32 matrices go to oneDNN, which torch brings along: torch.mm goes to MKL, which on AMD's processors
reaches half as much (Zen 5, 1,024 rows of 96 by 96 x 288: 277 against 570 microseconds). oneDNN makes code for each
shape that it meets, in a fraction of a millisecond, so it gets shapes that come again, and MKL the rows that are left
over. tanh goes to NumPy, which is as exact in a sixth of the time. Anything else, and a GPU, gets torch's own.
"""

from collections.abc import Callable
from typing import cast

import numpy as np
import torch

_ROWS = 64  # oneDNN multiplies a multiple of them
_DEPTH = 1024  # and adds up so many products at a time


def _linear() -> Callable[..., torch.Tensor] | None:
    """x, w -> x wᵀ by oneDNN, as torch's compiler calls it; None where torch was built without."""
    found = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None
    return cast(Callable[..., torch.Tensor], found.default) if found is not None else None


_LINEAR = _linear()


def add_matmul(to_MN: torch.Tensor, a_MK: torch.Tensor, b_KN: torch.Tensor) -> None:
    """Add a b to `to`."""
    whole = len(a_MK) // _ROWS * _ROWS if _served(a_MK) else 0
    if whole:
        to_MN[:whole].add_(_onednn(a_MK[:whole], b_KN))
    if whole < len(a_MK):
        to_MN[whole:].addmm_(a_MK[whole:], b_KN)


def add_inner_products(to_KN: torch.Tensor, a_MK: torch.Tensor, b_MN: torch.Tensor) -> None:
    """Add aᵀ b to `to`."""
    whole = len(a_MK) // _DEPTH * _DEPTH if _served(a_MK) else 0
    for start in range(0, whole, _DEPTH):
        to_KN.add_(_onednn(a_MK[start : start + _DEPTH].t(), b_MN[start : start + _DEPTH]))
    to_KN.addmm_(a_MK[whole:].t(), b_MN[whole:])


def tanh(values: torch.Tensor, out: torch.Tensor) -> None:
    """Write tanh of some values to `out`, which may be the values themselves."""
    if values.device.type == "cpu":
        np.tanh(values.numpy(), out=out.numpy())
    else:
        torch.tanh(values, out=out)


def _served(values: torch.Tensor) -> bool:
    return _LINEAR is not None and values.dtype == torch.float32 and values.device.type == "cpu"


def _onednn(a_MK: torch.Tensor, b_KN: torch.Tensor) -> torch.Tensor:
    assert _LINEAR is not None
    return _LINEAR(a_MK, b_KN.t(), None, "none", [], "")
