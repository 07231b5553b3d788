"""AdaGrad and plain gradient descent: steps by hand, torch's own AdaGrad, numbers held below a size, stored states."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.optim.adagrad import _single_tensor_adagrad

from clicktower.training.model.parameters import initial_parameters, layout_of
from clicktower.training.model.recipe import Recipe
from clicktower.training.model.recipe_kinds import SGD, AdaGrad
from clicktower.training.trainer.adaptive_optimisers import AdaGradRows
from clicktower.training.trainer.large_update import Towers, Workers, WorkerShare, large_update
from clicktower.training.trainer.optimisers import MomentumSchedule, RowState, restored_state, start_state
from clicktower.training.trainer.reference_path import ReferencePath
from tests.recipes import varied
from tests.training.trainer.test_large_update import RECIPE, Minibatches

torch.set_num_threads(1)
SCHEDULE = MomentumSchedule(0.9, 0.9, 10)


def test_two_steps_of_adagrad_are_the_hand_worked_ones():
    """Λ = 1, ε = 0.1, gradients 0.5 and -0.1.

    s = 0.25: Λ = 1 - 0.1 x 0.5 / 0.5 = 0.9
    s = 0.26, sqrt(s) = 0.50990195: Λ = 0.9 + 0.1 x 0.1 / 0.50990195 = 0.91961161
    """
    state, row = AdaGradRows.start(torch.ones(2, 1, dtype=torch.float64)), torch.ones(1, dtype=torch.int64)
    for update, gradient, expected in ((1, 0.5, 0.9), (2, -0.1, 0.91961161)):
        state.apply(row, torch.tensor([[gradient]], dtype=torch.float64), update, SCHEDULE, 0.1)
        assert state.published(row, update, SCHEDULE).item() == pytest.approx(expected, abs=1e-8)
    assert state.parameters[0].item() == 1


def test_where_every_row_is_touched_it_is_torch_s_adagrad():
    rng, every = np.random.default_rng(3), torch.arange(6)
    start = torch.from_numpy(rng.normal(size=(6, 3)))
    matrix, squares, state = start.clone(), torch.zeros(6, 3, dtype=torch.float64), AdaGradRows.start(start.clone())
    for update in range(1, 9):
        gradient = torch.from_numpy(rng.normal(size=(6, 3)))
        _single_tensor_adagrad(
            [matrix], [gradient.clone()], [squares], [torch.tensor(update - 1.0)], None, None, lr=0.05,
            weight_decay=0.0, lr_decay=0.0, eps=1e-10, has_sparse_grad=False, maximize=False, differentiable=False,
            has_complex=False,
        )  # fmt: skip
        state.apply(every, gradient, update, SCHEDULE, 0.05)
    torch.testing.assert_close(state.parameters, matrix, rtol=1e-13, atol=1e-14)


def _after_one_update(recipe: Recipe) -> np.ndarray:
    """What one minibatch adds to the query tower's parameters."""
    layout = layout_of(recipe, 40)
    start = {name: initial_parameters(layout, name) for name in recipe.objective.towers}
    rows = {name: start_state(recipe, matrix.clone()) for name, matrix in start.items()}
    towers = Towers(layout=layout, rows=rows, schedule=SCHEDULE, path=ReferencePath(2))
    share = Minibatches(1, recipe).batches[0]
    large_update(towers, WorkerShare(share, 1, len(share), Workers()))
    return (rows["query"].all_published(1, SCHEDULE) - start["query"]).numpy()


def test_no_number_of_the_summed_gradient_is_larger_than_clip_value():
    free, most = replace(RECIPE, optimiser=SGD(step=0.05)), 0.02
    gradient = _after_one_update(free) / -0.05
    assert (np.abs(gradient) > most).sum() > 50
    found = _after_one_update(varied(free, clip_value=most)) / -0.05
    np.testing.assert_allclose(found, np.clip(gradient, -most, most), rtol=0, atol=1e-14)


@pytest.mark.parametrize(("optimiser", "kind"), [(SGD(), RowState), (AdaGrad(), AdaGradRows)])
def test_a_state_that_was_stored_goes_on_to_the_same_bits(optimiser, kind):
    rng = np.random.default_rng(4)
    state = start_state(Recipe(name="any", optimiser=optimiser), torch.from_numpy(rng.normal(size=(4, 3))).float())
    for update in (1, 2, 3):
        rows, gradient = torch.tensor([0, update]), torch.from_numpy(rng.normal(size=(2, 3))).float()
        stored = restored_state({name: array.copy() for name, array in state.arrays().items()})
        assert type(stored) is kind
        for each in (state, stored):
            each.apply(rows, gradient.clone(), update, SCHEDULE, 0.01)
        assert stored.parameters.numpy().tobytes() == state.parameters.numpy().tobytes()
