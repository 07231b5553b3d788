import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from clicktower.schemas.errors import StageError, UnknownVersionError, UsageError
from clicktower.schemas.text_contract import CONTRACT_VERSION, trigram_ids, words
from clicktower.training.model.model import Model, load_model, write_model
from clicktower.training.model.parameters import initial_parameters, layout_of
from clicktower.training.model.recipe import names, recipe
from tests.recipes import recipe_with, varied
from tests.rounding import assert_equal_but_for_rounding
from tests.trained_model import matrix_of
from tests.training import reference

torch.set_num_threads(1)
ROWS = 50_700
RECIPE = recipe_with(name="small", cells=4, initial_range=0.4)
TEXTS = ["Angle bracket", "", "2 in. x 4 ft. plank", "東京の金槌", "a", "angle  BRACKET", "  "]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    where = str(tmp_path_factory.mktemp("model"))
    layout = layout_of(RECIPE, ROWS)
    towers = {side: initial_parameters(layout, side) for side in ("query", "document")}
    write_model(where, Model.of(layout, towers))
    return where


@pytest.fixture(scope="module")
def model(folder) -> Model:
    return load_model(folder)


@pytest.mark.parametrize("side", ["query", "document"])
def test_encoding_equals_the_reference_from_text_to_vector(model, side):
    params = reference.from_matrix(matrix_of(model, side).double().numpy(), 4, "lstm")
    found = model.encode(TEXTS, side, empty="zero")
    assert found.dtype == np.float32
    for text, vector in zip(TEXTS, found, strict=True):
        ids = [trigram_ids([word], ROWS)[1].tolist() for word in words(text)]
        expected = reference.embed(params, ids, "lstm") if ids else np.zeros(4)
        assert_equal_but_for_rounding(vector, expected)


def test_texts_of_one_normalised_form_have_one_embedding(model):
    first, other = model.encode(["Angle bracket", "angle  BRACKET"], "document")
    assert np.array_equal(first, other)


def test_many_texts_are_encoded_as_each_alone(model):
    texts = [f"part {n} of {'very ' * (n % 7)}long title" for n in range(2_100)]  # more than two batches
    together = model.encode(texts, "document")
    for at in (0, 1_023, 1_024, 2_099):
        assert_equal_but_for_rounding(together[at], model.encode([texts[at]], "document")[0])


def test_no_texts_give_no_vectors(model):
    assert model.encode([], "query").shape == (0, 4)


def test_a_text_without_a_word_is_an_error_unless_zero_is_asked_for(model):
    with pytest.raises(UsageError, match=r"2 of \d+ texts have no word \(the first is number 2\)"):
        model.encode(TEXTS, "query")
    assert not model.encode(["", "a"], "query", empty="zero")[0].any()


def test_an_unknown_side_is_refused(model):
    with pytest.raises(UsageError, match="query or document"):
        model.encode(["a"], "title")


def test_the_folder_says_what_it_needs_to_be_read(folder):
    description = json.loads(Path(folder, "model.json").read_text())
    assert description["recipe"]["tower"]["cells"] == 4
    assert description["text_contract"]["table_rows"] == ROWS
    assert set(description["text_contract"]) == {"trigrams", "unicode", "table_rows"}
    assert description["parameters"] == 2 * (ROWS + 4 + 1) * 12  # W, W_rec, b of 3 gates x 4 cells, two towers


@pytest.mark.parametrize("field", ["model", "text contract"])
def test_another_major_version_is_refused(folder, tmp_path, field):
    description = json.loads(Path(folder, "model.json").read_text())
    if field == "model":
        description["schema_version"] = "1.2"  # of before recipes had sections
    else:
        description["text_contract"]["trigrams"] = "2.0"
    (tmp_path / "model.json").write_text(json.dumps(description))
    with pytest.raises(UnknownVersionError):
        load_model(str(tmp_path))


def test_a_model_of_an_earlier_minor_version_cuts_texts_as_of_now(folder, tmp_path):
    description = json.loads(Path(folder, "model.json").read_text())
    description["text_contract"]["trigrams"] = "1.0"
    (tmp_path / "model.json").write_text(json.dumps(description))
    shutil.copy(f"{folder}/model.safetensors", tmp_path)
    model = load_model(str(tmp_path))
    assert model.text_contract["trigrams"] == CONTRACT_VERSION  # which a release of it tells its clients
    assert np.array_equal(*model.encode(["deck screw", "deck\u200b scr\u00adew"], "query"))


@pytest.mark.parametrize(
    ("damage", "message"),
    [("missing", r"has no model\.json"), ("cut off", "damaged"), ("other shapes", "shapes"), ("other parts", "shapes")],
)
def test_a_damaged_model_is_refused(folder, tmp_path, damage, message):
    description = json.loads(Path(folder, "model.json").read_text())
    weights = Path(folder, "model.safetensors").read_bytes()
    description["recipe"]["tower"] |= {"other shapes": {"cells": 5}, "other parts": {"peepholes": True}}.get(damage, {})
    (tmp_path / "model.json").write_text(json.dumps(description))
    if damage != "missing":
        (tmp_path / "model.safetensors").write_bytes(weights[:-100] if damage == "cut off" else weights)
    with pytest.raises(StageError, match=message):
        load_model(str(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_a_model_of_every_recipe_comes_back_as_it_was_written(tmp_path, name):
    small = varied(recipe(name), cells=4)
    small = varied(small, hidden=6) if hasattr(small.tower, "hidden") else small
    apart = varied(small, same_start=False) if small.objective.kind == "clicks" else small
    towers = {side: initial_parameters(layout_of(apart, ROWS), side) for side in small.objective.towers}
    write_model(str(tmp_path), Model.of(layout_of(small, ROWS), towers))
    found = load_model(str(tmp_path))
    assert found.recipe == small
    assert all(torch.equal(matrix_of(found, side), matrix) for side, matrix in towers.items())
    assert found.encode(TEXTS, "document", empty="zero").shape == (len(TEXTS), small.tower.dimensions)
    stored = safetensors.torch.load_file(tmp_path / "model.safetensors")
    tower = small.objective.towers[0]
    assert stored[f"{tower}.W"].shape == (ROWS, small.columns)
    assert {k: tuple(stored[f"{tower}.{k}"].shape) for k, _ in small.tower_parts} == dict(small.tower_parts)
