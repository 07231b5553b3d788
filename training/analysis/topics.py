"""Which words which cells stand for (Table III): keywords found by the most active cells, collected over many queries.

Of each query the 5 cells with the largest |y| of the final vector take part; a cell takes a keyword of the query
(keywords) if it declares that word itself. A word that a cell took from one query only is counted but
not named: it says nothing about the cell, and might tell who typed it.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from training.analysis.keywords import Keywords, most_active
from training.analysis.traces import Direction, Trace, TracedText

CELLS = 5
LEAST_QUERIES = 2  # that a word must be taken from by a cell to be named


@dataclass(kw_only=True, slots=True)
class Topics:
    """The words of each cell, and how often each word was a keyword of a query at all."""

    cells: dict[tuple[Direction, int], Counter[str]] = field(default_factory=dict)
    keywords: Counter[str] = field(default_factory=Counter)
    num_queries: int = 0

    def add(self, query: TracedText, found: Keywords) -> None:
        """Collect one more query. A word that is twice in it counts once."""
        self.num_queries += 1
        self.keywords.update({query.words[at] for at in found.keywords})
        for one in found.counted:
            for column, cell in enumerate(one.cells[:CELLS]):
                taken = {query.words[at] for at in found.keywords if one.declared[at, column]}
                if taken:
                    self.cells.setdefault((one.direction, cell), Counter()).update(taken)


def as_json(found: Topics, *, num_cells: int = 10, num_words: int = 12) -> dict[str, Any]:
    """The cells that took keywords of the most queries, each with its most frequent words.

    Of each word {"word", "queries": in how many the cell took it, "of": in how many it was a keyword}.
    """
    busiest = sorted(found.cells.items(), key=lambda item: (-item[1].total(), item[0]))[:num_cells]
    return {
        "queries": found.num_queries,
        "cells_per_query": CELLS,
        "least_queries": LEAST_QUERIES,
        "cells_with_words": len(found.cells),
        "cells": [
            {
                "direction": direction,
                "cell": cell,
                "keywords": words.total(),
                "distinct": len(words),
                "words": [
                    {"word": word, "queries": count, "of": found.keywords[word]}
                    for word, count in sorted(words.items(), key=lambda item: (-item[1], item[0]))[:num_words]
                    if count >= LEAST_QUERIES
                ],
            }
            for (direction, cell), words in busiest
        ],
    }


# How the most active cells change from word to word (Fig. 6, 11, 12).


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
