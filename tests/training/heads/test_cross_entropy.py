import math

import numpy as np
import pytest
import torch

from tests.training.finite_differences import STEP
from training.heads.layers import cross_entropy


def test_loss_and_gradient_of_one_text_are_the_hand_worked_ones():
    # logits (0, ln 2, ln 5): softmax = (1, 2, 5) / 8. Of class 1: l = ln(8 / 2) = ln 4, gradient (1, 2 - 8, 5) / 8.
    logits_BC = torch.tensor([[0.0, math.log(2), math.log(5)]], dtype=torch.float64)
    losses_B, by_logits_BC = cross_entropy(logits_BC, torch.tensor([1]))
    assert losses_B.tolist() == pytest.approx([math.log(4)])
    assert by_logits_BC[0].tolist() == pytest.approx([0.125, -0.75, 0.625])


def test_gradient_equals_finite_differences():
    logits_BC = torch.from_numpy(np.random.default_rng(2).normal(size=(4, 3)) * 3)
    labels_B = torch.tensor([2, 0, 1, 2], dtype=torch.int32)
    by_logits_BC = cross_entropy(logits_BC, labels_B)[1]
    for at in np.ndindex(4, 3):
        ends = []
        for step in (STEP, -STEP):
            moved = logits_BC.clone()
            moved[at] += step
            row = [math.exp(number) for number in moved[at[0]].tolist()]
            ends.append(math.log(math.fsum(row) / row[labels_B[at[0]]]))
        assert by_logits_BC[at].item() == pytest.approx((ends[0] - ends[1]) / (2 * STEP), rel=1e-6, abs=1e-8)


def test_large_logits_give_finite_losses():
    logits_BC = torch.tensor([[1e4, 0.0, -1e4], [1e4, 0.0, -1e4]])
    losses_B, by_logits_BC = cross_entropy(logits_BC, torch.tensor([0, 2]))
    assert losses_B.tolist() == [0.0, 2e4]
    assert by_logits_BC.tolist() == [[0, 0, 0], [1, 0, -1]]


@pytest.mark.parametrize("label", [-1, 3])
def test_a_class_that_there_is_not_is_refused(label):
    with pytest.raises(RuntimeError, match="out of bounds"):
        cross_entropy(torch.zeros(2, 3), torch.tensor([0, label]))
