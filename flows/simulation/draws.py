"""Random numbers that are a function of a key and counters, so that any slice of a simulation can be drawn alone.

`bits(key, a, b)` mixes the counters one after the other into the key with SplitMix64's finaliser (Steele et al., 2014):
search 7,000,000 costs as much as search 0, no state is kept, and the order of drawing changes nothing.
"""

import hashlib
from collections.abc import Sequence

import numpy as np

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_TO_UNIT = 2.0**-53


def stream(seed: int, purpose: str) -> np.uint64:
    """The key of one purpose: numbers of different purposes have nothing to do with each other."""
    return np.uint64(int.from_bytes(hashlib.blake2b(f"{seed}:{purpose}".encode(), digest_size=8).digest(), "little"))


def bits(key: np.uint64, *counters: np.ndarray | int) -> np.ndarray:
    """64 random bits for each combination of counters (which broadcast), as uint64."""
    mixed = np.asarray(key)
    with np.errstate(over="ignore"):
        for counter in counters:
            mixed = _mix(mixed + (np.asarray(counter).astype(np.uint64) + np.uint64(1)) * _STEP)
    return mixed


def uniform(key: np.uint64, *counters: np.ndarray | int) -> np.ndarray:
    """A number in [0, 1) for each combination of counters, as float64."""
    return (bits(key, *counters) >> np.uint64(11)) * _TO_UNIT


def pick(weights: Sequence[float] | np.ndarray, unit: np.ndarray) -> np.ndarray:
    """The index that each number in [0, 1) falls on when [0, 1) is divided in proportion to the weights."""
    edges = np.cumsum(np.asarray(weights, float))
    return np.minimum(np.searchsorted(edges, unit * edges[-1], side="right"), len(edges) - 1)


def _mix(value: np.ndarray) -> np.ndarray:
    value = (value ^ (value >> np.uint64(30))) * _MIX_1
    value = (value ^ (value >> np.uint64(27))) * _MIX_2
    return value ^ (value >> np.uint64(31))
