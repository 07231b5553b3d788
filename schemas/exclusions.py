"""What may not stand against a query: lists of pool rows, and the one question that is asked of them millions of times.

Shapes: P pairs, n draws for each.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np


class Exclusions(Protocol):
    """Lists of excluded rows. A pair is known by the list that holds for it."""

    @property
    def num_rows(self) -> int:
        """How many rows there are, excluded or not."""
        ...

    def num_allowed(self, of_pair: np.ndarray) -> np.ndarray:
        """How many rows are left for each pair, int64 [P]."""
        ...

    def holds(self, of_pair: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Which of the rows [P, n] are excluded for their pair, bool [P, n]."""
        ...

    def allowed(self, of_pair: int) -> np.ndarray:
        """The rows that are left for one pair, ascending, int64."""
        ...


@dataclass(frozen=True, slots=True)
class ListedExclusions:
    """Lists end to end, as Arrow holds them: list i is rows[offsets[i]:offsets[i + 1]], ascending, without repeats."""

    offsets: np.ndarray  # int64 [lists + 1]
    rows: np.ndarray  # integers
    num_rows: int

    def num_allowed(self, of_pair: np.ndarray) -> np.ndarray:
        return self.num_rows - (self.offsets[of_pair + 1] - self.offsets[of_pair])

    def holds(self, of_pair: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """A binary search in all lists at once, by steps that halve: a few places of each list are read."""
        if not rows.size or not len(self.rows):
            return np.zeros(rows.shape, bool)
        begin, end = self.offsets[of_pair], self.offsets[of_pair + 1][:, None]
        first = np.repeat(begin[:, None], rows.shape[1], axis=1)  # all rows of the list before it are below
        for power in reversed(range(int((end[:, 0] - begin).max()).bit_length())):
            further = first + (1 << power)
            below = self.rows.take(further - 1, mode="clip") < rows
            below &= further <= end
            np.copyto(first, further, where=below)
        return (first < end) & (self.rows.take(first, mode="clip") == rows)

    def allowed(self, of_pair: int) -> np.ndarray:
        free = np.ones(self.num_rows, bool)
        free[self.rows[self.offsets[of_pair] : self.offsets[of_pair + 1]]] = False
        return np.flatnonzero(free)
