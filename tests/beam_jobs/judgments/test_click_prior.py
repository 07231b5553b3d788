import numpy as np
import pytest

from clicktower.beam_jobs.judgments.click_model import (
    Cells,
    Prior,
    ShownPairs,
    add_up,
    fit_levels,
    fit_strength,
    odds_to_share,
    query_shifts,
)


def pairs(*rows: tuple[int, float, float, float]) -> ShownPairs:
    """Rows of query, clicks, examined impressions, mean rank."""
    query, clicks, examined, mean_rank = (np.array(column) for column in zip(*rows, strict=True))
    return ShownPairs(query=query, clicks=clicks.astype(float), examined=examined.astype(float), mean_rank=mean_rank)


def test_sums_of_a_pair_worked_by_hand():
    log = Cells(
        pair=np.array([0, 0, 1]),
        rank=np.array([0, 1, 1]),
        impressions=np.array([6.0, 2, 5]),
        clicks=np.array([3.0, 0, 1]),
    )
    found = add_up(log, np.array([0, 0]), np.array([1, 4]), np.array([1, 0.5]))
    assert found.examined.tolist() == [6 * 1 + 2 * 0.5, 5 * 0.5]
    assert found.mean_rank.tolist() == [(6 * 1 + 2 * 4) / 8, 4]
    assert found.clicks.tolist() == [3, 1]


def test_a_querys_shift_solves_its_equation():
    of = pairs((0, 9, 10, 1), (0, 8, 10, 2), (1, 0, 10, 1), (2, 0, 0, 1))
    level = np.full(4, -1.0)
    shift = query_shifts(of, level)
    # By bisection of clicks - examined * share(level + shift) - shift, which falls.
    for query, (clicks, examined) in enumerate([(17, 20), (0, 10), (0, 0)]):
        low, high = -20.0, 20.0
        while high - low > 1e-12:
            middle = (low + high) / 2
            if clicks - examined / (1 + np.exp(1 - middle)) - middle > 0:
                low = middle
            else:
                high = middle
        assert shift[query] == pytest.approx(low, abs=1e-8)


def test_levels_follow_the_rank_and_stay_one_without_it():
    draw = np.random.default_rng(1)
    rank = draw.integers(1, 4, 3_000)
    true = np.array([0.5, 0.3, 0.1])[rank - 1]
    of = pairs(*zip(np.arange(3_000) // 3, draw.binomial(50, true), np.full(3_000, 50), rank, strict=True))
    by_rank = odds_to_share(fit_levels(of, np.array([1, 2, 3]), by_rank=True))
    assert by_rank == pytest.approx([0.5, 0.3, 0.1], abs=0.03)
    alone = odds_to_share(fit_levels(of, np.array([1, 2, 3]), by_rank=False))
    assert alone == pytest.approx(np.full(3, alone[0]))
    assert alone[0] == pytest.approx(0.3, abs=0.03)


@pytest.mark.parametrize("strength", [2.0, 12.0, 50.0])
def test_the_strength_that_drew_the_log_is_found(strength):
    draw, expected = np.random.default_rng(3), 0.3
    alpha = draw.beta(strength * expected, strength * (1 - expected), 4_000)
    propensities = np.array([1.0, 0.4])
    pair, rank = np.divmod(np.arange(8_000), 2)
    clicks = draw.binomial(20, alpha[pair] * propensities[rank]).astype(float)
    log = Cells(pair=pair, rank=rank, impressions=np.full(8_000, 20.0), clicks=clicks)
    assert fit_strength(log, propensities, np.full(4_000, expected)) == strength


def test_expectations_stay_between_what_clicks_can_move():
    prior = Prior(ranks=(1, 2), levels=(30.0, -30.0), strength=3.0)
    found = prior.expected(pairs((0, 5, 5, 1), (1, 0, 5, 2)))
    assert (found > 0).all()
    assert (found < 1).all()
