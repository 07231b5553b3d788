import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clicktower.training.trainer.optimisers import LazyRows, MomentumSchedule


def test_update_is_the_printed_recursion_by_hand():
    # One parameter, L = Λ²/2, so ∇L(x) = x; ε = 0.1, μ = 0.5, Λ_0 = 1, ΔΛ_0 = 0.
    # k = 1: look-ahead 1, ΔΛ = 0 - 0.1 · 1 = -0.1, Λ = 0.9
    # k = 2: look-ahead 0.9 - 0.05 = 0.85, ΔΛ = -0.05 - 0.085 = -0.135, Λ = 0.765
    # k = 3: look-ahead 0.765 - 0.0675 = 0.6975, ΔΛ = -0.0675 - 0.06975 = -0.13725, Λ = 0.62775
    state = LazyRows.start(torch.ones(1, 1, dtype=torch.float64))
    schedule, row, published = MomentumSchedule(0.5, 0.5, 10), torch.tensor([0]), []
    for update in (1, 2, 3):
        point = state.look_ahead(row, update, schedule)
        state.apply(row, point, update, schedule, 0.1)
        published.append(state.published(row, update, schedule).item())
    assert published == pytest.approx([0.9, 0.765, 0.62775], rel=1e-14)


def test_schedule_has_its_edges_at_two_per_cent_of_all_updates():
    schedule = MomentumSchedule(0.9, 0.995, 200)  # 2% of 200 = 4
    values = [schedule.momentum(update) for update in range(1, 201)]
    assert values == [0.9] * 4 + [0.995] * 192 + [0.9] * 4


@pytest.mark.parametrize("total", [1, 2, 3, 10, 24, 26, 51])
def test_every_update_of_a_short_run_has_a_momentum(total):
    schedule = MomentumSchedule(0.9, 0.995, total)
    assert {schedule.momentum(update) for update in range(1, total + 1)} <= {0.9, 0.995}


def test_an_untouched_row_drifts_by_its_velocity_times_the_geometric_sum():
    # v = 2 after update 1, μ = 0.5, three updates later: Λ gains 2 (0.5 + 0.25 + 0.125) = 1.75, v is 2 / 8 = 0.25
    gain, decay = MomentumSchedule(0.5, 0.5, 10).drift(torch.tensor([1]), 4)
    assert 2 * gain[0] == pytest.approx(1.75)
    assert 2 * decay[0] == pytest.approx(0.25)


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(
    total=st.integers(1, 160),
    edge=st.sampled_from([0.0, 0.3, 0.9]),
    middle=st.sampled_from([0.5, 0.9, 0.995]),
    density=st.floats(0, 1),
    seed=st.integers(0, 2**32 - 1),
)
def test_lazy_rows_equal_dense_nesterov_through_changes_of_momentum(total, edge, middle, density, seed):
    rng = np.random.default_rng(seed)
    num_rows, columns, step = 5, 2, 0.05
    target = rng.normal(size=(num_rows, columns))
    dense, velocity = rng.normal(size=(num_rows, columns)), np.zeros((num_rows, columns))
    lazy = LazyRows.start(torch.from_numpy(dense.copy()))
    schedule = MomentumSchedule(edge, middle, total)
    length = min(round(0.02 * total), total // 2)
    for update in range(1, total + 1):
        momentum = edge if update <= length or update > total - length else middle
        touched = np.flatnonzero(rng.random(num_rows) < density)
        ahead = dense + momentum * velocity
        gradient = np.zeros_like(dense)
        gradient[touched] = (ahead - target)[touched]
        velocity = momentum * velocity - step * gradient
        dense = dense + velocity

        rows = torch.from_numpy(touched)
        point = lazy.look_ahead(rows, update, schedule)
        np.testing.assert_allclose(point.numpy(), ahead[touched], rtol=1e-9, atol=1e-11)
        lazy.apply(rows, point - torch.from_numpy(target)[rows], update, schedule, step)
    np.testing.assert_allclose(lazy.all_published(total, schedule).numpy(), dense, rtol=1e-9, atol=1e-11)


def test_looking_at_rows_changes_no_state():
    state = LazyRows(torch.randn(6, 3), torch.randn(6, 3), torch.arange(6, dtype=torch.int32))
    before = state.parameters.clone(), state.velocity.clone(), state.last.clone()
    schedule = MomentumSchedule(0.9, 0.995, 100)
    state.look_ahead(torch.arange(6), 50, schedule)
    state.published(torch.tensor([1, 4]), 50, schedule)
    state.all_published(99, schedule)
    assert torch.equal(state.parameters, before[0])
    assert torch.equal(state.velocity, before[1])
    assert torch.equal(state.last, before[2])
