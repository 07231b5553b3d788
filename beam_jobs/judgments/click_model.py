"""The position-based click model, PBM: P(click | query q, document d, rank r) = theta_r * alpha_qd.

theta_r, the propensity, is the probability that a person looks at rank r; alpha_qd, the attractiveness, the probability
that a person who looks clicks. Richardson et al. (2007, "Predicting clicks"), Joachims et al. (2017, "Unbiased
learning-to-rank with biased feedback", section 3.1). Propensities are estimated by the EM of Wang et al. (2018,
"Position bias estimation for unbiased learning to rank in personal search", section 4.1) without its regression: one
free alpha for each pair of query and document. Only ratios of propensities are identifiable, so the largest is 1.
"""

from dataclasses import dataclass

import numpy as np

CHUNK_PAIRS = 4096
TINY = 1e-300
ALMOST_ONE = 1 - 1e-12


@dataclass(frozen=True, kw_only=True, slots=True)
class Cells:
    """Impressions and clicks at each rank of each pair of query and document: arrays over C cells.

    `pair` counts from 0 to P - 1, `rank` from 0 to R - 1 (indices into a list of ranks); each pair and rank occurs
    once, and no cell has more clicks than impressions.
    """

    pair: np.ndarray  # int64 (C)
    rank: np.ndarray  # int64 (C)
    impressions: np.ndarray  # float64 (C)
    clicks: np.ndarray  # float64 (C)

    def where(self, of_pair: np.ndarray) -> "Cells":
        """The cells of some pairs, bool (P), renumbered."""
        kept = of_pair[self.pair]
        number = np.cumsum(of_pair) - 1
        return Cells(
            pair=number[self.pair[kept]],
            rank=self.rank[kept],
            impressions=self.impressions[kept],
            clicks=self.clicks[kept],
        )

    def sum_of_pair(self, values: np.ndarray) -> np.ndarray:
        """Cell values summed by pair: float64 (P)."""
        return np.bincount(self.pair, values, self.num_pairs)

    @property
    def num_pairs(self) -> int:
        return int(self.pair.max()) + 1 if len(self.pair) else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    propensities: np.ndarray  # float64 (R), the largest 1
    attractiveness: np.ndarray  # float64 (P)
    log_likelihoods: tuple[float, ...]  # before each step; it never falls
    converged: bool


def informative(cells: Cells) -> np.ndarray:
    """Which pairs distinguish ranks, bool (P): those with a click and with impressions at two ranks or more.

    The others do not change the maximum of the likelihood over propensities: with one rank, alpha follows any theta;
    without a click, alpha is 0.
    """
    return (cells.sum_of_pair(cells.clicks) > 0) & (np.bincount(cells.pair, minlength=cells.num_pairs) > 1)


def fit_propensities(
    cells: Cells, num_ranks: int, *, tolerance: float = 1e-6, max_iterations: int = 2_000, start: float = 0.5
) -> Fit:
    """The maximum-likelihood propensities and attractivenesses of some cells, by EM.

    It ends when no propensity changes by more than `tolerance`. A rank without cells keeps the propensity `start`.
    """
    shown = np.bincount(cells.rank, cells.impressions, num_ranks)
    clicked = np.bincount(cells.rank, cells.clicks, num_ranks)
    shown_of_pair, clicked_of_pair = cells.sum_of_pair(cells.impressions), cells.sum_of_pair(cells.clicks)
    occurs = shown > 0
    theta = np.full(num_ranks, start)
    alpha = np.clip(clicked_of_pair / np.maximum(shown_of_pair, 1), 1e-4, ALMOST_ONE)
    likelihoods: list[float] = []
    converged = not len(cells.pair)
    while len(likelihoods) < max_iterations and not converged:
        at_cell, of_cell = theta[cells.rank], alpha[cells.pair]
        likelihoods.append(_log_likelihood(cells, at_cell * of_cell))
        # For each impression without a click: 1 / P(no click), for the two posteriors of Wang et al., equation 1.
        unclicked = (cells.impressions - cells.clicks) / (1 - np.minimum(at_cell * of_cell, ALMOST_ONE))
        examined = clicked + np.bincount(cells.rank, unclicked * at_cell * (1 - of_cell), num_ranks)
        attracted = clicked_of_pair + cells.sum_of_pair(unclicked * (1 - at_cell) * of_cell)
        moved = np.where(occurs, examined / np.maximum(shown, 1), start)
        # Dividing all theta and multiplying all alpha by one number changes no probability.
        scale = moved[occurs].max()
        moved[occurs] /= scale
        alpha = np.clip(attracted / np.maximum(shown_of_pair, 1) * scale, 0, ALMOST_ONE)
        converged = bool(np.abs(moved - theta)[occurs].max() < tolerance)
        theta = moved
    return Fit(propensities=theta, attractiveness=alpha, log_likelihoods=tuple(likelihoods), converged=converged)


