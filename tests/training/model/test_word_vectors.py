"""Word vectors as input: the rows that words have, what a tower makes of them, and what training moves."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import safetensors.numpy
import torch

from clicktower.flows.releases.query_onnx import CannotExport, golden, query_onnx
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, UnknownVersionError, UsageError
from clicktower.schemas.labelled_shard import LABELLED_CATALOGUE, LABELLED_VERSION, labelled_schema
from clicktower.schemas.manifest import Outcome, Request
from clicktower.schemas.stage import open_result, run_stage
from clicktower.schemas.text_contract import CONTRACT_VERSION, trigram_ids, words
from clicktower.training.analysis.traces import trace
from clicktower.training.model.forward import encoded, gradients
from clicktower.training.model.model import Model, load_model, write_model
from clicktower.training.model.parameters import Encoder, Layout, initial_parameters, layout_of
from clicktower.training.model.recipe import Recipe
from clicktower.training.towers.text_batch import text_batch
from clicktower.training.towers.text_table import WordRows
from clicktower.training.trainer.job import arithmetic_of
from clicktower.training.trainer.objective import encode_table
from clicktower.training.trainer.shard_data import load_shards
from clicktower.training.trainer.worker import start_of
from tests.recipes import recipe_with, varied
from tests.rounding import assert_equal_but_for_rounding
from tests.trained_model import matrix_of
from tests.training import reference
from tests.training.finite_differences import STEP
from tests.training.small_shards import TABLE_ROWS, write_shop, write_texts
from tests.training.texts import random_texts
from tests.training.towers.dense import dense
from tests.training.trainings import train

pytest.importorskip("gensim")
torch.set_num_threads(1)
KNOWN = ["steel", "hammer", "unheard", "no", "mallet", "indoor"]
VECTORS = np.random.default_rng(7).normal(size=(len(KNOWN), 5)).astype(np.float32)
IN_SHARDS = ("hammer", "indoor", "mallet", "no", "steel")  # by their code points
RECIPE = recipe_with(name="small", cells=6, epochs=1, minibatch=32, micro_batch=8, step=0.02)
GENERATE = {"objective": "generate", "tower": "variational", "latent": 3, "decoder_cells": 4,
            "decoder_columns": 3, "vocabulary": 20, "optimiser": "adam"}  # fmt: skip
TOWERS = {
    "lstm": {"truncate_steps": 0},
    "bag": {"tower": "bag"},
    "dssm": {"tower": "dssm", "hidden": 4},
    "self_attentive": {"tower": "self_attentive", "attention_units": 3, "hops": 2, "penalty": 2.0},
}


@pytest.fixture(scope="module")
def where(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("words")


@pytest.fixture(scope="module")
def shop_shards(where) -> str:
    return write_shop(str(where / "build"), 96, 20)


@pytest.fixture(scope="module")
def files(where) -> dict[str, str]:
    from gensim.models import KeyedVectors

    vectors = KeyedVectors(5)
    vectors.add_vectors(KNOWN, VECTORS)
    vectors.save_word2vec_format(where / "binary", binary=True)
    lines = [f"{word} {' '.join(map(repr, row))}\n" for word, row in zip(KNOWN, VECTORS.tolist(), strict=True)]
    (where / "text").write_text("".join(lines[::-1]))
    return {name: str(where / name) for name in ("text", "binary")}


def trained(shop_shards: str, where: Path, file: str | None, **changes):
    return train(
        shop_shards, store=str(where / "store"), recipe=varied(RECIPE, **changes), threads=1, word_vectors=file
    )


@pytest.fixture(scope="module")
def tuned(shop_shards, where, files):
    return trained(shop_shards, where, files["text"])


@pytest.fixture(scope="module")
def frozen(shop_shards, where, files):
    return trained(shop_shards, where, files["text"], word_vectors="frozen")


def weights(result) -> bytes:
    return storage.read_bytes(f"{result.data}/model.safetensors")


def start(result) -> dict[str, torch.Tensor]:
    """The parameters before the first update, of a model's recipe and layout."""
    model = load_model(result.data)
    order = [KNOWN.index(word) for word in IN_SHARDS]
    return start_of(model.layout, None, None, VECTORS[order])


