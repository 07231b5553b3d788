"""Small problems that can be learnt are learnt; the same with permuted labels is not; pretraining comes first."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from clicktower.schemas import storage
from clicktower.schemas.stage import open_result
from clicktower.training.model.model import load_model
from clicktower.training.trainer.launch import pretraining
from tests.recipes import varied
from tests.training.trainer import objective_recipes as recipes
from tests.training.trainer.labelled_builds import built, statements
from tests.training.trainings import train

pytestmark = pytest.mark.slow

torch.set_num_threads(1)
# One micro-batch to a minibatch: who computes what is in test_exactness.
PAIRS, TEXTS, GENERATE = (
    replace(recipe, micro_batch=recipe.minibatch) for recipe in (recipes.PAIRS, recipes.TEXTS, recipes.GENERATE)
)


def curve(result) -> list[dict]:
    return json.loads(storage.read_bytes(f"{result.data}/curves.json"))


def weights(result) -> bytes:
    return storage.read_bytes(f"{result.data}/model.safetensors")


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> str:
    return str(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def generated(pairs_build, store):
    recipe = varied(GENERATE, reformulate=True, paraphrase="same", epochs=4, decoder_cells=16, step=0.02)
    return train(pairs_build, store=store, recipe=recipe, threads=1)


def test_which_texts_mean_the_same_is_learnt(pairs_build, store):
    result = train(pairs_build, store=store, recipe=varied(PAIRS, epochs=10, dropout=0.0), threads=1)
    last = curve(result)[-1]
    assert last["dev_accuracy"] > 0.9
    assert last["dev_area_under_roc"] > 0.95
    assert last["dev_loss"] < 0.3 < np.log(2)
    assert result.manifest.outcome.metrics["watched"] == "held-out labels"


def test_classes_of_texts_are_learnt_above_a_pruned_head_but_not_permuted_ones(texts_build, store, tmp_path):
    recipe = replace(TEXTS, epochs=5)
    last = curve(train(texts_build, store=store, recipe=recipe, threads=1))[-1]
    assert last["dev_accuracy"] > 0.95
    lines = statements(240)
    labels = np.random.default_rng(1).permutation([label for _, label in lines])
    permuted = built(tmp_path, [(text, label) for (text, _), label in zip(lines, labels, strict=True)])
    by_chance = curve(train(permuted, store=store, recipe=recipe, threads=1))[-1]
    # Classes have shares of 3/8, 3/8 and 2/8; of about 48 held-out texts 0.375 ± 3 x 0.07.
    assert by_chance["dev_accuracy"] < 0.6
    assert by_chance["train_loss"] > 2 * last["train_loss"]


def test_texts_are_said_again_better_with_each_epoch(generated):
    points = curve(generated)
    for kind in ("dev_word_repeat", "dev_word_reformulate"):
        assert points[-1][kind] < 0.8 * points[0][kind]
    # A word at random of 30, the unknown one and the end costs ln 32 = 3.47.
    assert points[-1]["dev_word_repeat"] < 2.5
    assert points[-1]["dev_kl"] >= 0
    assert generated.manifest.outcome.metrics["watched"] == "reconstruction of held-out texts"


def test_the_model_folder_has_what_it_says_of_a_text(generated, pairs_build, store):
    description = json.loads(storage.read_bytes(f"{generated.data}/model.json"))
    vocabulary = description["outputs"]["vocabulary"]
    assert len(vocabulary) == 30
    assert {"hammer", "steel"} <= set(vocabulary)
    model = load_model(generated.data)
    assert model.encode(["steel hammer"], "query").shape == (1, 12)
    classifier = load_model(train(pairs_build, store=store, recipe=PAIRS, threads=1).data)
    assert classifier.outputs.classes == ("other", "same")
    assert classifier.outputs.unit == "pairs"


def test_to_pretrain_is_to_start_from_a_model_of_texts(pairs_build, store, tmp_path):
    """One recipe, or two requests one after the other: the same model; without the first, another."""
    both = varied(GENERATE, name="both", objective="classify", features="w2", head_units=8, pretrain_epochs=1,
                   epochs=1, reformulate=True, paraphrase="same")  # fmt: skip
    in_one = train(pairs_build, store=store, recipe=both, threads=1)
    first = train(pairs_build, store=store, recipe=pretraining(both), threads=1)
    assert first.reused
    assert (pretraining(both).objective.kind, pretraining(both).epochs) == ("generate", 1)
    alone = varied(both, name="second", pretrain="none")
    second = train(pairs_build, store=store, recipe=alone, threads=1, start=first.folder)
    assert weights(second) == weights(in_one)
    assert second.manifest.digest != in_one.manifest.digest
    assert second.manifest.request.inputs["start"] == first.manifest.digest
    from_nothing = train(pairs_build, store=store, recipe=alone, threads=1)
    assert weights(from_nothing) != weights(second)
    assert from_nothing.manifest.request.inputs["start"] is None


def test_clicked_titles_serve_as_reformulations_and_a_tower_of_clicks_as_a_start(clicks_build, pairs_build, store):
    recipe = varied(GENERATE, reformulate=True, epochs=1)
    said = train(clicks_build, store=store, recipe=recipe, threads=1)
    assert curve(said)[-1]["dev_word_reformulate"] is not None
    again = train(clicks_build, store=store, recipe=varied(recipe, reformulate=False), threads=1)
    assert curve(again)[-1]["dev_word_reformulate"] is None
    labelled = varied(PAIRS, tower="variational", latent=6, features="w2", epochs=1)
    result = train(pairs_build, store=store, recipe=labelled, threads=1, start=said.folder)
    assert open_result(result.folder).manifest.request.inputs["start"] == said.manifest.digest
