"""What benchmarks/printed_sizes.py compares is the same model, and another one would end it."""

import numpy as np
import pytest
import torch

from benchmarks.printed_sizes import CLICK_RECIPES, RECIPES, Bench, click_agreement
from benchmarks.real_pairs import shard_of
from benchmarks.real_questions import QuestionPair
from benchmarks.speed.step import TOLERANCE
from benchmarks.speed.variants import start_of
from clicktower.schemas.section import changed
from clicktower.training.model.recipe import recipe as named_recipe
from clicktower.training.trainer.shard_data import MicroBatch

pytestmark = pytest.mark.slow

WORDS = ["how", "can", "i", "learn", "to", "swim", "über", "fast?"]
SMALL = {
    "tower.cells": 5, "tower.attention_units": 3, "tower.hops": 2, "tower.latent": 4, "objective.head.units": 6,
    "word_vectors.columns": 3, "minibatch": 8, "micro_batch": 8,
}  # fmt: skip


@pytest.fixture(params=RECIPES)
def bench(request) -> Bench:
    recipe = RECIPES[request.param]
    known = type(recipe.tower).__dataclass_fields__
    fields = {k: v for k, v in SMALL.items() if not k.startswith("tower.") or k.removeprefix("tower.") in known}
    random = np.random.default_rng(1)
    texts = [" ".join(random.choice(WORDS, random.integers(1, 9))) for _ in range(40)]
    drawn = [QuestionPair(str(random.integers(2)), *pair) for pair in zip(texts[::2], texts[1::2], strict=True)]
    return Bench(drawn, changed(recipe, fields))


def test_stock_parts_compute_the_same_losses_and_gradients(bench):
    assert 0 < bench.agreement(np.arange(3, 11)) < TOLERANCE


def test_both_make_an_update_of_every_parameter(bench):
    ours = bench.towers.rows["shared"].parameters.clone()
    stock = {name: value.detach().clone() for name, value in bench.stock_model.named_parameters()}
    bench.ours(np.arange(8))
    bench.stock(np.arange(8))
    _, parts = bench.layout.split(bench.towers.rows["shared"].parameters - ours)
    assert all(moved.any() for moved in parts.values())
    after = dict(bench.stock_model.named_parameters())
    assert [name for name, value in stock.items() if torch.equal(value, after[name]) and "bias_hh" not in name] == []


def test_a_peer_that_computes_something_else_ends_the_benchmark(bench):
    with torch.no_grad():
        bench.stock_model.out.bias[1] += 0.01
    with pytest.raises(SystemExit, match="compute different things"):
        bench.agreement(np.arange(3, 11))


@pytest.mark.parametrize("name", CLICK_RECIPES)
def test_dssm_and_clsm_in_stock_parts_make_the_same_update(name):
    random = np.random.default_rng(1)
    titles = [" ".join(random.choice(WORDS, random.integers(1, 7))) + f" {k}" for k in range(12)]
    data = shard_of([(title.split()[0], title) for title in titles], titles, 4)
    recipe = changed(named_recipe(name), {"tower.hidden": 5, "tower.cells": 3})
    rows = np.arange(len(data.train[0]))
    minibatch = [MicroBatch(0, half, 0) for half in np.array_split(rows, 2)]
    assert 0 < click_agreement(recipe, start_of(recipe, data.word_rows.trigram_rows), data, minibatch) < TOLERANCE
