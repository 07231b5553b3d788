from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.training import reference
from tests.training.texts import random_texts, table_of
from training.pair_gradient import Encoder, encode_batch, pair_batch, pair_gradient
from training.parameters import initial_parameters, layout_of, tower_names
from training.recipes import Recipe
from training.text_batch import text_batch

torch.set_num_threads(1)
TRIGRAMS, GAMMA = 20, 4.0


def small(tower: str, **changes) -> Recipe:
    values = {"name": "small", "tower": tower, "cells": 3, "dtype": "float64", "gamma": GAMMA, "initial_range": 0.7}
    return Recipe(**{**values, **changes})


def parameters(recipe: Recipe) -> dict[str, torch.Tensor]:
    layout = layout_of(recipe, TRIGRAMS)
    return {name: initial_parameters(recipe, layout, name) for name in tower_names(recipe)}


def encode(recipe: Recipe, matrices, table, index, side: str = "query") -> np.ndarray:
    batch = text_batch([(table, np.asarray(index))])
    return encode_batch(batch, side, encoder(recipe, matrices)).numpy()


def encoder(recipe: Recipe, matrices) -> Encoder:
    return Encoder(recipe, layout_of(recipe, TRIGRAMS), lambda name, rows: matrices[name][rows])


@pytest.mark.parametrize("tower", ["lstm", "rnn"])
def test_embeddings_equal_the_printed_equations_step_by_step(tower):
    recipe = small(tower)
    matrices = parameters(recipe)
    table, texts = random_texts(np.random.default_rng(5), 40, longest=9, num_trigrams=TRIGRAMS)
    for side in ("query", "document"):
        params = reference.from_matrix(matrices[side].numpy(), recipe.cells, tower)
        expected = np.array([reference.embed(params, text, tower) for text in texts])
        np.testing.assert_allclose(encode(recipe, matrices, table, range(40), side), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("tower", ["lstm", "rnn"])
def test_batch_mates_and_their_order_never_change_an_embedding(tower):
    recipe = small(tower, dtype="float32")
    matrices = parameters(recipe)
    rng = np.random.default_rng(6)
    table, _ = random_texts(rng, 30, longest=9, num_trigrams=TRIGRAMS)
    alone = np.concatenate([encode(recipe, matrices, table, [i]) for i in range(30)])
    for _ in range(5):
        index = rng.permutation(30)[: rng.integers(2, 31)]
        np.testing.assert_allclose(encode(recipe, matrices, table, index), alone[index], rtol=2e-6, atol=2e-7)


def test_a_text_without_words_is_refused():
    table = table_of([[0], []], [[1]])
    with pytest.raises(ValueError, match="at least one word"):
        text_batch([(table, np.array([0, 1]))])


@pytest.mark.parametrize("steps", [0, 3])
@pytest.mark.parametrize("tower", ["lstm", "rnn"])
def test_gradient_of_every_parameter_equals_finite_differences(tower, steps):
    check_gradient(small(tower, truncate_steps=steps))


def test_gradient_of_a_shared_tower_is_the_sum_of_both_sides():
    check_gradient(small("lstm", tie_towers=True))


def check_gradient(recipe: Recipe) -> None:
    """All entries of all parameters, touched or not, against central differences of the reference's loss.

    With truncation the steps further back than T hold still while a parameter is moved, which is what is meant.
    """
    n, num_pairs, kind, steps = 2, 3, recipe.tower, recipe.truncate_steps
    table, texts = random_texts(np.random.default_rng(8), num_pairs * (n + 2), longest=6, num_trigrams=TRIGRAMS)
    queries = np.arange(num_pairs)
    titles = np.arange(num_pairs, len(texts)).reshape(num_pairs, n + 1)
    matrices = parameters(recipe)
    batch = pair_batch((table, queries), (table, titles[:, 0]), (table, titles[:, 1:]))
    gradients, summed = pair_gradient(batch, encoder(recipe, matrices))

    found = {name: np.zeros(matrix.shape) for name, matrix in matrices.items()}
    for name, gradient in gradients:
        found[name][gradient.rows.numpy()] += gradient.values.numpy()

    base = {name: matrix.numpy().copy() for name, matrix in matrices.items()}
    early = {name: reference.from_matrix(m, recipe.cells, kind) for name, m in base.items()}

    def loss_at(moved: dict[str, np.ndarray]) -> float:
        params = {name: reference.from_matrix(m, recipe.cells, kind) for name, m in moved.items()}
        held = {"last_steps": steps} if steps else {}

        def embed(name: str, text) -> np.ndarray:
            return reference.embed(params[name], text, kind, early=early[name] if steps else None, **held)

        query, document = ("shared", "shared") if recipe.tie_towers else ("query", "document")
        return sum(
            reference.loss(embed(query, texts[q]), [embed(document, texts[d]) for d in titles[p]], recipe.gamma)
            for p, q in enumerate(queries)
        )

    assert summed.item() == pytest.approx(loss_at(base), rel=1e-12)
    for name, matrix in base.items():
        expected = np.zeros(matrix.shape)
        for at in np.ndindex(matrix.shape):
            nearby = []
            for sign in (1, -1):
                moved = {k: v.copy() for k, v in base.items()}
                moved[name][at] += sign * 1e-6
                nearby.append(loss_at(moved))
            expected[at] = (nearby[0] - nearby[1]) / 2e-6
        np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=2e-8)


@pytest.mark.parametrize(("overflow", "expected"), [("truncate", [[1, 2], [3]]), ("merge", [[1, 2], [3, 4, 5, 6]])])
def test_words_beyond_the_limit_are_dropped_or_become_one_bag_of_trigrams(overflow, expected):
    table = table_of([[0, 1, 2, 3], [1, 0]], [[1, 2], [3], [4, 5], [6]]).limited(2, overflow)
    long = [table.trigrams.take(table.words.take(np.array([0])).values[w : w + 1]).values.tolist() for w in range(2)]
    assert long == expected
    assert table.words.take(np.array([1])).values.tolist() == [1, 0]


def test_the_limit_changes_only_longer_texts():
    recipe = small("lstm")
    table, texts = random_texts(np.random.default_rng(3), 20, longest=8, num_trigrams=TRIGRAMS)
    matrices = parameters(recipe)
    params = reference.from_matrix(matrices["query"].numpy(), recipe.cells, "lstm")
    merged = [[*text[:4], [i for word in text[4:] for i in word]] if len(text) > 5 else text for text in texts]
    expected = np.array([reference.embed(params, text, "lstm") for text in merged])
    np.testing.assert_allclose(encode(recipe, matrices, table.limited(5, "merge"), range(20)), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("tower", "cells", "millions"), [("lstm", 96, 14.4), ("lstm", 64, 9.6), ("lstm", 32, 4.8), ("rnn", 288, 14.4)]
)
def test_parameters_of_w_are_as_many_as_table_iv_says(tower, cells, millions):
    # gates x cells x 50,000 trigrams: 3 x 96 x 50,000 = 14,400,000, and so on
    layout = layout_of(replace(small(tower), cells=cells), 50_000)
    assert layout.table_rows * layout.columns == millions * 1e6