def relative_errors(cells: Cells, propensities: np.ndarray) -> tuple[np.ndarray, int]:
    """(standard error of each log propensity relative to one rank, that rank), infinite where no pairs connect the two.

    The rank is the one with the most clicks among informative cells. Given the total clicks of a pair, they are
    distributed over its ranks in proportion to impressions * theta (exactly so if clicks are rare): the information
    about log theta is the Laplacian of a graph whose vertices are ranks and whose edges are pairs shown at both.
    """
    num_ranks = len(propensities)
    clicks = np.bincount(cells.rank, cells.clicks, num_ranks)
    reference = int(clicks.argmax())
    information = np.zeros((num_ranks, num_ranks))
    exposure = cells.impressions * propensities[cells.rank]
    share = exposure / np.maximum(cells.sum_of_pair(exposure), TINY)[cells.pair]
    clicks_of_pair = cells.sum_of_pair(cells.clicks)
    order = np.argsort(cells.pair, kind="stable")
    pair, rank, share = cells.pair[order], cells.rank[order], share[order]
    for first in range(0, cells.num_pairs, CHUNK_PAIRS):
        begin, end = np.searchsorted(pair, [first, first + CHUNK_PAIRS])
        dense = np.zeros((min(CHUNK_PAIRS, cells.num_pairs - first), num_ranks))
        dense[pair[begin:end] - first, rank[begin:end]] = share[begin:end]
        weighted = dense * clicks_of_pair[first : first + len(dense), None]
        information += np.diag(weighted.sum(axis=0)) - dense.T @ weighted
    errors = np.full(num_ranks, np.inf)
    errors[reference] = 0
    linked = _linked(information, reference)
    free_ranks = linked[linked != reference]
    if len(free_ranks):
        variances = np.diag(np.linalg.inv(information[np.ix_(free_ranks, free_ranks)]))
        errors[free_ranks] = np.sqrt(np.maximum(variances, 0))
    return errors, reference


def most_probable_attractiveness(
    cells: Cells, propensities: np.ndarray, clicked: np.ndarray, unclicked: np.ndarray
) -> np.ndarray:
    """The most probable alpha of each pair given theta and a prior, float64 (P).

    The prior says as much as `clicked` and `unclicked` examined impressions, float64 (P), both above 0: it is
    Beta(clicked + 1, unclicked + 1). The maximum is where
    clicks + clicked = alpha * (sum over ranks of (impressions - clicks) * theta / (1 - theta * alpha))
    + unclicked * alpha / (1 - alpha).
    The right side grows with alpha and is convex, so that Newton's steps from above go down to the root and never past.
    """
    theta = propensities[cells.rank]
    missed = (cells.impressions - cells.clicks) * theta
    numerators = cells.sum_of_pair(cells.clicks) + clicked
    # The right side is at least alpha * (sum of missed + unclicked) and at least unclicked * alpha / (1 - alpha).
    alpha = np.minimum(numerators / (cells.sum_of_pair(missed) + unclicked), numerators / (numerators + unclicked))
    for _ in range(100):
        left = 1 - theta * alpha[cells.pair]
        slope = cells.sum_of_pair(missed / left**2) + unclicked / (1 - alpha) ** 2
        value = alpha * cells.sum_of_pair(missed / left) + unclicked * alpha / (1 - alpha)
        step = (value - numerators) / slope
        alpha = np.clip(alpha - step, TINY, ALMOST_ONE)
        if np.abs(step).max(initial=0) < 1e-12:
            break
    return alpha


