import pytest
import torch

from tests.training.finite_differences import by_autograd
from training.model.head import penalty

# A tower's part and a bias are there too, and count nothing.
PARTS = {
    "W_rec": torch.tensor([[100.0]]),
    "head.W_1": torch.tensor([[1.0, -2.0], [0.0, 3.0]]),
    "head.b_1": torch.tensor([50.0, 50.0]),
    "head.W_2": torch.tensor([[-4.0]]),
}


@pytest.mark.parametrize(
    ("l1", "l2", "value", "by_first", "by_second"),
    [
        # 0.5 (1 + 2 + 0 + 3 + 4) = 5
        (0.5, 0.0, 5.0, [[0.5, -0.5], [0.0, 0.5]], [[-0.5]]),
        # 0.5 (1 + 4 + 0 + 9 + 16) = 15; 2 · 0.5 w = w
        (0.0, 0.5, 15.0, [[1.0, -2.0], [0.0, 3.0]], [[-4.0]]),
        (0.5, 0.5, 20.0, [[1.5, -2.5], [0.0, 3.5]], [[-4.5]]),
    ],
    ids=["L1", "L2", "both"],
)
def test_penalties_are_the_hand_worked_ones(l1, l2, value, by_first, by_second):
    def of(*parts: torch.Tensor) -> torch.Tensor:
        return penalty(dict(zip(PARTS, parts, strict=True)), l1, l2)

    found, by_tower, by_w_1, by_bias, by_w_2 = by_autograd(of, *PARTS.values())
    assert found.item() == pytest.approx(value)
    assert (by_w_1.tolist(), by_w_2.tolist()) == (by_first, by_second)
    assert not by_tower.any()
    assert not by_bias.any()
