from dataclasses import replace

import torch

from training.parameters import initial_parameters, layout_of
from training.recipes import lstm_96

TABLE_ROWS = 200


def start(name: str, **changes) -> torch.Tensor:
    recipe = replace(lstm_96(), cells=4, **changes)
    return initial_parameters(recipe, layout_of(recipe, TABLE_ROWS), name)


def test_towers_start_from_the_same_numbers_unless_told_otherwise():
    assert torch.equal(start("query"), start("document"))
    assert not torch.equal(start("query", same_start=False), start("document", same_start=False))


def test_the_start_is_a_function_of_the_seed_within_its_range():
    assert torch.equal(start("query"), start("query"))
    assert not torch.equal(start("query"), start("query", seed=2))
    assert start("query", initial_range=0.03).abs().max() <= 0.03