def _log_likelihood(cells: Cells, click: np.ndarray) -> float:
    missed = cells.impressions - cells.clicks
    seen = np.where(cells.clicks > 0, cells.clicks * np.log(np.maximum(click, TINY)), 0)
    return float((seen + missed * np.log1p(-np.minimum(click, ALMOST_ONE))).sum())


def _linked(information: np.ndarray, start: int) -> np.ndarray:
    """The ranks that a path of pairs connects to `start`, including itself, ascending."""
    reached = np.zeros(len(information), bool)
    reached[start] = True
    while True:
        further = reached | (information[reached] < 0).any(axis=0)
        if (further == reached).all():
            return np.flatnonzero(reached)
        reached = further


# The expectation for a document before its own clicks are counted, learned from the log (empirical Bayes).
#
# The expected log-odds of the attractiveness of document d for query q are level(r) + shift_q: `level` is the
# attractiveness of documents with the same mean rank in the log; `shift_q` is how much more or less the documents of
# the query were clicked. Both are the most probable under a normal prior (docs/results.md). The expectation counts as
# much as `strength` examined impressions; the strength is the one under which the log is most probable. So a document
# with many impressions speaks for itself, and one with few stays where the log's own order and its query put it.


STRENGTHS = (1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0, 30.0, 50.0, 80.0)
LEAST, MOST = 1e-4, 0.95  # clicks could not move an expectation of exactly 0 or 1
PRECISION = 1.0  # of the normal prior of levels (around the log's average) and of shifts (around 0), in log-odds
MOST_STEP = 1.0  # of one Newton step, in log-odds: far from the root the slope is no guide
ROUNDS = 40
MAX_PAIRS = 40_000  # for the strength, a single number
_EDGES = np.concatenate([[0.0], np.geomspace(1e-4, 0.1, 24), np.linspace(0.1, 1, 37)[1:]])
_NODES, _WIDTHS = (_EDGES[1:] + _EDGES[:-1]) / 2, np.diff(_EDGES)


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownPairs:
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

    def expected(self, pairs: ShownPairs) -> np.ndarray:
        """The expected attractiveness of each pair, float64 (P), from all pairs of their queries."""
        level = np.interp(pairs.mean_rank, self.ranks, self.levels)
        return np.clip(odds_to_share(level + query_shifts(pairs, level)[pairs.query]), LEAST, MOST)


def add_up(cells: Cells, query_of_pair: np.ndarray, ranks: np.ndarray, propensities: np.ndarray) -> ShownPairs:
    """The sums of each pair; `ranks` and `propensities` are those that `cells.rank` indexes."""
    impressions = cells.sum_of_pair(cells.impressions)
    return ShownPairs(
        query=query_of_pair,
        clicks=cells.sum_of_pair(cells.clicks),
        examined=cells.sum_of_pair(cells.impressions * propensities[cells.rank]),
        mean_rank=cells.sum_of_pair(cells.impressions * ranks[cells.rank]) / np.maximum(impressions, TINY),
    )


def query_shifts(
    pairs: ShownPairs, level: np.ndarray, start: np.ndarray | None = None, rounds: int = ROUNDS
) -> np.ndarray:
    """By how much each query's documents were clicked more than `level`, float64 (P), in log-odds: float64 (Q).

    It solves clicks - sum of examined * share(level + shift) = PRECISION * shift by Newton's method.
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


def fit_levels(pairs: ShownPairs, ranks: np.ndarray, *, by_rank: bool) -> np.ndarray:
    """How attractive documents shown around each rank are, in log-odds, without the queries' shifts: float64 (R).

    Without `by_rank` there is one level for all ranks.
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
    """The strength, of STRENGTHS, under which the clicks are most probable if alpha is Beta with that expectation.

    `expected`: float64 (P). Of very many pairs only the first are used. The integral over alpha is a sum over some
    sixty values.
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
