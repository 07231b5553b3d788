import numpy as np
import pytest
import torch

from training.generative.decoder import word_gradient, word_losses

torch.set_num_threads(1)
POSITIONS, CELLS, WORDS = 23, 4, 7


def random_case() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """States, words said, W_out, b_out, and what each position's loss counts."""
    rng = np.random.default_rng(1)
    said = torch.from_numpy(rng.integers(0, WORDS, POSITIONS))
    state, weights, bias, by_loss = (
        torch.from_numpy(rng.normal(size=shape)) for shape in ((POSITIONS, CELLS), (CELLS, WORDS), WORDS, POSITIONS)
    )
    return state, said, weights, bias, by_loss


@pytest.mark.parametrize("kept", [0, 2, 100])
@pytest.mark.parametrize("block", [1, WORDS, 3 * WORDS + 1, 10_000])
def test_neither_blocks_nor_how_many_are_kept_change_a_loss_or_a_gradient(block, kept):
    state, said, weights, bias, by_loss = random_case()
    losses, trace = word_losses(state, said, weights, bias, block=block, kept=kept)
    assert len(trace.log_p) == min(kept, -(-POSITIONS // max(1, block // WORDS)))
    gradients = word_gradient(trace, by_loss, weights, bias)
    # Autograd, all at once.
    leaves = [value.clone().requires_grad_() for value in (state, weights, bias)]
    expected = -torch.log_softmax(leaves[0] @ leaves[1] + leaves[2], dim=1)[torch.arange(POSITIONS), said]
    (expected * by_loss).sum().backward()
    np.testing.assert_allclose(losses.numpy(), expected.detach().numpy(), rtol=1e-12)
    for found, leaf in zip(gradients, leaves, strict=True):
        np.testing.assert_allclose(found.numpy(), leaf.grad.numpy(), rtol=1e-11, atol=1e-13)


def test_scores_far_apart_give_finite_losses_and_exact_gradients():
    # One state of 1: the scores are W_out itself, 1000, 0 and -1000. Each loss is 1000 less the score, to within
    # e^-1000; the gradient by the scores is p - [said], p = (1, 0, 0).
    weights, bias = torch.tensor([[1000.0, 0.0, -1000.0]]), torch.zeros(3)
    for said, loss in ((0, 0.0), (1, 1000.0), (2, 2000.0)):
        losses, trace = word_losses(torch.ones(1, 1), torch.tensor([said]), weights, bias)
        assert losses.tolist() == [loss]
        by_state, by_weights, by_bias = word_gradient(trace, torch.ones(1), weights, bias)
        expected = torch.tensor([1.0, 0.0, 0.0])
        expected[said] -= 1
        assert by_bias.tolist() == expected.tolist() == by_weights[0].tolist()
        assert by_state.tolist() == [[loss]]
