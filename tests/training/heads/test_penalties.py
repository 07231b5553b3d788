import pytest
import torch

from training.heads.layers import l1_penalty, l2_penalty

# A tower's part and a bias are there too, and count nothing.
PARTS = {
    "W_rec": torch.tensor([[100.0]]),
    "head.W_1": torch.tensor([[1.0, -2.0], [0.0, 3.0]]),
    "head.b_1": torch.tensor([50.0, 50.0]),
    "head.W_2": torch.tensor([[-4.0]]),
}


def test_l1_is_the_hand_worked_one():
    # 0.5 (1 + 2 + 0 + 3 + 4) = 5
    value, by_parts = l1_penalty(PARTS, 0.5)
    assert value.item() == pytest.approx(5.0)
    assert {name: by.tolist() for name, by in by_parts.items()} == {
        "head.W_1": [[0.5, -0.5], [0.0, 0.5]],
        "head.W_2": [[-0.5]],
    }


def test_l2_is_the_hand_worked_one():
    # 0.5 (1 + 4 + 0 + 9 + 16) = 15; 2 · 0.5 w = w
    value, by_parts = l2_penalty(PARTS, 0.5)
    assert value.item() == pytest.approx(15.0)
    assert {name: by.tolist() for name, by in by_parts.items()} == {
        "head.W_1": [[1.0, -2.0], [0.0, 3.0]],
        "head.W_2": [[-4.0]],
    }
