import math

import numpy as np
import pytest
import torch

from clicktower.training.towers.recurrent import tanh
from clicktower.training.trainer.shard_data import ln


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tanh_is_that_of_float64_in_place_and_into_a_column(dtype):
    values = torch.cat([torch.linspace(-12, 12, 10_001, dtype=dtype), torch.tensor([0.0, 1e-20, 90, -90], dtype=dtype)])
    expected = np.tanh(values.double().numpy())
    rows = torch.zeros(len(values), 3, dtype=dtype)
    tanh(values, out=rows[:, 1])
    tanh(values, out=values)
    # NumPy promises four units in the last place, on any processor.
    np.testing.assert_allclose(values.numpy(), expected, rtol=8 * torch.finfo(dtype).eps, atol=0)
    assert torch.equal(rows[:, 1], values)
    assert not rows[:, [0, 2]].any()


def test_logarithms_are_the_c_librarys_of_each_value():
    values = np.array([[1.0, 2.5, 1.0], [np.e, 1e300, 2.5]])
    found = ln(values)
    assert found.dtype == np.float64
    assert found.tolist() == [[math.log(value) for value in row] for row in values.tolist()]
    assert ln(np.array([3, 1, 3])).tolist() == [math.log(3), 0.0, math.log(3)]
    assert ln(np.empty(0)).tolist() == []