def test_a_known_word_has_one_row_and_any_other_those_of_its_trigrams():
    rows = WordRows(60_000, ("b", "abc"))
    # Words: "a" -> #a#, id 37 (a is 1, marks 0: 37² x 0 + 37 x 1 + 0); "b" and "abc" -> their rows; "ab" -> #ab, ab#:
    # 0 x 1369 + 1 x 37 + 2 = 39 and 1 x 1369 + 2 x 37 + 0 = 1443.
    found = rows.of(["a", "abc", "ab", "b", "abc"])
    assert found.offsets.tolist() == [0, 1, 2, 4, 5, 6]
    assert found.values.tolist() == [37, 60_001, 39, 1443, 60_000, 60_001]
    assert rows.num_rows == 60_002
    assert WordRows(60_000).text_contract() == {}


def rows_by_hand(text: str) -> list[list[int]]:
    """The text's words as rows of W, by the contract."""
    of_words = []
    for word in words(text):
        ids = trigram_ids([word], TABLE_ROWS)[1].tolist()
        of_words.append([TABLE_ROWS + IN_SHARDS.index(word)] if word in IN_SHARDS else ids)
    return of_words


def by_reference(recipe: Recipe, matrix: torch.Tensor, texts: list[str]) -> np.ndarray:
    """Embeddings in float64, dense and step by step, of a tower whose every row is first multiplied by W_in."""
    recipe = replace(recipe, dtype="float64")
    table, parts = Layout(recipe=recipe, word_rows=WordRows(TABLE_ROWS, IN_SHARDS)).split(matrix.double())
    plain = varied(recipe, word_vectors="none")
    inner = layout_of(plain, len(table))
    of_inner = {name: parts[name] for name, _ in inner.parts}
    dense = torch.from_numpy(np.einsum("rd,dg->rg", table.numpy(), parts["W_in"].numpy()))
    kind = reference.kind_of(plain)
    params = reference.from_matrix(inner.join(dense, of_inner).numpy(), plain.tower.cells, kind)
    return np.array([reference.embed(params, rows_by_hand(text), kind) for text in texts])


TEXTS = ["steel mallet", "zebra", "no", "heavy duty Hammer no 2"]


@pytest.mark.parametrize("tower", TOWERS)
def test_embeddings_equal_the_equations_with_the_vectors_of_the_file(tower):
    recipe = varied(RECIPE, cells=3, word_vectors="tuned", word_columns=5, dtype="float64", **TOWERS[tower])
    layout = Layout(recipe=recipe, word_rows=WordRows(TABLE_ROWS, IN_SHARDS))
    vectors = VECTORS[[KNOWN.index(word) for word in IN_SHARDS]]
    towers = {name: initial_parameters(layout, name, None, vectors) for name in ("query", "document")}
    model = Model.of(layout, towers)
    np.testing.assert_array_equal(layout.split(towers["query"])[0][TABLE_ROWS:].numpy(), vectors)
    # Float32 numbers come out of encode, whatever computed them.
    assert_equal_but_for_rounding(model.encode(TEXTS, "query"), by_reference(recipe, towers["query"], TEXTS), 2)


def test_a_loaded_model_encodes_by_the_equations_and_as_training_did(shop_shards, tuned):
    model = load_model(tuned.data)
    assert model.word_rows.words == IN_SHARDS
    found = model.encode(TEXTS, "document")
    assert_equal_but_for_rounding(found, by_reference(model.recipe, matrix_of(model, "document"), TEXTS))
    data = load_shards(open_result(shop_shards).data, model.recipe, IN_SHARDS)
    texts = data.train[0].strings.to_pylist()
    as_trained = encode_table(model.encoder, data.train[0].texts, "document")
    np.testing.assert_array_equal(model.encode(texts, "document"), as_trained)


@pytest.mark.parametrize("how", ["tuned", "frozen"])
@pytest.mark.parametrize("tower", TOWERS)
def test_gradients_equal_finite_differences_and_frozen_rows_have_none(tower, how):
    recipe = varied(RECIPE, cells=2, word_vectors=how, word_columns=3, dtype="float64", initial_range=0.7,
                     **TOWERS[tower])  # fmt: skip
    layout = Layout(recipe=recipe, word_rows=WordRows(4, ("p", "q", "r")))
    numbers = np.random.default_rng(11)
    matrix = initial_parameters(layout, "query", None, numbers.normal(size=(3, 3)))
    table, texts = random_texts(numbers, 6, longest=4, num_trigrams=layout.table_rows)
    batch = text_batch([(table, np.arange(len(texts)))])
    weights_Nd = torch.from_numpy(numbers.normal(size=(len(texts), recipe.tower.dimensions)))

    def made(at: torch.Tensor):
        encoder = Encoder.of(layout, {"query": at})
        found = encoded(batch, "query", encoder)
        return (found.vectors_Nd * weights_Nd).sum() + found.own_loss, found, encoder

    def loss(at: torch.Tensor) -> float:
        return made(at)[0].item()

    at_matrix, found, encoder = made(matrix)
    ((_, gradient),) = gradients(at_matrix, [found], encoder)
    expected = torch.zeros_like(matrix)
    for row in range(len(matrix)):
        for column in range(matrix.shape[1]):
            above, below = matrix.clone(), matrix.clone()
            above[row, column] += STEP
            below[row, column] -= STEP
            expected[row, column] = (loss(above) - loss(below)) / (2 * STEP)
    assert expected[4:7].abs().min() > 0  # every word occurs
    if how == "frozen":
        assert not set(range(4, 7)) & set(gradient.rows.tolist())
        expected[4:7] = 0
    np.testing.assert_allclose(dense(gradient, layout).numpy(), expected.numpy(), rtol=2e-6, atol=1e-8)


