import numpy as np
import pytest

from tests.rounding import assert_equal_but_for_rounding, assert_sums_equal, gamma, rounded, unit_roundoff


def test_one_rounding_is_half_the_distance_of_neighbouring_numbers():
    assert unit_roundoff(np.float32) == 2.0**-24
    assert unit_roundoff("float64") == 2.0**-53
    assert gamma(1_000, "float64") == pytest.approx(1_000 * 2.0**-53)
    assert gamma(2**22) == pytest.approx((1 / 4) / (3 / 4))


def test_a_sum_of_products_in_any_order_is_within_the_bound_and_one_without_a_term_is_not():
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=1_000).astype(np.float32) for _ in range(2))
    products, exact = a * b, a.astype(np.float64) * b
    rising = np.argsort(products)
    for order in (slice(None), rising, rising[::-1], np.argsort(-abs(products))):
        found = np.cumsum(products[order], dtype=np.float32)[-1]  # one after the other
        assert_sums_equal(found, exact.sum(), abs(exact).sum(), 1_000)
    assert_sums_equal([a @ b], [exact.sum()], abs(exact).sum(), 1_000)
    without = exact.sum() - exact[abs(exact).argmax()]
    with pytest.raises(AssertionError, match="1 of 1 are off by more than gamma"):
        assert_sums_equal(np.array([without], np.float32), [exact.sum()], [abs(exact).sum()], 1_000)


def test_small_entries_are_as_wrong_as_the_large_ones_beside_them():
    expected = np.array([[1000.0, 1e-9]])
    found = expected.astype(np.float32)
    found[0, 1] += 60 * 2.0**-24 * 1000
    assert_equal_but_for_rounding(found, expected)
    with pytest.raises(
        AssertionError, match=r"1 of 2 are off by more than 50 roundings of the largest, by up to 0\.003"
    ):
        assert_equal_but_for_rounding(found, expected, 50)
    with pytest.raises(AssertionError, match="roundings"):  # of float64, which are finer
        assert_equal_but_for_rounding(found.astype(np.float64), expected)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1.001])
def test_what_is_no_number_or_of_another_shape_is_never_equal(wrong):
    with pytest.raises(AssertionError):
        assert_equal_but_for_rounding(np.float32([1, wrong]), [1, 1])
    with pytest.raises(AssertionError):
        assert_sums_equal(np.float32([1, wrong]), [1, 1], [1, 1], 9)
    with pytest.raises(AssertionError):
        assert_equal_but_for_rounding(np.float32([1]), [1, 1])
    with pytest.raises(AssertionError):
        assert_sums_equal(np.float32([1]), [1, 1], [1, 1], 9)
    assert_equal_but_for_rounding(np.empty((0, 3), np.float32), np.empty((0, 3)))


def test_numbers_are_compared_by_what_they_are_made_of():
    assert rounded([0.5]) == [0.5 + 60 * 2.0**-24]
    assert rounded(0.5) != 0.5 + 70 * 2.0**-24
    assert rounded(0.5, of=2) == 0.5 + 70 * 2.0**-24
    assert rounded(0.5, 2) != 0.5 + 3 * 2.0**-24
