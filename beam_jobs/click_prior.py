"""What is expected of a document before its own clicks are counted, learned from the log (empirical Bayes).

The log-odds of the attractiveness of document d for query q are expected to be level(r) + shift_q: `level`, by the mean
rank at which the log showed the document, how attractive documents there are; `shift_q`, how much more or less than
that the documents of the query were clicked. Both are the most probable under a normal prior (docs/judgments.md). The
expectation counts as much as `strength` examined impressions; the strength is the one under which the log is most
probable. A document shown often enough thus speaks for itself, and one seldom shown is put where the log's own order
and its query put it.
"""

from dataclasses import dataclass

import numpy as np

from beam_jobs.click_model import TINY, Cells

STRENGTHS = (1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0, 30.0, 50.0, 80.0)
LEAST, MOST = 1e-4, 0.95  # an expectation of exactly 0 or 1 could not be moved by clicks
PRECISION = 1.0  # of the normal prior of levels (around the log's average) and of shifts (around 0), in log-odds
MOST_STEP = 1.0  # of one Newton step, in log-odds: far from the root the slope is no guide
ROUNDS = 40
MAX_PAIRS = 40_000  # for the strength, a single number
_EDGES = np.concatenate([[0.0], np.geomspace(1e-4, 0.1, 24), np.linspace(0.1, 1, 37)[1:]])
_NODES, _WIDTHS = (_EDGES[1:] + _EDGES[:-1]) / 2, np.diff(_EDGES)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pairs:
    """Arrays over P pairs of query and document, added up over ranks."""

    query: np.ndarray  # int64 (P), from 0
    clicks: np.ndarray  # float64 (P)
    examined: np.ndarray  # float64 (P): sum of impressions * propensity
    mean_rank: np.ndarray  # float64 (P): over impressions, in numbers of ranks


@dataclass(frozen=True, kw_only=True, slots=True)
class Prior:
    ranks: tuple[int, ...]  # ascending
    levels: tuple[float, ...]  # at each of them, in log-odds
    strength: float  # in examined impressions

    def expected(self, pairs: Pairs) -> np.ndarray:
        """The expected attractiveness of each pair, float64 (P); all pairs of their queries are there."""
        level = np.interp(pairs.mean_rank, self.ranks, self.levels)
        return np.clip(odds_to_share(level + query_shifts(pairs, level)[pairs.query]), LEAST, MOST)


def add_up(cells: Cells, query_of_pair: np.ndarray, ranks: np.ndarray, propensities: np.ndarray) -> Pairs:
    """The sums of each pair; `ranks` and `propensities` are those that `cells.rank` counts through."""
    impressions = cells.sum_of_pair(cells.impressions)
    return Pairs(
        query=query_of_pair,
        clicks=cells.sum_of_pair(cells.clicks),
        examined=cells.sum_of_pair(cells.impressions * propensities[cells.rank]),
        mean_rank=cells.sum_of_pair(cells.impressions * ranks[cells.rank]) / np.maximum(impressions, TINY),
    )


def query_shifts(pairs: Pairs, level: np.ndarray, start: np.ndarray | None = None, rounds: int = ROUNDS) -> np.ndarray:
    """How much more than `level`, float64 (P), the documents of each query were clicked, in log-odds: float64 (Q).

    Where clicks - sum of examined * share(level + shift) = PRECISION * shift, by Newton's steps.
    """
    num_queries = int(pairs.query.max(initial=-1)) + 1
    shift = np.zeros(num_queries) if start is None else start
    for _ in range(rounds):
        share = odds_to_share(level + shift[pairs.query])
        missing = np.bincount(pairs.query, pairs.clicks - pairs.examined * share, num_queries) - PRECISION * shift
        slope = np.bincount(pairs.query, pairs.examined * share * (1 - share), num_queries) + PRECISION
        step = np.clip(missing / slope, -MOST_STEP, MOST_STEP)
        shift = shift + step
        if np.abs(step).max(initial=0) < 1e-9:
            break
    return shift


def fit_levels(pairs: Pairs, ranks: np.ndarray, *, by_rank: bool) -> np.ndarray:
    """How attractive documents shown around each rank are, in log-odds, queries' own shifts apart: float64 (R).

    Without `by_rank` one level for all ranks.
    """
    overall = np.clip(pairs.clicks.sum() / max(pairs.examined.sum(), TINY), LEAST, MOST)
    middles = (ranks[1:] + ranks[:-1]) / 2
    nearest = np.searchsorted(middles, pairs.mean_rank) if by_rank else np.zeros(len(pairs.clicks), np.int64)
    average = float(np.log(overall / (1 - overall)))
    levels, shift = np.full(len(ranks), average), None
    for _ in range(ROUNDS):
        level = np.interp(pairs.mean_rank, ranks, levels)
        shift = query_shifts(pairs, level, shift, rounds=1)
        share = odds_to_share(level + shift[pairs.query])
        missing = np.bincount(nearest, pairs.clicks - pairs.examined * share, len(ranks))
        slope = np.bincount(nearest, pairs.examined * share * (1 - share), len(ranks)) + PRECISION
        step = np.clip((missing - PRECISION * (levels - average)) / slope, -MOST_STEP, MOST_STEP)
        levels = levels + (step if by_rank else step[0])
    return levels


def odds_to_share(log_odds: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-log_odds))


def fit_strength(cells: Cells, propensities: np.ndarray, expected: np.ndarray) -> float:
    """The strength, of STRENGTHS, under which the clicks are most probable, alpha being Beta with that expectation.

    `expected`: float64 (P). Of very many pairs the first are taken. The integral over alpha is a sum over some sixty
    values.
    """
    taken = np.arange(len(expected)) < MAX_PAIRS
    cells, expected = cells.where(taken), expected[taken]
    if not len(expected):
        return STRENGTHS[0]
    click = np.minimum(propensities[:, None] * _NODES, 1 - 1e-12)  # (R, nodes)
    clicked, missed = np.log(np.maximum(click, TINY)), np.log1p(-click)
    likelihood = np.zeros((len(expected), len(_NODES)))
    for rank in range(len(propensities)):
        at = cells.rank == rank
        likelihood[cells.pair[at]] += (
            cells.clicks[at, None] * clicked[rank] + (cells.impressions - cells.clicks)[at, None] * missed[rank]
        )
    return max(STRENGTHS, key=lambda strength: _log_evidence(likelihood, expected, strength))


def _log_evidence(likelihood: np.ndarray, expected: np.ndarray, strength: float) -> float:
    first, second = strength * expected - 1, strength * (1 - expected) - 1
    prior = first[:, None] * np.log(_NODES) + second[:, None] * np.log1p(-_NODES) + np.log(_WIDTHS)
    return float((_log_sum(prior + likelihood) - _log_sum(prior)).sum())


def _log_sum(values: np.ndarray) -> np.ndarray:
    most = values.max(axis=1)
    return most + np.log(np.exp(values - most[:, None]).sum(axis=1))