def test_training_moves_tuned_words_and_leaves_frozen_ones_to_the_bit(tuned, frozen):
    for result, moves in ((tuned, True), (frozen, False)):
        before, after = start(result), load_model(result.data)
        for name in before:
            matrix = matrix_of(after, name)
            changed = (matrix != before[name]).any(dim=1)
            read = ("indoor", "mallet", "steel") if name == "query" else ("hammer", "indoor", "no", "steel")
            of_words = changed[TABLE_ROWS : TABLE_ROWS + len(IN_SHARDS)].tolist()
            assert of_words == [moves and word in read for word in IN_SHARDS]
            assert changed[:TABLE_ROWS].any()  # of words that the file does not know
            assert not changed[trigram_ids(["zebra"], TABLE_ROWS)[1]].all()  # no text has it
            assert changed[TABLE_ROWS + len(IN_SHARDS) :].any()
    # Eight things, each by two words; steel, oak, small, heavy, duty, garden, indoor; no, 1 to 5: 16 + 7 + 6.
    metrics = tuned.manifest.outcome.metrics
    assert (metrics["known_words"], metrics["shard_words"]) == (5, 29)


def test_the_first_matrix_has_glorots_range_whatever_the_recipes(tuned):
    model = load_model(tuned.data)
    limit = np.sqrt(6 / (5 + 18))  # 5 columns, three gates of six cells
    for scale in (0.2, 0.001):
        layout = replace(model.layout, recipe=replace(model.recipe, initial_range=scale))
        table, parts = layout.split(initial_parameters(layout, "query", None, VECTORS[:5]))
        assert parts["W_in"].abs().max() <= limit
        assert parts["W_in"].abs().max() > 0.9 * limit
        assert table[:TABLE_ROWS].abs().max() <= scale


def test_the_form_of_the_file_and_the_order_of_its_words_do_not_show_in_the_bytes(shop_shards, where, files, tuned):
    binary = trained(shop_shards, where, files["binary"])
    assert binary.manifest.digest != tuned.manifest.digest  # it is another file
    assert weights(binary) == weights(tuned)
    assert trained(shop_shards, where, files["text"]).reused


def test_without_a_file_nothing_is_another(shop_shards, where):
    plain = trained(shop_shards, where, None)
    assert "words" not in json.loads(storage.read_bytes(f"{plain.data}/model.json"))
    assert "word_vectors" not in plain.manifest.request.inputs
    assert "known_words" not in plain.manifest.outcome.metrics
    assert safetensors.numpy.load(weights(plain))["query.W"].shape == (TABLE_ROWS, 18)


def test_the_generative_objective_takes_them_too(shop_shards, where, files):
    result = trained(shop_shards, where, files["text"], word_vectors="frozen", **GENERATE)
    model = load_model(result.data)
    assert model.word_rows.words == IN_SHARDS
    np.testing.assert_array_equal(
        model.towers["shared"]["W"][TABLE_ROWS : TABLE_ROWS + 5], VECTORS[[KNOWN.index(w) for w in IN_SHARDS]]
    )


