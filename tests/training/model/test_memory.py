"""Sizes that do not fit in memory: refused by what training keeps, with what fits."""

from dataclasses import replace

import pytest

from clicktower.schemas.errors import UsageError
from clicktower.schemas.process import memory_bytes
from clicktower.schemas.section import changed
from clicktower.training.model.parameters import initial_parameters, layout_of, require_memory, training_bytes
from clicktower.training.model.recipe import may_be_large
from clicktower.training.trainer.optimisers import start_state
from tests.recipes import recipe_with

TABLE_ROWS = 3_000
RECIPE = recipe_with(name="small", cells=8)


@pytest.mark.parametrize("optimiser", ["nesterov", "sgd", "adam", "adagrad"])
@pytest.mark.parametrize("tower", ["lstm", "bag", "dssm"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_bytes_are_those_of_real_states_and_of_a_tower_that_is_written(optimiser, tower, dtype):
    recipe = changed(RECIPE, {"optimiser": optimiser, "tower": tower, "dtype": dtype})
    layout = layout_of(recipe, TABLE_ROWS)
    start = {name: initial_parameters(layout, name) for name in recipe.objective.towers}
    states = [start_state(recipe, matrix) for matrix in start.values()]
    kept = sum(array.nbytes for state in states for name, array in state.arrays().items() if array.ndim == 2)
    assert training_bytes(layout) == kept + start["query"].numpy().nbytes


def test_what_fits_is_named_and_fits(monkeypatch):
    recipe = changed(RECIPE, {"tower.cells": 100_000})
    layout = layout_of(recipe, TABLE_ROWS)
    monkeypatch.setattr("clicktower.training.model.parameters.memory_bytes", lambda: 10**9)
    with pytest.raises(UsageError, match=r"takes [0-9,.]+ GB of memory .* this machine has 1\.0 GB") as refused:
        require_memory(layout)
    fits = int(refused.value.fix.split("at most ")[1].split(", or")[0].replace(",", ""))
    smaller, larger = (changed(recipe, {"tower.cells": cells}) for cells in (fits, fits + 1))
    require_memory(layout_of(smaller, TABLE_ROWS))
    for recipe, workers in ((larger, 1), (smaller, 2)):
        with pytest.raises(UsageError, match="GB of memory"):
            require_memory(layout_of(recipe, TABLE_ROWS), workers)


def test_where_no_number_of_cells_fits_other_sizes_are_to_be_smaller(monkeypatch):
    recipe = replace(RECIPE, tower=changed(RECIPE, {"tower": {"kind": "dssm", "hidden": 200_000}}).tower)
    monkeypatch.setattr("clicktower.training.model.parameters.memory_bytes", lambda: 10**9)
    with pytest.raises(UsageError, match="Set smaller sizes in the recipe"):
        require_memory(layout_of(recipe, TABLE_ROWS))


def test_a_recipe_that_may_be_large_is_known_without_torch():
    assert not may_be_large(RECIPE, 51_000)
    assert may_be_large(changed(RECIPE, {"tower.cells": 1_000_000}), 51_000)
    assert may_be_large(changed(RECIPE, {"tower": {"kind": "dssm", "hidden": 1_000_000}}), 51_000)
    assert may_be_large(RECIPE, 2**32 - 1)


def test_the_limit_of_a_container_counts(tmp_path):
    there = memory_bytes(tmp_path / "none", tmp_path / "none")
    (tmp_path / "own").write_text("0::/a/b\n")
    (tmp_path / "groups" / "a" / "b").mkdir(parents=True)
    (tmp_path / "groups" / "a" / "b" / "memory.max").write_text("max\n")
    assert memory_bytes(tmp_path / "groups", tmp_path / "own") == there
    (tmp_path / "groups" / "a" / "memory.max").write_text("1000000\n")
    assert memory_bytes(tmp_path / "groups", tmp_path / "own") == 1_000_000
