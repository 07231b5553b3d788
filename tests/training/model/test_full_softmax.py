import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from clicktower.training.model.decoder import word_loss
from tests.training.finite_differences import by_autograd

torch.set_num_threads(1)
POSITIONS, CELLS, WORDS = 23, 4, 7


@pytest.mark.parametrize("block", [1, WORDS, 3 * WORDS + 1, 10_000])
def test_blocks_do_not_change_the_loss_or_a_gradient(block):
    rng = np.random.default_rng(1)
    said = torch.from_numpy(rng.integers(0, WORDS, POSITIONS))
    at = [torch.from_numpy(rng.normal(size=shape)) for shape in ((POSITIONS, CELLS), (CELLS, WORDS), WORDS)]
    found = by_autograd(lambda state, weights, bias: 3 * word_loss(state, said, weights, bias, block), *at)
    expected = by_autograd(
        lambda state, weights, bias: 3 * cross_entropy(state @ weights + bias, said, reduction="sum"), *at
    )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-11, atol=1e-13)


def test_scores_far_apart_give_finite_losses_and_exact_gradients():
    # One state of 1: the scores are W_out itself, 1000, 0 and -1000. Each loss is 1000 less the score, to within
    # e^-1000; the gradient by the scores is p - [said], p = (1, 0, 0).
    at = torch.ones(1, 1), torch.tensor([[1000.0, 0.0, -1000.0]]), torch.zeros(3)
    for said, loss in ((0, 0.0), (1, 1000.0), (2, 2000.0)):
        found, by_state, by_weights, by_bias = by_autograd(
            lambda state, weights, bias, said=said: word_loss(state, torch.tensor([said]), weights, bias), *at
        )
        assert found.item() == loss
        expected = torch.tensor([1.0, 0.0, 0.0])
        expected[said] -= 1
        assert by_bias.tolist() == expected.tolist() == by_weights[0].tolist()
        assert by_state.tolist() == [[loss]]
