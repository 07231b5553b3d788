"""How far floating-point results may be from exact ones on any processor: so many roundings of what is added up.

Which order a sum is taken in, and which products are fused with it, is a processor's and a library's affair. In every
order a sum of n products is off by at most gamma(n) times the sum of their absolute values (N. J. Higham, Accuracy and
Stability of Numerical Algorithms, 2nd edition, SIAM 2002, section 3.1). Where sums are fed into functions and further
sums, as in a tower's vectors and gradients, it is a number of roundings of the largest entry.
"""

import numpy as np
import pytest

# Of the largest entry of vectors or gradients. The tests' towers were off by up to 22 (a gradient of more than 1,000
# texts) whether their processor had AVX-512, AVX2 or neither; most by up to 5, as is one tanh of the compiled path.
# 64 are 4e-6 in float32.
ROUNDINGS = 64


def unit_roundoff(dtype) -> float:
    """The largest relative error of one rounded operation: 2^-24 in float32, 2^-53 in float64."""
    return float(np.finfo(dtype).eps) / 2


def gamma(n: int, dtype="float32") -> float:
    """The largest relative error of n rounded operations, each of the other's result: n u / (1 - n u)."""
    rounded = n * unit_roundoff(dtype)
    return rounded / (1 - rounded)


def assert_sums_equal(found, expected, absolute, n: int) -> None:
    """Each of `found` is a sum of n products, in any order, whose absolute values add up to `absolute`.

    `expected`: the same sums in a wider type.
    """
    found, expected = np.asarray(found), np.asarray(expected, np.float64)
    _require(found, expected, gamma(n, found.dtype) * np.asarray(absolute, np.float64), f"gamma({n}) of the terms")


def assert_equal_but_for_rounding(found, expected, roundings: float = ROUNDINGS) -> None:
    """No entry is off by more than so many roundings, of the type of `found`, of the largest entry expected.

    An entry in which large numbers cancel out is as wrong as those beside it, whatever is left of it.
    """
    found, expected = np.asarray(found), np.asarray(expected, np.float64)
    bound = roundings * unit_roundoff(found.dtype) * np.abs(expected).max(initial=0)
    _require(found, expected, bound, f"{roundings} roundings of the largest")


def rounded(expected, roundings: float = ROUNDINGS, *, of: float = 1.0):
    """For ==: numbers of float32 made of terms whose absolute values add up to `of`; those of a cosine to 1 at most."""
    return pytest.approx(expected, rel=0, abs=roundings * unit_roundoff("float32") * float(of))


def _require(found: np.ndarray, expected: np.ndarray, bound, what: str) -> None:
    assert found.shape == expected.shape
    error = np.abs(found.astype(np.float64) - expected)
    wrong = ~(error <= bound)  # also where either is NaN
    assert not wrong.any(), f"{wrong.sum()} of {error.size} are off by more than {what}, by up to {error[wrong].max()}"
