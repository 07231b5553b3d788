import numpy as np
import pytest
from scipy import stats

from clicktower.training.evaluation.compare_table import kendall
from clicktower.training.ranking.ndcg import bootstrap_interval, holm, randomisation_p


def test_interval_agrees_with_scipy_and_with_the_normal_approximation():
    values = np.random.default_rng(1).beta(2, 1, 400)
    (low,), (high,) = bootstrap_interval(values, num_resamples=20_000, seed=2)
    expected = stats.bootstrap(
        (values,), np.mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(3)
    ).confidence_interval
    half = 1.96 * values.std(ddof=1) / np.sqrt(400)
    # Two runs of 20,000 resamples: the 2.5% point is known to about 3% of the interval's width.
    assert [low, high] == pytest.approx([expected.low, expected.high], abs=0.06 * half)
    assert [low, high] == pytest.approx([values.mean() - half, values.mean() + half], abs=0.1 * half)


def test_p_agrees_with_all_sign_assignments():
    # Differences 1, 2, 3: of the 8 sums ±1±2±3 only +6 and -6 reach |6|, so p = 2/8.
    assert randomisation_p(np.array([1.0, 2.0, 3.0]), num_resamples=40_000) == pytest.approx(0.25, abs=0.01)
    # Differences 0.1, 0.2, 0.3, -0.6 sum to 0: every assignment reaches it.
    assert randomisation_p(np.array([0.1, 0.2, 0.3, -0.6]), num_resamples=1_000)[0] == 1.0


def test_p_agrees_with_scipys_permutation_test():
    differences = np.random.default_rng(4).normal(0.2, 1.0, 60)
    found = randomisation_p(differences, num_resamples=50_000, seed=5)[0]
    expected = stats.permutation_test(
        (differences, np.zeros(60)), lambda x, y, axis: np.mean(x - y, axis=axis), vectorized=True,
        permutation_type="samples", n_resamples=50_000, rng=np.random.default_rng(6),
    ).pvalue  # fmt: skip
    assert found == pytest.approx(expected, abs=0.01)  # p near 0.1: a standard error of 0.0013 each
    assert 0.01 < found < 0.5


def test_columns_are_tested_as_if_alone_and_the_seed_decides_all():
    differences_QM = np.random.default_rng(7).normal(0.1, 1.0, (50, 3))
    together = randomisation_p(differences_QM, num_resamples=2_000, seed=8)
    alone = [randomisation_p(differences_QM[:, m], num_resamples=2_000, seed=8)[0] for m in range(3)]
    assert together.tolist() == alone
    lows = [bootstrap_interval(differences_QM, num_resamples=500, seed=s)[0].tolist() for s in (1, 1, 2)]
    assert lows[0] == lows[1] != lows[2]


def test_p_is_never_zero_and_sure_differences_are_small():
    assert randomisation_p(np.ones(100), num_resamples=999)[0] == pytest.approx(1 / 1000)


def test_holm_by_hand():
    # Sorted 0.01, 0.02, 0.04 times 3, 2, 1 = 0.03, 0.04, 0.04; never falling, never above 1.
    assert holm([0.02, 0.04, 0.01]) == pytest.approx([0.04, 0.04, 0.03])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_kendalls_tau_by_hand_and_as_scipys():
    # Of the pairs of 1 2 3 4 against 1 3 2 4 five agree and one does not: (5 - 1) / 6. Reversed all six disagree.
    reference = np.array([1.0, 2.0, 3.0, 4.0])
    samples = np.array([[1, 3, 2, 4], [4, 3, 2, 1], [7, 7, 7, 7]], np.float64)
    assert kendall(samples, reference).tolist() == pytest.approx([4 / 6, -1.0, 0.0])
    # 0.1 + 0.2 and 0.3 are one value, so of three pairs one is tied: 2 / √(2 · 3).
    assert kendall(np.array([[0.3, 0.1 + 0.2, 1.0]]), reference[:3])[0] == pytest.approx(2 / 6**0.5)
    rng = np.random.default_rng(9)
    papers, values = rng.integers(5, size=17).astype(float), rng.integers(8, size=(20, 17)).astype(float)
    assert kendall(values, papers).tolist() == pytest.approx(
        [stats.kendalltau(one, papers).statistic for one in values]
    )


def test_no_query_is_an_error():
    with pytest.raises(ValueError, match="no query"):
        bootstrap_interval(np.empty(0))
