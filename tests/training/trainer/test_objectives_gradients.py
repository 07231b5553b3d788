"""The loss and the whole gradient of a micro-batch: tower, head or decoder, penalties, the tower's own loss."""

import math

import numpy as np
import pytest
import torch

from tests.recipes import recipe_with
from tests.training import reference
from tests.training.model import reference_decoder, reference_head
from tests.training.towers.dense import dense
from tests.training.trainer.examples import Case, labelled_case, rephrasing_case

torch.set_num_threads(1)
CLASSIFY = {"objective": "classify", "dtype": "float64", "cells": 3}
SNLI = recipe_with(name="snli", tower="self_attentive", attention_units=4, hops=2, penalty=0.3, features="gated",
                   factors=3, head_units=5, dropout=0.4, l1=0.02, l2=0.03, **CLASSIFY)  # fmt: skip
QUORA = recipe_with(name="quora", tower="variational", latent=3, features="w2", head_units=6, l1=0.01, **CLASSIFY)
YELP = recipe_with(name="yelp", tower="self_attentive", attention_units=3, hops=2, penalty=1.0, head="pruned",
                   row_units=2, column_units=1, dropout=0.5, l2=0.01, **CLASSIFY)  # fmt: skip
INFERSENT = recipe_with(name="infersent", tower="max_pooled", features="siamese", head_units=5, **CLASSIFY)
REPEAT = recipe_with(name="repeat", objective="generate", tower="variational", latent=3, cells=3,
                decoder_cells=4, decoder_columns=3, vocabulary=4, kappa_rate=0.5, kappa_middle=4,
                dtype="float64")  # fmt: skip
CASES = {
    "self-attentive gated L1 L2 dropout": lambda: labelled_case(SNLI),
    "variational w2 L1": lambda: labelled_case(QUORA),
    "self-attentive texts pruned dropout": lambda: labelled_case(YELP, unit="texts"),
    "max-pooled siamese": lambda: labelled_case(INFERSENT),
    "variational generate": lambda: rephrasing_case(REPEAT),
}
UPDATE = 3


@pytest.fixture(scope="module", params=list(CASES))
def case(request) -> Case:
    return CASES[request.param]()


def test_every_parameter_s_gradient_is_its_finite_difference(case):
    """Each part along four random directions: a wrong number in it shows in all of them."""
    ((name, gradient),), _ = case.batch.gradient(case.encoder(), UPDATE)
    assert name == "shared"
    of_matrix = dense(gradient, case.layout)
    rng, step = np.random.default_rng(6), 1e-5
    for part in ("W", *dict(case.layout.parts)):
        for _ in range(4):
            direction = _only(case, part, torch.from_numpy(rng.normal(size=case.matrix.shape)))
            there, back = (case.loss(case.matrix + sign * step * direction, UPDATE) for sign in (1, -1))
            expected = (there - back) / (2 * step)
            assert (of_matrix * direction).sum().item() == pytest.approx(expected, rel=1e-6, abs=1e-7), part


def test_rows_of_trigrams_that_do_not_occur_have_no_gradient(case):
    ((_, gradient),), _ = case.batch.gradient(case.encoder(), UPDATE)
    used = {trigram for text in case.texts for word in text for trigram in word}
    assert set(gradient.rows.tolist()) == used


def test_the_loss_is_the_printed_one(case):
    """Example by example, number by number, by references that share nothing with what is tested."""
    expected = (_labelled_loss if case.recipe.objective.kind == "classify" else _rephrasing_loss)(case)
    assert case.loss(case.matrix, UPDATE) == pytest.approx(expected, rel=1e-9)


def _labelled_loss(case: Case) -> float:
    """Σ (-log p(label) + l1 ||ψ||₁ + l2 ||ψ||²) over examples, and the penalty of each text that is encoded."""
    recipe, kind = case.recipe, reference.kind_of(case.recipe)
    tower, parts = _parameters(case)
    vectors = [reference.embed(tower, text, kind) for text in case.texts]
    examples, rows = case.examples, recipe.tower.rows
    total = math.fsum(
        reference.own_loss(tower, text, kind, getattr(recipe.tower, "penalty", 0.0)) for text in case.texts
    )
    weights = np.concatenate([part.ravel() for name, part in parts.items() if name.startswith("head.W_")])
    for i, label in enumerate(examples.labels):
        masks = {} if examples.masks is None else {
            "keep_features": examples.masks.features[i].numpy(), "keep_hidden": examples.masks.hidden[i].numpy(),
            "dropout": recipe.objective.dropout}  # fmt: skip
        pair = tuple(vectors[side[i]] for side in examples.sides)
        logits = reference_head.logits(recipe.objective.features.kind, pair, parts, rows, **masks)
        total += math.log(math.fsum(np.exp(logits))) - logits[label]
        total += recipe.objective.l1 * math.fsum(np.abs(weights)) + recipe.objective.l2 * math.fsum(weights**2)
    return total


def _rephrasing_loss(case: Case) -> float:
    """Σ (-log p(s'|z) + κ KL), with κ = sigmoid(0.5 (2 - 4)) at the third update, which two others came before."""
    tower, parts = _parameters(case)
    examples, kappa, total = case.examples, 1 / (1 + math.exp(1)), 0.0
    offsets = examples.words.offsets
    for i, text in enumerate(examples.texts[1]):
        mu, sigma = np.split(reference.embed(tower, case.texts[text], reference.kind_of(case.recipe)), 2)
        z = mu + sigma * examples.noise_Bh[i]
        total += reference_decoder.loss(parts, z, examples.words.values[offsets[i] : offsets[i + 1]].tolist())
        total += kappa * 0.5 * math.fsum(mu**2 + sigma**2 - 1 - np.log(sigma**2))
    return total


def _parameters(case: Case) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """(the tower's as the reference has them, those beside it by name)."""
    table, parts = case.layout.split(case.matrix)
    beside = {name: part.numpy() for name, part in parts.items() if name.startswith(("head.", "decoder."))}
    own = [part.numpy() for name, part in parts.items() if name not in beside]
    columns = case.layout.columns
    padded = [np.append(part.ravel(), np.zeros(-part.size % columns)).reshape(-1, columns) for part in own]
    matrix = np.concatenate([table.numpy(), *padded])
    return reference.from_matrix(matrix, case.recipe.tower.cells, reference.kind_of(case.recipe)), beside


def _only(case: Case, part: str, direction: torch.Tensor) -> torch.Tensor:
    """A direction with zeros everywhere but in one part."""
    table, parts = case.layout.split(direction)
    of_table = table if part == "W" else torch.zeros_like(table)
    return case.layout.join(of_table, {k: v if k == part else torch.zeros_like(v) for k, v in parts.items()})
