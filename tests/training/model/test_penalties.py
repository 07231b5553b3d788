import pytest
import torch

from clicktower.training.model.head import penalise

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
    gradient = {name: torch.ones_like(part) for name, part in PARTS.items()}
    assert penalise(gradient, PARTS, l1, l2).item() == pytest.approx(value)
    added = {name: (values - 1).tolist() for name, values in gradient.items()}
    assert added == {"W_rec": [[0.0]], "head.W_1": by_first, "head.b_1": [0.0, 0.0], "head.W_2": by_second}
