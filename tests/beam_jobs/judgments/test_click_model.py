import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clicktower.beam_jobs.judgments.click_model import (
    Cells,
    fit_propensities,
    informative,
    most_probable_attractiveness,
    relative_errors,
)
from tests.beam_jobs.judgments.clicked_cells import drawn_cells


def cells(*rows: tuple[int, int, int, int]) -> Cells:
    """Rows of pair, rank, impressions, clicks."""
    pair, rank, impressions, clicks = np.array(rows).T
    return Cells(pair=pair, rank=rank, impressions=impressions.astype(float), clicks=clicks.astype(float))


# Any log in small: a few pairs, ranks, impressions, and clicks up to those.
LOGS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 30), st.floats(0, 1)),
    min_size=1,
    max_size=16,
    unique_by=lambda row: row[:2],
).map(lambda rows: [(pair, rank, shown, round(share * shown)) for pair, rank, shown, share in rows])


def renumbered(rows: list[tuple[int, int, int, int]]) -> Cells:
    numbers = {pair: number for number, pair in enumerate(sorted({row[0] for row in rows}))}
    return cells(*((numbers[pair], *rest) for pair, *rest in rows))


def slow_em(log: Cells, num_ranks: int, iterations: int) -> tuple[list[float], list[float]]:
    """Wang et al. (2018), equations 1 to 3, an impression at a time, without their regression and our scale."""
    impressions = [
        (pair, rank, number < clicks)
        for pair, rank, shown, clicks in zip(log.pair, log.rank, log.impressions, log.clicks, strict=True)
        for number in range(int(shown))
    ]
    theta = [0.5] * num_ranks
    gamma = [0.5] * log.num_pairs
    for _ in range(iterations):
        examined = [[] for _ in theta]
        relevant = [[] for _ in gamma]
        for pair, rank, clicked in impressions:
            none = 1 - theta[rank] * gamma[pair]
            examined[rank].append(1.0 if clicked else theta[rank] * (1 - gamma[pair]) / none)
            relevant[pair].append(1.0 if clicked else (1 - theta[rank]) * gamma[pair] / none)
        theta = [sum(of) / len(of) if of else 0.5 for of in examined]
        gamma = [sum(of) / len(of) for of in relevant]
    return theta, gamma


def test_two_pairs_at_two_ranks_worked_by_hand():
    # Pair 0: 4 of 10 at the first rank, 2 of 10 at the second. Pair 1: 4 of 20 and 2 of 20. The second rank gets half
    # of the clicks for both, so theta = (1, 1/2) and alpha = (4/10, 4/20) fit every share exactly.
    fit = fit_propensities(cells((0, 0, 10, 4), (0, 1, 10, 2), (1, 0, 20, 4), (1, 1, 20, 2)), 2, tolerance=1e-10)
    assert fit.converged
    assert fit.propensities == pytest.approx([1, 0.5], abs=1e-6)
    assert fit.attractiveness == pytest.approx([0.4, 0.2], abs=1e-6)


def test_em_agrees_with_a_slow_loop_over_the_printed_equations():
    log, _ = drawn_cells(1, np.array([1, 0.6, 0.3]), num_pairs=6, impressions=15)
    log = log.where(informative(log))
    fit = fit_propensities(log, 3, tolerance=1e-9, max_iterations=20_000)
    theta, gamma = slow_em(log, 3, 1_500)
    assert fit.propensities == pytest.approx([value / max(theta) for value in theta], abs=2e-4)
    assert fit.attractiveness == pytest.approx([value * max(theta) for value in gamma], abs=2e-4)


@given(LOGS)
@settings(deadline=None, max_examples=60)
def test_the_likelihood_never_falls(rows):
    fit = fit_propensities(renumbered(rows), 4, max_iterations=60)
    steps = np.diff(fit.log_likelihoods)
    assert (steps >= -1e-7 * np.maximum(1, np.abs(fit.log_likelihoods[1:]))).all()
    assert fit.propensities[[row[1] for row in rows]].max() == pytest.approx(1)
    assert ((fit.attractiveness >= 0) & (fit.attractiveness <= 1)).all()


