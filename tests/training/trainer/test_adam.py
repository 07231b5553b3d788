"""Adam on the rows a minibatch touches: a step by hand, torch's own Adam row by row, rows that are rarely touched."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.optim._functional import sparse_adam

from clicktower.training.trainer.adaptive_optimisers import AdamRows
from clicktower.training.trainer.optimisers import MomentumSchedule, restored_state

torch.set_num_threads(1)
TOTAL = 12
SCHEDULE = MomentumSchedule(0.9, 0.9, TOTAL)
ROWS, COLUMNS = 6, 3


def start(dtype: torch.dtype = torch.float64) -> AdamRows:
    return AdamRows.start(torch.from_numpy(np.random.default_rng(1).normal(size=(ROWS, COLUMNS))).to(dtype))


def gradients(dtype: torch.dtype = torch.float64) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """(rows, gradient) of each update: row 0 always, row 5 never, the others now and then."""
    rng, found = np.random.default_rng(2), []
    for _ in range(TOTAL):
        rows = np.flatnonzero(np.append(True, rng.random(ROWS - 2) < 0.4))
        found.append((torch.from_numpy(rows), torch.from_numpy(rng.normal(size=(len(rows), COLUMNS))).to(dtype)))
    return found


def trained(state: AdamRows, updates, *, step: float = 0.1) -> AdamRows:
    for update, (rows, gradient) in updates:
        state.apply(rows, gradient.clone(), update, SCHEDULE, step)
    return state


def test_two_steps_are_the_hand_worked_ones():
    """Λ = 1, ε = 0.1, gradients 0.5 and -0.1.

    m = 0.1 x 0.5 = 0.05, v = 0.001 x 0.25 = 0.00025; m / 0.1 = 0.5, sqrt(v / 0.001) = 0.5: Λ = 1 - 0.1 x 0.5 / 0.5
      = 0.9 (and 2e-9 for the 1e-8 below the line)
    m = 0.9 x 0.05 - 0.1 x 0.1 = 0.035, v = 0.999 x 0.00025 + 0.001 x 0.01 = 0.00025975; m / (1 - 0.81) = 0.18421053,
      sqrt(v / (1 - 0.998001)) = sqrt(0.12993997) = 0.36047187: Λ = 0.9 - 0.1 x 0.51102605 = 0.84889740
    """
    state, row = AdamRows.start(torch.ones(1, 1, dtype=torch.float64)), torch.zeros(1, dtype=torch.int64)
    state.apply(row, torch.tensor([[0.5]], dtype=torch.float64), 1, SCHEDULE, 0.1)
    assert state.parameters.item() == pytest.approx(0.9, abs=1e-8)
    state.apply(row, torch.tensor([[-0.1]], dtype=torch.float64), 2, SCHEDULE, 0.1)
    assert state.parameters.item() == pytest.approx(0.84889740, abs=1e-8)


def test_each_row_moves_as_torch_s_adam_moves_it_by_its_own_gradients_alone():
    """torch's own kernel; torch.optim around it would import a compiler, for half a minute."""
    found = trained(start(), enumerate(gradients(), 1))
    for row in range(ROWS):
        alone = start().parameters[row].clone()
        moment, square, count = *torch.zeros(2, COLUMNS, dtype=torch.float64), torch.zeros(())
        for rows, gradient in gradients():
            if row in rows.tolist():
                count += 1
                torch._fused_adam_(
                    [alone], [gradient[rows.tolist().index(row)].clone()], [moment], [square], [], [count],
                    lr=0.1, beta1=0.9, beta2=0.999, weight_decay=0.0, eps=1e-8, amsgrad=False, maximize=False,
                )  # fmt: skip
        torch.testing.assert_close(found.parameters[row], alone, rtol=1e-13, atol=1e-14)


