import numpy as np
import pytest
import torch

from training import cpu_functions
from training.cpu_functions import add_inner_products, add_matmul, tanh

KINDS = [torch.float32, torch.float64]
ROWS = [0, 1, 63, 64, 65, 1024, 2500]


@pytest.fixture(params=["with oneDNN", "without"])
def _either(request, monkeypatch) -> None:
    if request.param == "without":
        monkeypatch.setattr(cpu_functions, "_LINEAR", None)


def numbers(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape) + shape[0]), dtype=dtype)


def close(found: torch.Tensor, expected: np.ndarray) -> bool:
    tolerance = 1e-4 if found.dtype == torch.float32 else 1e-11
    return np.allclose(found.numpy(), expected, rtol=0, atol=tolerance)


@pytest.mark.usefixtures("_either")
@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("rows", ROWS)
def test_products_are_those_of_float64(rows, dtype):
    a, b, of_rows, inner = (numbers(*s, dtype=dtype) for s in ((rows, 48), (48, 144), (rows, 144), (48, 144)))
    products, sums = of_rows.clone(), inner.clone()
    add_matmul(products, a, b)
    assert close(products, of_rows.double().numpy() + a.double().numpy() @ b.double().numpy())
    add_inner_products(sums, a, of_rows)
    assert close(sums, inner.double().numpy() + a.double().numpy().T @ of_rows.double().numpy())


@pytest.mark.usefixtures("_either")
def test_a_transposed_matrix_and_slices_are_read_as_they_are():
    table = numbers(200, 96, dtype=torch.float32)
    a, b = table[:130, 16:64], numbers(32, 48, dtype=torch.float32).t()
    to = torch.zeros(130, 96)
    add_matmul(to[:, 32:64], a, b)
    assert close(to[:, 32:64], a.double().numpy() @ b.double().numpy())
    assert not to[:, :32].any()
    assert not to[:, 64:].any()


@pytest.mark.parametrize("dtype", KINDS)
def test_tanh_is_that_of_float64_in_place_and_beside(dtype):
    values = torch.cat([torch.linspace(-12, 12, 10_001, dtype=dtype), torch.tensor([0.0, 1e-20, 90, -90], dtype=dtype)])
    expected = np.tanh(values.double().numpy())
    rows = torch.zeros(len(values), 3, dtype=dtype)
    tanh(values, out=rows[:, 1])
    tanh(values, out=values)
    assert np.allclose(values.numpy(), expected, rtol=4e-7, atol=0)
    assert torch.equal(rows[:, 1], values)
    assert not rows[:, [0, 2]].any()
