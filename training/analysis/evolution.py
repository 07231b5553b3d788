"""How the most active cells change from word to word (Fig. 6, 11, 12)."""

from dataclasses import dataclass

import numpy as np

from training.analysis.keywords import most_active
from training.analysis.traces import Direction, Trace


@dataclass(frozen=True, kw_only=True, slots=True)
class Evolution:
    """y of some cells after each word. Columns are words in reading order."""

    direction: Direction
    cells: tuple[int, ...]  # most active first
    values: np.ndarray  # float32 [cells, words]


def evolution(trace: Trace, num_cells: int = 10) -> Evolution:
    """y of the cells with the largest |y| of the final vector, as the text is read."""
    cells = most_active(trace, num_cells)
    return Evolution(direction=trace.direction, cells=cells, values=trace.states["y"][trace.reading][:, cells].T)
