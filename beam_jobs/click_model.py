"""The position-based click model, PBM: P(click | query q, document d, rank r) = theta_r * alpha_qd.

theta_r, the propensity, is how probably somebody looks at rank r; alpha_qd, the attractiveness, how probably somebody
who looks clicks. Richardson et al. (2007, "Predicting clicks"), Joachims et al. (2017, "Unbiased learning-to-rank with
biased feedback", section 3.1). Propensities are estimated by the EM of Wang et al. (2018, "Position bias estimation
for unbiased learning to rank in personal search", section 4.1) without its regression: one free alpha for each pair of
query and document. Only ratios of propensities can be known, so the largest is 1.
"""

from dataclasses import dataclass

import numpy as np

CHUNK_PAIRS = 4096
TINY = 1e-300
ALMOST_ONE = 1 - 1e-12


@dataclass(frozen=True, kw_only=True, slots=True)
class Cells:
    """What was shown and clicked at each rank of each pair of query and document: arrays over C cells.

    `pair` counts from 0 to P - 1, `rank` from 0 to R - 1 (places in a list of ranks); no pair is twice at one rank, and
    no cell has more clicks than impressions.
    """

    pair: np.ndarray  # int64 (C)
    rank: np.ndarray  # int64 (C)
    impressions: np.ndarray  # float64 (C)
    clicks: np.ndarray  # float64 (C)

    def where(self, of_pair: np.ndarray) -> "Cells":
        """The cells of some pairs, bool (P), numbered anew."""
        kept = of_pair[self.pair]
        number = np.cumsum(of_pair) - 1
        return Cells(
            pair=number[self.pair[kept]],
            rank=self.rank[kept],
            impressions=self.impressions[kept],
            clicks=self.clicks[kept],
        )

    def sum_of_pair(self, values: np.ndarray) -> np.ndarray:
        """Values of cells added up by pair: float64 (P)."""
        return np.bincount(self.pair, values, self.num_pairs)

    @property
    def num_pairs(self) -> int:
        return int(self.pair.max()) + 1 if len(self.pair) else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    propensities: np.ndarray  # float64 (R), the largest 1
    attractiveness: np.ndarray  # float64 (P)
    log_likelihoods: tuple[float, ...]  # before each step: they never fall
    converged: bool


def informative(cells: Cells) -> np.ndarray:
    """Which pairs tell ranks apart, bool (P): those that were clicked, and shown at two ranks or more.

    The others leave the likelihood's maximum over propensities where it is: one rank, and alpha follows whatever theta
    is; no click, and alpha is 0.
    """
    return (cells.sum_of_pair(cells.clicks) > 0) & (np.bincount(cells.pair, minlength=cells.num_pairs) > 1)


def fit_propensities(
    cells: Cells, num_ranks: int, *, tolerance: float = 1e-6, max_iterations: int = 2_000, start: float = 0.5
) -> Fit:
    """The most likely propensities and attractivenesses of some cells, by EM.

    It ends when no propensity moves by more than `tolerance`. A rank that no cell has keeps the propensity `start`.
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
        # Of each impression without a click: 1 / P(no click), for the two posteriors of Wang et al., equation 1.
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
    """(standard error of each log propensity relative to one rank, that rank), infinite where nothing links the two.

    The rank is the one with the most clicks among informative cells. Given how often a pair was clicked in all, its
    clicks fall on its ranks in proportion to impressions * theta (exactly so where clicks are rare): the information
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
    others = linked[linked != reference]
    if len(others):
        variances = np.diag(np.linalg.inv(information[np.ix_(others, others)]))
        errors[others] = np.sqrt(np.maximum(variances, 0))
    return errors, reference


def most_probable_attractiveness(
    cells: Cells, propensities: np.ndarray, clicked: np.ndarray, unclicked: np.ndarray
) -> np.ndarray:
    """The alpha of each pair that is most probable given theta and a prior, float64 (P).

    The prior says as much as `clicked` and `unclicked` examined impressions, float64 (P), both above 0: it is
    Beta(clicked + 1, unclicked + 1). The maximum is where
    clicks + clicked = alpha * (sum over ranks of (impressions - clicks) * theta / (1 - theta * alpha))
    + unclicked * alpha / (1 - alpha).
    The right side grows with alpha and is convex, so that Newton's steps from above go down to the root and never past.
    """
    theta = propensities[cells.rank]
    missed = (cells.impressions - cells.clicks) * theta
    wanted = cells.sum_of_pair(cells.clicks) + clicked
    # The right side is at least alpha * (sum of missed + unclicked) and at least unclicked * alpha / (1 - alpha).
    alpha = np.minimum(wanted / (cells.sum_of_pair(missed) + unclicked), wanted / (wanted + unclicked))
    for _ in range(100):
        left = 1 - theta * alpha[cells.pair]
        slope = cells.sum_of_pair(missed / left**2) + unclicked / (1 - alpha) ** 2
        value = alpha * cells.sum_of_pair(missed / left) + unclicked * alpha / (1 - alpha)
        step = (value - wanted) / slope
        alpha = np.clip(alpha - step, TINY, ALMOST_ONE)
        if np.abs(step).max(initial=0) < 1e-12:
            break
    return alpha


def _log_likelihood(cells: Cells, click: np.ndarray) -> float:
    missed = cells.impressions - cells.clicks
    seen = np.where(cells.clicks > 0, cells.clicks * np.log(np.maximum(click, TINY)), 0)
    return float((seen + missed * np.log1p(-np.minimum(click, ALMOST_ONE))).sum())


def _linked(information: np.ndarray, start: int) -> np.ndarray:
    """The ranks that a path of pairs links to `start`, itself among them, ascending."""
    reached = np.zeros(len(information), bool)
    reached[start] = True
    while True:
        further = reached | (information[reached] < 0).any(axis=0)
        if (further == reached).all():
            return np.flatnonzero(reached)
        reached = further
