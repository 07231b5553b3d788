"""Keywords by counting cells (section V-A, Tables I, II, IX, X).

For each direction, the `top_cells` cells with the largest |y| of the final vector take part (ties: the lower number). A
cell declares a word if |y(t) - y(t-1)| is at least `threshold` times that cell's range over the text: its largest y
minus its smallest, including the zero that it starts from (without it, each cell would declare the second word of any
text of two words). A cell that does not move declares none. The first word in reading order has no count in that
direction. A word is a keyword if more than `share` of the cells declare it, in every direction in which it has a count.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from clicktower.schemas.section import Count, Share, section
from clicktower.schemas.text_contract import words
from clicktower.training.analysis.traces import Direction, Trace, has_gates, trace
from clicktower.training.model.embedding import AnyEncoder, Side, members_of

SHARE = 0.4


@section
class CountingRule:
    """The counting of keywords: the paper's rule, except for the threshold, which the paper does not give.

    Args:
        top_cells: The cells of each direction that count, those with the largest final activation.
        threshold: The share of its range by which a cell must move at a word to declare it.
        share: The share of the cells that must declare a keyword.
    """

    top_cells: Count = 10
    threshold: Annotated[float, Field(gt=0, le=1)] = 0.2
    share: Share = SHARE

    @property
    def sentences(self) -> dict[str, str]:
        """The rule as a person reads it."""
        return {
            "cells": f"of each direction the {self.top_cells} cells with the largest |y| of the final vector are asked",
            "declared": "a cell declares a word at which its y moves by at least"
            f" {self.threshold:.0%} of its range over the text, its start at 0 among it",
            "first word": "the first word in reading order has no count in that direction",
            "keyword": f"a word is a keyword if more than {self.share:.0%} of the cells declare it, in every direction"
            " in which it has a count",
        }

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "sentences": self.sentences}


@dataclass(frozen=True, kw_only=True, slots=True)
class CountedKeywords:
    """What the most active cells of one direction declare. Rows are words in text order."""

    direction: Direction
    cells: tuple[int, ...]  # most active first
    declared: np.ndarray  # bool [words, cells]
    first: int  # the word that is read first, which has no count

    @property
    def counts(self) -> list[int | None]:
        """How many of the cells declare each word; None without a count."""
        return [None if at == self.first else int(n) for at, n in enumerate(self.declared.sum(axis=1))]


@dataclass(frozen=True, kw_only=True, slots=True)
class Keywords:
    """The counts of each direction, and the numbers of the words, from 0, that are keywords by them."""

    counted: tuple[CountedKeywords, ...]
    keywords: tuple[int, ...]

    @property
    def most(self) -> list[int]:
        """The largest count of each word in any direction; 0 without one."""
        return [max(count or 0 for count in counts) for counts in zip(*(c.counts for c in self.counted), strict=True)]

    def to_json(self) -> dict[str, Any]:
        """Plain values: cells, counts and keywords."""
        return {
            "directions": [
                {"direction": direction.direction, "cells": list(direction.cells), "counts": direction.counts}
                for direction in self.counted
            ],
            "keywords": list(self.keywords),
        }


def keywords(traces: Sequence[Trace], rule: CountingRule) -> Keywords:
    """The keywords of a text, from its traces."""
    counted = tuple(_count(trace, rule) for trace in traces)
    num_cells = [len(direction.cells) for direction in counted]
    return Keywords(
        counted=counted, keywords=by_counts([direction.counts for direction in counted], num_cells, rule.share)
    )


def by_counts(
    counts: Sequence[Sequence[int | None]], num_cells: Sequence[int], share: float = SHARE
) -> tuple[int, ...]:
    """The words that are keywords, from their counts and the number of participating cells in each direction."""
    numbers = []
    for at, of_word in enumerate(zip(*counts, strict=True)):
        declares = [
            count > share * num_of_direction
            for count, num_of_direction in zip(of_word, num_cells, strict=True)
            if count is not None
        ]
        if declares and all(declares):
            numbers.append(at)
    return tuple(numbers)


def most_active(trace: Trace, num_cells: int) -> tuple[int, ...]:
    """The cells with the largest |y| of the final vector, largest first; fewer where there are fewer."""
    return tuple(np.argsort(-np.abs(trace.vector), kind="stable")[:num_cells].tolist())


def _count(trace: Trace, rule: CountingRule) -> CountedKeywords:
    cells = most_active(trace, rule.top_cells)
    y = trace.states["y"][trace.reading][:, cells].astype(np.float64)
    span = np.maximum(y.max(axis=0), 0) - np.minimum(y.min(axis=0), 0)
    moved = np.abs(np.diff(y, axis=0)) >= rule.threshold * span
    declared = np.concatenate([np.zeros((1, len(cells)), bool), moved & (span > 0)])
    first = 0 if trace.direction == "left to right" else len(y) - 1
    return CountedKeywords(direction=trace.direction, cells=cells, declared=declared[trace.reading], first=first)


MOST_TRACED = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class GateKeywords:
    """For each word of a text the share of the most active cells that move at it, and the numbers of the keywords.

    In an ensemble the recurrent members decide: a word is a keyword if it is one for at least half of them. A text of
    more than MOST_TRACED words is not traced.
    """

    moved: tuple[float, ...]
    keywords: tuple[int, ...]


def gate_keywords(encoder: AnyEncoder, text: str, side: Side) -> GateKeywords | None:
    """None for towers without gates or state, and for a text that is too long. Raises UsageError without a word."""
    members = members_of(encoder)
    recurrent = [member for member in members if has_gates(member)]
    if not recurrent or len(words(text)) > MOST_TRACED:
        return None
    moved, declared = [], []
    for member in recurrent:
        counted = keywords(trace(member, text, side).traces, CountingRule())
        moved.append([most / len(counted.counted[0].cells) for most in counted.most])
        declared.append([number in counted.keywords for number in range(len(counted.most))])
    least = min(map(len, moved))  # models may read different numbers of words
    share = np.mean([row[:least] for row in moved], axis=0)
    votes = np.mean([row[:least] for row in declared], axis=0)
    return GateKeywords(moved=tuple(share.tolist()), keywords=tuple(np.flatnonzero(votes >= 0.5).tolist()))
