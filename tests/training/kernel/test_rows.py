"""Sums of addends against Python's own integers, and rows moved and stepped as training.update.optimisers does it."""

from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rounding import assert_equal_but_for_rounding, assert_sums_equal
from training.compute.reduction import UNIT
from training.kernel.kernel_path import CompiledAddend, RowSum, TouchedRows, ranges, squares_of
from training.update.optimisers import LazyRows, MomentumSchedule

COLUMNS = 32


def random_addends(seed: int, num: int, num_rows: int) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(num):
        rows = np.flatnonzero(rng.random(num_rows) < 0.4).astype(np.int32)
        scale = 2.0 ** rng.integers(-30, 8, (len(rows), COLUMNS))
        made.append((rows, (rng.standard_normal((len(rows), COLUMNS)) * scale).astype(np.float32)))
    return made


def addends_of(made) -> list[CompiledAddend]:
    return [CompiledAddend(rows.ctypes.data, values.ctypes.data, len(rows)) for rows, values in made]


def touched_of(num_rows: int) -> TouchedRows:
    state = LazyRows.start(torch.zeros(num_rows, COLUMNS))
    return TouchedRows.of(state, torch.arange(num_rows), 1, MomentumSchedule(0.9, 0.9, 10))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), num=st.integers(0, 7), num_rows=st.integers(1, 40), threads=st.integers(1, 3))
def test_the_exact_sum_is_that_of_pythons_integers_in_any_order(seed, num, num_rows, threads):
    made = random_addends(seed, num, num_rows)
    # A value times 2^40, cut towards zero, as an integer; their sum; and that back.
    expected = np.zeros((num_rows, COLUMNS), object)
    for rows, values in made:
        for row, numbers in zip(rows, values, strict=True):
            expected[row] += [int(Fraction(float(value)) * 2**40) for value in numbers]
    with ThreadPoolExecutor(threads) as pool:
        fixed = torch.full((num_rows, COLUMNS), -1, dtype=torch.int64)
        RowSum(addends_of(made), touched_of(num_rows), 1e6).in_fixed_point(fixed, pool, threads)
        floats = torch.full((num_rows, COLUMNS), -1.0)
        total = RowSum(addends_of(made[::-1]), touched_of(num_rows), 1e6)
        total.exactly(floats, pool, threads)
        through = torch.full((num_rows, COLUMNS), -1.0)
        squares = squares_of(fixed, pool, threads, to_RG=through)
    assert fixed.tolist() == expected.tolist()
    assert torch.equal(floats, fixed.to(torch.float32) * UNIT)
    assert torch.equal(through, floats)
    exact = (floats.double() ** 2).sum(1)
    assert_sums_equal(squares.astype(np.float32), exact, exact, COLUMNS + 1)
    assert np.array_equal(squares, total.squares_R)
    assert total.num_misfits == 0


def test_an_addend_that_does_not_fit_is_counted_once_however_many_of_its_rows_do_not():
    made = random_addends(1, 3, 2_000)
    made[1][1][5, 3], made[1][1][-1, 0], made[2][1][0, 31] = np.nan, np.inf, -2e6
    total = RowSum(addends_of(made), touched_of(2_000), 1e6)
    with ThreadPoolExecutor(2) as pool:
        total.exactly(torch.empty(2_000, COLUMNS), pool, 2)
    assert len(ranges(2_000, 2)) > 1
    assert total.num_misfits == 2


def test_the_fast_sum_is_in_the_order_of_the_addends():
    made = random_addends(2, 5, 700)
    total, sums = RowSum(addends_of(made), touched_of(700), np.inf), torch.empty(700, COLUMNS)
    with ThreadPoolExecutor(2) as pool:
        total.in_floats(sums, pool, 2)
    expected = np.zeros((700, COLUMNS), np.float32)
    for rows, values in made:
        expected[rows] += values
    assert np.array_equal(sums.numpy(), expected)


@pytest.mark.parametrize("num_threads", [1, 3])
def test_rows_are_moved_and_stepped_as_the_reference_does(num_threads):
    rng = np.random.default_rng(3)
    schedule = MomentumSchedule(0.5, 0.9, 100)
    start = torch.from_numpy(rng.standard_normal((1_500, COLUMNS)).astype(np.float32))
    compiled, reference = LazyRows.start(start.clone()), LazyRows.start(start.clone())
    # 16 roundings: each update of a number is a few operations, and no sum.
    with ThreadPoolExecutor(num_threads) as pool:
        for update in (1, 2, 7, 8, 60):
            rows = torch.from_numpy(np.flatnonzero(rng.random(1_500) < 0.6))
            gradient = torch.from_numpy(rng.standard_normal((len(rows), COLUMNS)).astype(np.float32))
            touched = TouchedRows.of(compiled, rows, update, schedule)
            ahead = torch.empty(len(rows), COLUMNS)
            list(pool.map(lambda cut, t=touched, a=ahead: t.look_ahead(a, *cut), ranges(len(rows), num_threads)))
            assert_equal_but_for_rounding(ahead, reference.look_ahead(rows, update, schedule), 16)
            list(pool.map(lambda cut, t=touched, g=gradient: t.step(g, 0.1, 0.5, *cut), ranges(len(rows), num_threads)))
            touched.made()
            reference.apply(rows, gradient * 0.5, update, schedule, 0.1)
    for name in ("parameters", "velocity"):
        assert_equal_but_for_rounding(getattr(compiled, name), getattr(reference, name), 16)
    assert np.array_equal(compiled.last, reference.last)


def test_ranges_cover_all_rows_once():
    for num_rows in (0, 1, 511, 512, 513, 5_000):
        for num_threads in (1, 2, 64):
            covered = [row for first, last in ranges(num_rows, num_threads) for row in range(first, last)]
            assert covered == list(range(num_rows))