@pytest.mark.parametrize("seed", range(4))
def test_known_propensities_are_recovered_within_five_percent(seed):
    true = 1 / np.arange(1, 11) ** 0.55
    log, _ = drawn_cells(seed, true, num_pairs=2_000, impressions=20)
    log_telling = log.where(informative(log))
    fit = fit_propensities(log_telling, 10)
    assert fit.converged
    assert fit.propensities == pytest.approx(true, rel=0.05)
    errors, reference = relative_errors(log_telling, fit.propensities)
    assert reference == 0
    assert (errors[1:] < 0.025).all()


def test_uninformative_pairs_do_not_move_the_propensities():
    log = cells((0, 0, 10, 4), (0, 1, 10, 2), (1, 0, 30, 9), (2, 0, 5, 0), (2, 1, 5, 0))
    assert informative(log).tolist() == [True, False, False]
    with_all = fit_propensities(log, 2, tolerance=1e-10, max_iterations=20_000).propensities
    without = fit_propensities(log.where(informative(log)), 2, tolerance=1e-10, max_iterations=20_000).propensities
    assert with_all == pytest.approx(without, abs=1e-5)


def test_the_error_of_a_ratio_is_that_of_two_counts():
    # One pair, 4 clicks at one rank and 2 at the other, shown equally often: the variance of the log ratio of two
    # counts is 1/4 + 1/2.
    log = cells((0, 0, 10, 4), (0, 1, 10, 2))
    errors, reference = relative_errors(log, np.array([1, 0.5]))
    assert (reference, errors[0]) == (0, 0)
    assert errors[1] == pytest.approx(math.sqrt(1 / 4 + 1 / 2))


@pytest.mark.slow
def test_errors_are_the_spread_of_estimates_where_clicks_are_rare():
    true, estimates, output = np.array([1, 0.6, 0.4]), [], []
    for seed in range(120):
        log, _ = drawn_cells(seed, true, num_pairs=40, impressions=60, attractiveness=np.full(40, 0.1))
        log = log.where(informative(log))
        fit = fit_propensities(log, 3)
        estimates.append(np.log(fit.propensities / fit.propensities[0]))
        output.append(relative_errors(log, fit.propensities)[0])
    spread, mean_told = np.std(estimates, axis=0)[1:], np.mean(output, axis=0)[1:]
    assert spread == pytest.approx(mean_told, rel=0.25)  # the spread of 120 draws is itself known to 6%


def test_ranks_that_no_pair_links_have_no_known_ratio():
    log = cells((0, 0, 10, 4), (0, 1, 10, 2), (1, 2, 10, 3), (1, 3, 10, 1))
    errors, _ = relative_errors(log, np.ones(4))
    assert np.isfinite(errors).tolist() == [True, True, False, False]


def test_attractiveness_at_one_certain_rank_is_a_share_with_pseudo_counts():
    # theta = 1: 3 of 8 impressions, and a prior of 1 click in 5: (3 + 1) / (8 + 5).
    found = most_probable_attractiveness(cells((0, 0, 8, 3)), np.ones(1), np.array([1.0]), np.array([4.0]))
    assert found == pytest.approx([4 / 13])


@given(LOGS, st.floats(0.01, 5), st.floats(0.01, 20))
@settings(deadline=None, max_examples=60)
def test_attractiveness_is_the_highest_point_of_the_posterior(rows, clicked, unclicked):
    log, theta = renumbered(rows), np.array([1, 0.7, 0.45, 0.2])
    prior = [np.full(log.num_pairs, value) for value in (clicked, unclicked)]
    found = most_probable_attractiveness(log, theta, *prior)
    grid = np.linspace(0.0005, 0.9995, 1_000)
    for pair in range(log.num_pairs):
        of = log.pair == pair
        click = theta[log.rank[of], None] * grid
        missed = (log.impressions - log.clicks)[of, None]
        posterior = (log.clicks[of, None] * np.log(click) + missed * np.log1p(-click)).sum(axis=0)
        posterior += clicked * np.log(grid) + unclicked * np.log1p(-grid)
        assert found[pair] == pytest.approx(grid[posterior.argmax()], abs=0.0011)