def test_labels_take_them_too(where, files):
    shards = {"train-00000": ["steel hammer", "oak rug", "no lamp", "zebra"], "dev-00000": ["no tap"]}

    def produce(folder: str) -> Outcome:
        for name, texts in shards.items():
            write_texts(f"{folder}/{name}", texts)
            labels = np.arange(len(texts)) % 2
            rows = pa.table([np.arange(len(texts)), labels], schema=labelled_schema("texts", "class"))
            with pa.ipc.new_file(f"{folder}/{name}/labelled.arrow", rows.schema) as writer:
                writer.write_table(rows)
        catalogue = {
            "schema_version": LABELLED_VERSION,
            "text_contract": CONTRACT_VERSION,
            "unit": "texts",
            "label": "class",
            "classes": ["a", "b"],
            "table_rows": TABLE_ROWS,
            "shards": [{"name": name, "split": name.split("-")[0]} for name in shards],
        }
        storage.write_atomic(f"{folder}/{LABELLED_CATALOGUE}", json.dumps(catalogue).encode())
        return Outcome()

    request = Request(stage="build-labelled", stage_version=1, config={}, inputs={})
    labelled = run_stage(str(where / "labelled"), request, produce).folder
    classify = {"objective": "classify", "minibatch": 4, "micro_batch": 2, "head_units": 3}
    model = load_model(trained(labelled, where, files["text"], **classify).data)
    assert model.word_rows.words == ("hammer", "no", "steel")
    assert model.outputs.classes == ("a", "b")


def test_a_start_takes_over_the_words_that_both_know_and_the_rest_from_the_file(tuned):
    model = load_model(tuned.data)
    layout = replace(model.layout, word_rows=WordRows(TABLE_ROWS, ("brass", "hammer", "steel")))
    fresh = np.full((3, 5), 0.25, np.float32)
    begun = start_of(layout, None, tuned.data, fresh)["query"]
    parts = {part: torch.from_numpy(array) for part, array in model.towers["query"].items()}
    of_model = parts["W"]
    table, its_parts = layout.split(begun)
    np.testing.assert_array_equal(table[:TABLE_ROWS], of_model[:TABLE_ROWS])
    np.testing.assert_array_equal(table[TABLE_ROWS:], torch.stack([torch.full((5,), 0.25), of_model[-5], of_model[-1]]))
    np.testing.assert_array_equal(its_parts["W_in"], parts["W_in"])
    plain = varied(model.recipe, word_vectors="none")
    with pytest.raises(UsageError, match="has other towers"):
        start_of(layout_of(plain, TABLE_ROWS), None, tuned.data)


def test_what_reads_a_model_reads_its_words(tuned):
    model = load_model(tuned.data)
    text = "steel zebra"
    assert_equal_but_for_rounding(trace(model, text, "query").vector, model.encode([text], "query")[0])
    found = golden(model, ["steel zebra"])
    at = found.texts.index("steel zebra")
    assert [ids.tolist() for ids in found.trigram_ids[at]] == rows_by_hand("steel zebra")
    with pytest.raises(CannotExport, match="some words have vectors of their own, and the"):
        query_onnx(model)
    with pytest.raises(UsageError, match="word vectors: tuned"):
        arithmetic_of("compiled", varied(model.recipe, cells=16), "cpu")


@pytest.mark.parametrize("damage", ["another word", "no words", "another version"])
def test_a_model_folder_without_its_words_is_refused(damage, tuned, tmp_path):
    model = load_model(tuned.data)
    write_model(str(tmp_path), model)
    description = json.loads((tmp_path / "model.json").read_text())
    assert description["text_contract"] == model.text_contract
    if damage == "another word":
        description["words"][0] = "other"
    elif damage == "no words":
        del description["words"]
    else:
        description["text_contract"]["words"]["version"] = "2.0"
    (tmp_path / "model.json").write_text(json.dumps(description))
    with pytest.raises(UnknownVersionError if damage == "another version" else StageError):
        load_model(str(tmp_path))


def test_a_file_with_none_of_the_shards_words_is_refused_and_leaves_nothing(shop_shards, tmp_path):
    (tmp_path / "other").write_text("Steel 1 2\nunheard 3 4\n")
    with pytest.raises(UsageError, match=r"None of the shards' 29 words .in lower case. has a vector"):
        trained(shop_shards, tmp_path, str(tmp_path / "other"))
    assert not list(tmp_path.glob("store/train/*/manifest.json"))


def test_a_merged_bag_of_words_adds_known_ones_up(shop_shards):
    recipe = replace(RECIPE, max_words=2)
    shard = load_shards(open_result(shop_shards).data, recipe, IN_SHARDS).train[0]
    table, texts = shard.texts, shard.strings.to_pylist()
    at, text = next((at, text) for at, text in enumerate(texts) if text.startswith("heavy duty hammer no"))
    bag = table.trigrams.take(table.words.take(np.array([at])).values[-1:]).values.tolist()
    assert bag == [row for word in rows_by_hand(text)[1:] for row in word]
