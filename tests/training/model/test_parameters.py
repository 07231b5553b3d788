import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clicktower.training.model.parameters import Layout, initial_parameters, layout_of
from clicktower.training.towers.text_table import WordRows
from tests.recipes import recipe_with

TABLE_ROWS = 200


def start(name: str, **changes) -> torch.Tensor:
    recipe = recipe_with(name="small", cells=4, **changes)
    return initial_parameters(layout_of(recipe, TABLE_ROWS), name)


def test_towers_start_from_the_same_numbers_unless_told_otherwise():
    assert torch.equal(start("query"), start("document"))
    assert not torch.equal(start("query", same_start=False), start("document", same_start=False))


def test_the_start_is_a_function_of_the_seed_within_its_range():
    assert torch.equal(start("query"), start("query"))
    assert not torch.equal(start("query"), start("query", seed=2))
    assert start("query", initial_range=0.03).abs().max() <= 0.03


def test_the_start_is_one_draw_of_numbers_however_many_rows():
    recipe = recipe_with(name="small", cells=4, same_start=False)
    layout = layout_of(recipe, 5_000)
    one_draw = np.random.Generator(np.random.Philox(key=np.array([recipe.seed, 1], np.uint64)))
    expected = (2 * one_draw.random((layout.rows, layout.columns)) - 1) * recipe.initial_range
    table, _ = layout.split(initial_parameters(layout, "document"))
    assert np.array_equal(table.numpy(), expected[:5_000].astype(np.float32))


def parts_of(**changes) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    recipe = recipe_with(name="small", cells=4, forget_gate=True, peepholes=True, **changes)
    layout = layout_of(recipe, TABLE_ROWS)
    return layout.split(initial_parameters(layout, "query"))


def test_what_is_recurrent_may_start_in_a_range_of_its_own():
    (table, parts), (its_table, its) = parts_of(), parts_of(recurrent_range=0.05)
    assert torch.equal(its_table, table)
    assert set(its) == {"W_rec", "b", "W_peep"}
    for name, values in its.items():
        assert torch.allclose(values, parts[name] / 4)  # ±0.05 of the same numbers that were ±0.2


@pytest.mark.parametrize("tower", ["lstm", "bilstm"])
def test_the_forget_bias_moves_the_forget_gates_of_each_direction_and_nothing_else(tower):
    (table, parts), (its_table, its) = parts_of(tower=tower), parts_of(tower=tower, forget_bias=3.0)
    assert torch.equal(its_table, table)
    assert torch.equal(its["W_rec"], parts["W_rec"])
    one_way = [0.0] * 4 + [3.0] * 4 + [0.0] * 8  # output gate, forget gate, input gate and candidate of 4 cells
    expected = torch.tensor(one_way * (2 if tower == "bilstm" else 1))
    assert torch.allclose(its["b"] - parts["b"], expected)


def test_row_weights_multiply_the_rows_of_the_table_and_no_other_part():
    recipe = recipe_with(name="small", cells=4)
    layout = layout_of(recipe, TABLE_ROWS)
    weights = np.linspace(0, 3, TABLE_ROWS, dtype=np.float32)
    even, weighted = (initial_parameters(layout, "query", given) for given in (None, weights))
    assert torch.equal(weighted[:TABLE_ROWS], even[:TABLE_ROWS] * torch.from_numpy(weights)[:, None])
    assert torch.equal(weighted[TABLE_ROWS:], even[TABLE_ROWS:])
    assert even[TABLE_ROWS:].any()


SHAPES = st.lists(st.lists(st.integers(1, 7), min_size=1, max_size=2).map(tuple), max_size=4)


@given(shapes=SHAPES, columns=st.integers(1, 9), table_rows=st.integers(1, 5))
def test_parts_come_out_of_the_matrix_as_they_went_in_each_from_a_row_of_its_own(shapes, columns, table_rows):
    recipe = SimpleNamespace(columns=columns, tower_parts=tuple((f"p{k}", s) for k, s in enumerate(shapes)))
    layout = Layout(recipe=recipe, word_rows=WordRows(table_rows))
    size = iter(range(1, 1_000))
    table = torch.arange(table_rows * columns).view(table_rows, columns)
    put = {name: torch.full(shape, next(size)) for name, shape in layout.parts}
    matrix = layout.join(table, put)
    assert matrix.shape == (layout.rows, columns)
    found_table, found = layout.split(matrix)
    assert torch.equal(found_table, table)
    assert list(found) == list(put)
    assert all(torch.equal(found[name], put[name]) for name in put)
    row = table_rows
    for name, shape in layout.parts:
        num = math.ceil(math.prod(shape) / columns)
        assert matrix[row : row + num].sum() == put[name].sum(), "the rest of its rows is zero"
        row += num
    some = torch.tensor([0, table_rows - 1])
    assert torch.equal(layout.split(matrix[layout.touched(some)])[0], table[some])


def test_what_fills_up_a_parts_last_row_starts_at_zero():
    recipe = recipe_with(name="small", cells=4, forget_gate=True, peepholes=True)
    layout = layout_of(recipe, TABLE_ROWS)
    matrix = initial_parameters(layout, "query")
    # 3 x 4 peepholes in a row of 4 x 4 columns
    assert layout.rows == TABLE_ROWS + 4 + 1 + 1
    assert matrix[-1, :12].all()
    assert not matrix[-1, 12:].any()
