"""What training starts from: another model's W and tower, a new head above it."""

from dataclasses import replace

import pytest
import torch

from clicktower.schemas.errors import UsageError
from clicktower.schemas.stage import open_result
from clicktower.training.model.model import load_model
from clicktower.training.model.parameters import Layout, Outputs, initial_parameters, layout_of
from clicktower.training.towers.text_table import WordRows
from clicktower.training.trainer.worker import start_of
from tests.recipes import recipe_with, varied
from tests.trained_model import TABLE_ROWS, matrix_of, trained_stage
from tests.training.trainer.objective_recipes import PAIRS

torch.set_num_threads(1)
TWO_TOWERS = recipe_with(name="clicks", tower="bilstm", cells=8, same_start=False, seed=5)
OUTPUTS = Outputs(unit="pairs", classes=("other", "same"))


@pytest.fixture(scope="module")
def clicks(tmp_path_factory) -> str:
    return open_result(trained_stage(str(tmp_path_factory.mktemp("clicks")), recipe=TWO_TOWERS)).data


def test_the_tower_is_the_other_model_s_and_the_head_is_new(clicks):
    layout = Layout(recipe=PAIRS, word_rows=WordRows(TABLE_ROWS), outputs=OUTPUTS)
    (found,) = start_of(layout, None, clicks).values()
    table, parts = layout.split(found)
    before = load_model(clicks)
    its_table, its_parts = before.layout.split(matrix_of(before, "query"))  # one tower for both sides: that of queries
    assert torch.equal(table, its_table)
    for name in ("W_rec", "b"):
        assert torch.equal(parts[name], its_parts[name])
    fresh = layout.split(initial_parameters(layout, "shared"))[1]
    heads = [name for name in parts if name.startswith("head.")]
    assert heads
    for name in heads:
        assert torch.equal(parts[name], fresh[name])
    assert torch.equal(found, layout.join(table, parts)), "the filling is zero"


def test_two_towers_start_from_their_own(clicks):
    found = start_of(layout_of(replace(TWO_TOWERS, seed=9), TABLE_ROWS), None, clicks)
    before = load_model(clicks)
    assert all(torch.equal(found[name], matrix_of(before, name)) for name in ("query", "document"))


@pytest.mark.parametrize(
    ("changes", "table_rows", "found"),
    [
        ({"cells": 9}, TABLE_ROWS, r"its recipe clicks has other towers \(W: \(51000, 48\), not \(51000, 54\)\)"),
        ({"tower": "lstm", "cells": 16}, TABLE_ROWS, "has other towers"),
        ({"tower": "max_pooled"}, TABLE_ROWS, "has other towers"),
        ({}, TABLE_ROWS + 1, r"\(W: \(51000, 48\), not \(51001, 48\)\)"),
    ],
)
def test_a_model_with_other_towers_is_refused(clicks, changes, table_rows, found):
    layout = Layout(recipe=varied(PAIRS, **changes), word_rows=WordRows(table_rows), outputs=OUTPUTS)
    with pytest.raises(UsageError, match=found) as error:
        start_of(layout, None, clicks)
    assert "same tower, cells and table rows" in error.value.fix