def test_where_every_row_is_touched_it_is_torch_s_sparse_adam():
    rng = np.random.default_rng(3)
    every, matrix, state = torch.arange(ROWS), start().parameters.clone(), start()
    moment, square = torch.zeros_like(matrix), torch.zeros_like(matrix)
    for update in range(1, TOTAL + 1):
        gradient = torch.from_numpy(rng.normal(size=(ROWS, COLUMNS)))
        sparse = torch.sparse_coo_tensor(every[None], gradient.clone(), (ROWS, COLUMNS), check_invariants=True)
        sparse_adam([matrix], [sparse], [moment], [square], [update], eps=1e-8, beta1=0.9, beta2=0.999, lr=0.05,
                    maximize=False)  # fmt: skip
        state.apply(every, gradient, update, SCHEDULE, 0.05)
    # That one adds its 1e-8 before the square is corrected, a difference of a millionth here.
    torch.testing.assert_close(state.parameters, matrix, rtol=5e-6, atol=0)


def test_a_row_that_is_not_touched_stands_still_and_counts_no_update():
    state = trained(start(), enumerate(gradients(), 1))
    assert state.count[0] == TOTAL
    assert state.count[5] == 0
    assert 0 < state.count[1] < TOTAL
    torch.testing.assert_close(state.parameters[5], start().parameters[5], rtol=0, atol=0)
    rows, expected = torch.tensor([1, 4]), state.parameters[[1, 4]]
    for read in (state.published, state.look_ahead):
        torch.testing.assert_close(read(rows, TOTAL, SCHEDULE), expected, rtol=0, atol=0)


def test_a_rare_row_s_first_step_is_as_long_as_a_common_one_s():
    """A gradient of any size moves a number by ε at first: m and sqrt(v), corrected, are both its size."""
    state = trained(start(), enumerate(gradients(), 1))
    before = state.parameters[5].clone()
    state.apply(torch.tensor([5]), torch.tensor([[3.0, -1e-3, 0.0]], dtype=torch.float64), TOTAL, SCHEDULE, 0.1)
    moved = (state.parameters[5] - before).tolist()
    assert moved == pytest.approx([-0.1, 0.1, 0.0], rel=2e-5)  # 1e-8 is a hundred-thousandth of 1e-3


def test_a_number_without_gradient_never_moves():
    """The filling of a tower's matrix is zero, and has to stay so."""
    state = AdamRows.start(torch.zeros(2, 3))
    for update in range(1, TOTAL + 1):
        state.apply(torch.arange(2), torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, -2.0]]), update, SCHEDULE, 0.1)
    assert (state.parameters != 0).tolist() == [[True, False, False], [False, False, True]]


@pytest.mark.parametrize("stopped_after", [0, 1, 5, TOTAL])
def test_a_state_that_was_stored_goes_on_to_the_same_bits(stopped_after):
    updates = list(enumerate(gradients(torch.float32), 1))
    before = trained(start(torch.float32), updates[:stopped_after])
    stored = {name: array.copy() for name, array in before.arrays().items()}
    resumed = trained(restored_state(stored), updates[stopped_after:])
    expected = trained(start(torch.float32), updates)
    for name, array in expected.arrays().items():
        assert resumed.arrays()[name].tobytes() == array.tobytes(), name


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 39), min_size=1, unique=True), st.integers(0, 2**31))
def test_a_row_s_bits_do_not_depend_on_the_rows_beside_it(chosen, seed):
    rng = np.random.default_rng(seed)
    matrix = torch.from_numpy(rng.normal(size=(40, 7)).astype(np.float32))
    rows = torch.tensor(sorted(chosen))
    gradient = torch.from_numpy(rng.normal(size=(3, len(rows), 7)).astype(np.float32))
    together, apart = AdamRows.start(matrix.clone()), AdamRows.start(matrix.clone())
    for update in range(3):
        together.apply(rows, gradient[update].clone(), update + 1, SCHEDULE, 0.01)
        for at in range(len(rows)):
            apart.apply(rows[at : at + 1], gradient[update, at : at + 1].clone(), update + 1, SCHEDULE, 0.01)
    assert together.parameters.numpy().tobytes() == apart.parameters.numpy().tobytes()
