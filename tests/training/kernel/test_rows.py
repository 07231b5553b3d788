"""Sums of addends against Python's own integers, and rows moved and stepped as training.trainer.optimisers does it."""

from fractions import Fraction

import numpy as np
import psutil
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clicktower.training.trainer.kernel_path import Addend, KernelThreads, TouchedRows, whole
from clicktower.training.trainer.large_update import UNIT
from clicktower.training.trainer.optimisers import LazyRows, MomentumSchedule
from tests.rounding import assert_equal_but_for_rounding, assert_sums_equal
from tests.training.kernel.small_batches import room

COLUMNS = 32


def random_addends(seed: int, num: int, num_rows: int) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(num):
        rows = np.flatnonzero(rng.random(num_rows) < 0.4).astype(np.int32)
        scale = 2.0 ** rng.integers(-30, 8, (len(rows), COLUMNS))
        made.append((rows, (rng.standard_normal((len(rows), COLUMNS)) * scale).astype(np.float32)))
    return made


def touched_of(num_rows: int, made=(), limit: float = np.inf) -> TouchedRows:
    state = LazyRows.start(torch.zeros(num_rows, COLUMNS))
    touched = TouchedRows(state, torch.arange(num_rows), 1, MomentumSchedule(0.9, 0.9, 10), room)
    touched.add_up([Addend(rows.ctypes.data, values.ctypes.data, len(rows)) for rows, values in made], limit)
    return touched


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), num=st.integers(0, 7), num_rows=st.integers(1, 40), threads=st.integers(1, 3))
def test_the_exact_sum_is_that_of_pythons_integers_in_any_order(seed, num, num_rows, threads):
    made = random_addends(seed, num, num_rows)
    # A value times 2^40, cut towards zero, as an integer; their sum; and that back.
    expected = np.zeros((num_rows, COLUMNS), object)
    for rows, values in made:
        for row, numbers in zip(rows, values, strict=True):
            expected[row] += [int(Fraction(float(value)) * 2**40) for value in numbers]
    crew = KernelThreads(threads)
    fixed = np.full((num_rows, COLUMNS), -1, np.int64)
    through, total = touched_of(num_rows, made, 1e6), touched_of(num_rows, made[::-1], 1e6)
    through.sum_in(fixed)
    crew.make("sum_to_fixed", [whole(through)])
    crew.make("from_fixed", [whole(through)])
    crew.make("sum_exactly", [whole(total)])
    assert fixed.tolist() == expected.tolist()
    assert np.array_equal(total.gradient_RG, fixed.astype(np.float32) * np.float32(UNIT))
    assert np.array_equal(through.gradient_RG, total.gradient_RG)
    exact = (torch.from_numpy(total.gradient_RG).double() ** 2).sum(1)
    assert_sums_equal(total.squares_R.astype(np.float32), exact, exact, COLUMNS + 1)
    assert np.array_equal(through.squares_R, total.squares_R)
    assert total.num_misfits == 0


def test_an_addend_that_does_not_fit_is_counted_once_however_many_of_its_rows_do_not():
    made = random_addends(1, 3, 2_000)
    made[1][1][5, 3], made[1][1][-1, 0], made[2][1][0, 31] = np.nan, np.inf, -2e6
    total = touched_of(2_000, made, 1e6)
    KernelThreads(2).make("sum_exactly", [whole(total)])
    assert total.num_misfits == 2


def test_the_fast_sum_is_in_the_order_of_the_addends():
    made = random_addends(2, 5, 700)
    total, again = touched_of(700, made), touched_of(700)
    KernelThreads(2).make("sum_in_order", [whole(total)])
    expected = np.zeros((700, COLUMNS), np.float32)
    for rows, values in made:
        expected[rows] += values
    assert np.array_equal(total.gradient_RG, expected)
    again.sum_in(expected)  # of all workers
    KernelThreads(2).make("squares", [whole(again)])
    assert np.array_equal(again.squares_R, total.squares_R)


@pytest.mark.parametrize("num_threads", [1, 3])
def test_rows_are_moved_and_stepped_as_the_reference_does(num_threads):
    rng = np.random.default_rng(3)
    schedule = MomentumSchedule(0.5, 0.9, 100)
    start = torch.from_numpy(rng.standard_normal((1_500, COLUMNS)).astype(np.float32))
    compiled, reference = LazyRows.start(start.clone()), LazyRows.start(start.clone())
    crew, place = KernelThreads(num_threads), np.full(1_000, -1, np.int32)
    # 16 roundings: each update of a number is a few operations, and no sum.
    for update in (1, 2, 7, 8, 60):
        rows = np.flatnonzero(rng.random(1_500) < 0.6)
        gradient = rng.standard_normal((len(rows), COLUMNS)).astype(np.float32)
        touched = TouchedRows(compiled, torch.from_numpy(rows), update, schedule, room)
        touched.stand_at(place)
        crew.make("look_ahead", [whole(touched)])
        expected = reference.look_ahead(torch.from_numpy(rows), update, schedule)
        assert_equal_but_for_rounding(touched.ahead_RG, expected, 16)
        assert np.array_equal(rows[place[rows[rows < 1_000]]], rows[rows < 1_000])
        touched.gradient_RG[:] = gradient
        crew.make("step", [(touched, 0, 700, -0.05), (touched, 700, len(rows), -0.025)])
        touched.mark_updated(update)
        scale = torch.full((len(rows), 1), 0.5)
        scale[700:] = 0.25
        reference.apply(torch.from_numpy(rows), torch.from_numpy(gradient) * scale, update, schedule, 0.1)
    for name in ("parameters", "velocity"):
        assert_equal_but_for_rounding(getattr(compiled, name), getattr(reference, name), 16)
    assert torch.equal(compiled.last, reference.last)


def test_a_crew_takes_each_row_once_and_its_threads_end():
    before = psutil.Process().num_threads()
    for num_rows in (0, 1, 255, 256, 257, 5_000):
        for num_threads in (1, 2, 7):
            crew, state = KernelThreads(num_threads), LazyRows.start(torch.zeros(num_rows, COLUMNS))
            assert psutil.Process().num_threads() == before + num_threads - 1
            touched = TouchedRows(state, torch.arange(num_rows), 1, MomentumSchedule(0.9, 0.9, 10), room)
            touched.gradient_RG[:] = 1
            for _ in range(20):
                crew.make("step", [(touched, 0, num_rows, 1.0)])
            expected = torch.full((num_rows, COLUMNS), (1 - 0.9**20) / (1 - 0.9))
            assert_equal_but_for_rounding(state.velocity, expected, 40)
            del crew
            assert psutil.Process().num_threads() == before
