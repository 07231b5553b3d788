import numpy as np
import pytest
import torch

from clicktower.training.model.head import head_of
from clicktower.training.model.label_settings import Classify, GatedFeatures, Pruned


def gated(factors: int = 5):
    settings = Classify(features=GatedFeatures(factors=factors), head=Pruned(row_units=7, column_units=2))
    return head_of(settings, dimensions=60, rows=6, classes=3, unit="pairs")


def generator(key: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=key))


def test_every_part_is_there_in_order_with_its_shape():
    head = gated()
    found = head.initial(generator(1))
    assert [(name, tuple(part.shape)) for name, part in found.items()] == list(head.parts)
    assert all(name.startswith("head.") for name in found)
    assert {part.dtype for part in found.values()} == {torch.float64}


# Inputs and outputs of one matrix: W_fh 10 -> 5, W_v 5 -> 7, W_h 6 -> 2, W_2 6 · 7 + 5 · 2 = 52 -> 3.
@pytest.mark.parametrize(("name", "both"), [("head.W_fh", 15), ("head.W_v", 12), ("head.W_h", 8), ("head.W_2", 55)])
def test_weights_fill_glorots_range(name, both):
    part, limit = gated().initial(generator(1))[name], (6 / both) ** 0.5
    assert 0.9 * limit < part.abs().max().item() <= limit
    assert abs(part.mean().item()) < 4 * limit / (3 * part.numel()) ** 0.5


def test_biases_begin_at_zero():
    found = gated().initial(generator(1))
    assert not any(part.any() for name, part in found.items() if name.startswith("head.b_"))


def test_parameters_are_a_function_of_the_generators_key():
    first, again, other = (gated().initial(generator(key)) for key in (1, 1, 2))
    for name in ("head.W_fh", "head.W_2"):
        assert torch.equal(first[name], again[name])
        assert not torch.equal(first[name], other[name])
    assert not torch.equal(first["head.W_fh"], first["head.W_fp"])
