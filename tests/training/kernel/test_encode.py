"""Texts to vectors on the compiled path, against the float64 reference and against themselves in other company."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.text_contract import trigram_ids, words
from clicktower.training.kernel.kernel_library import status
from clicktower.training.model.forward import BATCH_TEXTS, encode_batch
from clicktower.training.model.kernel_towers import MOST_TEXTS, SHORT_BYTES, text_table
from clicktower.training.model.model import Model, load_encoder, write_model
from clicktower.training.model.parameters import initial_parameters, layout_of
from clicktower.training.model.recipe import Recipe, tower_name
from clicktower.training.towers.text_batch import text_batch
from clicktower.training.towers.text_table import TextTable, WordRows
from clicktower.training.trainer.objective import encode_table
from tests.recipes import recipe_with, varied
from tests.rounding import assert_equal_but_for_rounding
from tests.trained_model import matrix_of
from tests.training import reference

pytestmark = pytest.mark.skipif(not status().available, reason=f"no compiled kernel: {status().reason}")
torch.set_num_threads(1)
ROWS = 50_700
LSTM = recipe_with(name="small", cells=16, initial_range=0.3, same_start=False)
RECIPES = [
    LSTM,
    varied(LSTM, cells=48, tie_towers=True),
    varied(LSTM, forget_gate=True),
    varied(LSTM, forget_gate=True, peepholes=True),
    varied(LSTM, tower="rnn", initial_range=0.2),
    varied(LSTM, tower="bilstm"),
    varied(LSTM, tower="bilstm", peepholes=True),
    varied(LSTM, tower="bag"),
    varied(LSTM, tower="dssm", hidden=48),
    varied(LSTM, tower="variational", latent=12),
    varied(LSTM, tower="variational", latent=3, forget_gate=True, objective="classify"),
]
TEXTS = [
    "Angle bracket", "a", "2 in. x 4 ft. plank", "a a a A", "東京の金槌 #8", "café\u2003CAFÉ", "x\x1cy\x00z",
    "\ud800 lone", "angle  BRACKET ", "one two three four five six seven eight nine ten eleven twelve",
]  # fmt: skip


@cache
def model_of(recipe: Recipe) -> Model:
    layout = layout_of(recipe, ROWS)
    towers = {name: initial_parameters(layout, name) for name in recipe.objective.towers}
    return Model.of(layout, towers)


def by_reference(model: Model, side: str, bag_from: int | None = None) -> np.ndarray:
    """The vectors of TEXTS in float64. Words from `bag_from` on are one bag of trigrams."""
    kind, cells = reference.kind_of(model.recipe), model.recipe.tower.cells
    matrix = matrix_of(model, tower_name(model.recipe, side)).double().numpy()
    params = reference.from_matrix(matrix, cells, kind)
    vectors = []
    for text in TEXTS:
        ids = [trigram_ids([word], ROWS)[1].tolist() for word in words(text)]
        if bag_from is not None and len(ids) > bag_from:
            ids[bag_from:] = [[trigram for word in ids[bag_from:] for trigram in word]]
        vectors.append(reference.embed(params, ids, kind))
    return np.array(vectors)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: f"{reference.kind_of(recipe)} {recipe.tower.cells}")
@pytest.mark.parametrize("side", ["query", "document"])
def test_every_tower_equals_the_reference_from_text_to_vector(recipe, side):
    model = model_of(recipe)
    expected = by_reference(model, side)
    assert model.compiled
    assert_equal_but_for_rounding(model.encode(TEXTS, side), expected)
    assert_equal_but_for_rounding(np.concatenate([model.encode([text], side) for text in TEXTS]), expected)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: f"{reference.kind_of(recipe)} {recipe.tower.cells}")
def test_a_model_that_was_written_has_the_same_bits(tmp_path, recipe):
    model, texts = model_of(recipe), [text for text in TEXTS if words(text)]
    write_model(str(tmp_path), model)
    loaded = load_encoder(str(tmp_path))
    for side in ("query", "document"):
        assert np.array_equal(loaded.encode(texts, side), model.encode(texts, side))
        assert np.array_equal(loaded.encode(texts[:1], side), model.encode(texts[:1], side))


def test_search_of_a_model_loads_no_torch(tmp_path):
    write_model(str(tmp_path), model_of(LSTM))
    code = (
        "import sys; from clicktower.training.model.model import load_encoder; "
        f"load_encoder({str(tmp_path)!r}).encode(['a b'], 'query'); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_weights_of_other_shapes_are_refused_before_the_kernel_reads_them(tmp_path):
    write_model(str(tmp_path), model_of(LSTM))
    description = json.loads((tmp_path / "model.json").read_text())
    description["recipe"]["tower"]["cells"] = 32
    (tmp_path / "model.json").write_text(json.dumps(description))
    with pytest.raises(StageError, match="shapes"):
        load_encoder(str(tmp_path))


def some_texts(num_texts: int) -> list[str]:
    rng = np.random.default_rng(num_texts)
    vocabulary = [f"{'abc'[n % 3]}{n:x}" for n in range(400)] + ["café", "金槌"]
    return [" ".join(vocabulary[w] for w in rng.integers(0, 402, rng.integers(1, 14))) for _ in range(num_texts)]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: f"{reference.kind_of(recipe)} {recipe.tower.cells}")
def test_a_text_has_the_same_bits_whatever_is_beside_it(recipe):
    model, texts = model_of(recipe), some_texts(700)
    together = model.encode(texts, "document")
    alone = np.concatenate([model.encode([text], "document") for text in texts])
    assert np.array_equal(together, alone)
    rng = np.random.default_rng(1)
    for size in (2, 17, 129, 400):
        some = rng.choice(700, size)
        assert np.array_equal(model.encode([texts[at] for at in some], "document"), together[some])


def test_many_batches_over_all_threads_give_each_text_its_own_vector():
    model, texts = model_of(LSTM), some_texts(2 * MOST_TEXTS + 77)
    texts[5] = texts[4_000] = "  "
    vectors = model.encode(texts, "query", empty="zero")
    assert not vectors[[5, 4_000]].any()
    for at in (0, 4, 6, 2_047, 2_048, 3_999, len(texts) - 1):
        assert np.array_equal(vectors[at], model.encode([texts[at]], "query")[0])


def test_the_compiled_path_equals_pure_torch():
    model, texts = model_of(varied(LSTM, cells=96, initial_range=0.2)), some_texts(BATCH_TEXTS)
    batch = text_batch([(text_table(texts, WordRows(ROWS)), np.arange(len(texts)))])
    by_torch = encode_batch(batch, "document", model.encoder).numpy()
    assert_equal_but_for_rounding(model.encode(texts, "document"), by_torch)


@pytest.mark.parametrize("recipe", [LSTM, varied(LSTM, tower="bilstm", forget_gate=True, peepholes=True)])
def test_parameters_on_the_move_encode_as_the_model_they_would_make(recipe):
    model, table = model_of(recipe), text_table(some_texts(300), WordRows(ROWS))
    requests = []

    def table_at(name: str, rows: torch.Tensor) -> torch.Tensor:
        requests.append(rows)
        return torch.from_numpy(model.towers[name]["W"])[rows]

    found = encode_table(replace(model.encoder, table_at=table_at), table, "query")
    assert np.array_equal(found, model.encode(some_texts(300), "query"))
    assert requests[0].tolist() == np.unique(table.trigrams.values).tolist()  # a run's rows, not all of them


@pytest.mark.parametrize("max_words", [1, 2, 5])
@pytest.mark.parametrize("overflow", ["merge", "truncate"])
def test_words_beyond_the_limit_are_merged_or_dropped_also_in_a_short_text(max_words, overflow):
    model = model_of(replace(LSTM, max_words=max_words, overflow=overflow))
    together = model.encode(TEXTS, "query")
    assert np.array_equal(together, np.concatenate([model.encode([text], "query") for text in TEXTS]))
    if overflow == "merge":
        assert_equal_but_for_rounding(together, by_reference(model, "query", max_words - 1))
    else:
        cut = [" ".join(words(text)[:max_words]) for text in TEXTS]
        assert np.array_equal(together, model_of(LSTM).encode(cut, "query"))


def test_a_text_too_long_for_the_short_way_has_the_same_vector():
    model, line = model_of(LSTM), "plank no 7 " * 400
    assert len(line) > SHORT_BYTES
    short = line[: SHORT_BYTES // 11 * 11]
    assert model.compiled["query"].encode_short(line) is None
    assert model.compiled["query"].encode_short(short) is not None
    assert np.array_equal(model.encode([short], "query")[0], model.encode([short, "a"], "query")[0])
    assert np.array_equal(model.encode([line], "query")[0], model.encode([line, "a"], "query")[0])


def test_one_text_without_a_word_is_an_error_unless_zero_is_asked_for():
    model = model_of(LSTM)
    for text in ("", " \x1c\t", "\u2003"):
        with pytest.raises(UsageError, match="1 of 1 texts have no word"):
            model.encode([text], "query")
        assert not model.encode([text], "query", empty="zero").any()


def test_short_texts_from_many_threads_do_not_disturb_one_another():
    model, texts = model_of(LSTM), some_texts(400)
    expected = model.encode(texts, "query")
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda text: model.encode([text], "query")[0], texts))
    assert np.array_equal(np.array(found), expected)


def test_a_table_without_texts_gives_no_vectors():
    model = model_of(LSTM)
    empty: TextTable = text_table([], WordRows(ROWS))
    assert encode_table(model.encoder, empty, "query").shape == (0, 16)
    assert model.encode([], "query").shape == (0, 16)
