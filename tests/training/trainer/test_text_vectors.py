"""A teacher that is a file of vectors: what it holds, what is refused, and the texts that it is to have."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clicktower.flows.cli import run
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.stage import open_result
from clicktower.training.evaluation.combine_stage import combine
from clicktower.training.model.model import load_encoder
from clicktower.training.model.recipe import Sources
from clicktower.training.model.teacher import read_text_vectors
from clicktower.training.trainer import clicks
from clicktower.training.trainer.shard_data import MicroBatch
from tests.recipes import recipe_with, varied
from tests.training.small_shards import write_shop
from tests.training.trainer.test_exactness import alone, job, sha256
from tests.training.trainings import train

RECIPE = recipe_with(name="small", cells=16, epochs=1, minibatch=48, micro_batch=8, step=0.01)
TAUGHT = varied(RECIPE, teacher_share=0.5, teacher_gamma=8.0)


@pytest.fixture(scope="module")
def shop_shards(tmp_path_factory) -> str:
    return write_shop(str(tmp_path_factory.mktemp("build")), 200, 30)


def write(path, texts: list[str], vectors, kind: pa.DataType | None = None) -> str:
    pq.write_table(pa.table({"text": texts, "vector": pa.array(list(vectors), kind or pa.list_(pa.float32()))}), path)
    return str(path)


@pytest.fixture(scope="module")
def texts(shop_shards, tmp_path_factory) -> list[str]:
    """What the command lists."""
    path = tmp_path_factory.mktemp("texts") / "texts.parquet"
    assert run(["texts", "--shards", shop_shards, "--to", str(path)]) == 0
    return pq.read_table(path)["text"].to_pylist()


def test_the_texts_are_those_of_training_and_of_the_pool_each_once(shop_shards, texts):
    data = clicks.load(open_result(shop_shards).data, RECIPE).data
    known = set(data.pool_strings.to_pylist()).union(*(shard.strings.to_pylist() for shard in data.train))
    assert sorted(texts) == sorted(known)


def test_vectors_are_those_of_the_normalised_text_and_the_first_counts(tmp_path):
    path = write(tmp_path / "v.parquet", ["Red  Shirt", "red shirt", "hat", " "], [[3, 4], [1, 0], [0, -2], [0, 0]])
    found = read_text_vectors(path).encode(["hat", "red shirt", "", "hat"], "query")
    np.testing.assert_allclose(found, [[0, -1], [0.6, 0.8], [0, 0], [0, -1]], rtol=1e-6)
    assert found.dtype == np.float32


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.float16()), pa.list_(pa.float64(), 2), pa.large_list(pa.float32())], ids=str
)
def test_any_list_of_real_numbers_is_read(kind, tmp_path):
    numbers = np.array([[0.5, 0.0], [0.0, 4.0]], np.float16)
    vectors = numbers if pa.types.is_float16(kind.value_type) else numbers.astype(float).tolist()
    path = write(tmp_path / "v.parquet", ["a", "b"], vectors, kind)
    assert read_text_vectors(path).encode(["b", "a"], "document").tolist() == [[0, 1], [1, 0]]


def test_what_is_learnt_is_what_the_vectors_say(shop_shards, texts, tmp_path):
    rng = np.random.default_rng(3)
    vectors = rng.normal(size=(len(texts), 5)).astype(np.float32)
    path = write(tmp_path / "v.parquet", [text.upper() for text in texts], vectors)
    pairs = clicks.load(open_result(shop_shards).data, TAUGHT, (), path).examples(MicroBatch(0, np.arange(8), 0), 0)
    data = clicks.load(open_result(shop_shards).data, TAUGHT).data
    strings = {id(data.pool_texts): data.pool_strings, id(data.train[0].texts): data.train[0].strings}
    of = dict(zip(texts, vectors / np.linalg.norm(vectors, axis=1, keepdims=True), strict=True))
    shard, pool = data.train[0].strings.to_pylist(), data.pool_strings.to_pylist()
    (_, clicked), (_, negatives) = pairs.documents
    titles = [shard[row] for row in clicked] + [pool[row] for row in negatives]
    assert len(strings) == 2
    for row, candidates, taught in zip(pairs.queries[1], pairs.candidates, pairs.taught, strict=True):
        scores = np.exp(8 * np.array([of[shard[row]] @ of[titles[at]] for at in candidates]))
        np.testing.assert_allclose(taught, scores / scores.sum(), rtol=1e-4)


@pytest.mark.slow
def test_a_models_own_vectors_in_a_file_teach_as_the_model_does(shop_shards, texts, tmp_path):
    """One tower for both sides, so that a text has one vector; the same bytes come out."""
    store = str(tmp_path / "store")
    recipes = (varied(RECIPE, tie_towers=True), varied(RECIPE, tie_towers=True, seed=5))
    teacher = combine([train(shop_shards, store=store, recipe=one, threads=1).folder for one in recipes], store=store)
    path = write(tmp_path / "v.parquet", texts, load_encoder(teacher.data).encode(texts, "document"))
    by_model, by_file = (
        alone(replace(job(shop_shards, tmp_path / name, recipe=TAUGHT), sources=Sources(teacher=by)), tmp_path / name)
        for name, by in (("model", teacher.data), ("file", path))
    )
    assert by_model == by_file == sha256(tmp_path / "file")


@pytest.mark.slow
def test_the_file_s_content_is_part_of_the_request(shop_shards, texts, tmp_path):
    def trained(name: str, seed: int):
        vectors = np.random.default_rng(seed).normal(size=(len(texts), 3))
        path = write(tmp_path / name, texts, vectors)
        return train(shop_shards, store=str(tmp_path / "store"), recipe=RECIPE, threads=1, teacher=path)

    first, same, other = trained("a.parquet", 1), trained("b.parquet", 1), trained("a.parquet", 2)
    assert first.manifest.digest == same.manifest.digest != other.manifest.digest
    assert same.reused


def test_texts_without_a_vector_are_counted_not_shown(shop_shards, texts, tmp_path, capsys):
    path = write(tmp_path / "v.parquet", texts[:-1], np.random.default_rng(1).normal(size=(len(texts) - 1, 2)))
    sets = [word for one in ("tower.cells=16", "minibatch=48", "micro_batch=8") for word in ("--set", one)]
    asked = ["train", "--shards", shop_shards, "--into", str(tmp_path / "store"), *sets, "--teacher", path]
    assert run(asked) == 2
    error = capsys.readouterr().err
    assert "1 of " in error
    assert "clicktower texts" in error
    assert texts[-1] not in error


def test_other_files_are_refused(shop_shards, tmp_path):
    def refused(path, error=UsageError) -> str:
        with pytest.raises(error) as raised:
            train(shop_shards, store=str(tmp_path / "store"), recipe=RECIPE, threads=1, teacher=str(path))
        assert not (tmp_path / "store" / "train").exists() or not list((tmp_path / "store" / "train").glob("*/result*"))
        return str(raised.value)

    assert "no such file" in refused(tmp_path / "none.parquet").lower()
    (tmp_path / "text.parquet").write_text("no columns")
    assert "column `vector`" in refused(tmp_path / "text.parquet")
    pq.write_table(pa.table({"text": ["a"], "vec": [[1.0]]}), tmp_path / "names.parquet")
    assert "vec (list" in refused(tmp_path / "names.parquet")
    assert "string" in refused(write(tmp_path / "kind.parquet", ["a"], [["x"]], pa.list_(pa.string())))
    assert "not all of one length" in refused(write(tmp_path / "ragged.parquet", ["a", "b"], [[1], [1, 2]]))
    assert "no text or no vector" in refused(write(tmp_path / "null.parquet", ["a", None], [[1], [2]]))
    assert "no rows" in refused(write(tmp_path / "empty.parquet", [], []))
    odd = write(tmp_path / "odd.parquet", ["a", "b"], [[1, 2], [np.nan, 1]])
    assert "1 of 2 texts are not finite" in refused(odd, StageError)
    # Also numbers that are zero only as float32. The text without a word needs no vector.
    zeros = write(tmp_path / "zeros.parquet", ["a", "b", " "], [[1, 2], [0, 1e-60], [0, 0]], pa.list_(pa.float64()))
    assert "1 of 2 texts are zeros" in refused(zeros, StageError)
    alike = write(tmp_path / "alike.parquet", ["a", "b"], [[1, 2], [2, 4]])
    assert "All 2 texts have one vector" in refused(alike, StageError)


def test_a_list_of_texts_overwrites_nothing_and_is_of_click_shards(shop_shards, tmp_path, capsys):
    path = tmp_path / "texts.parquet"
    path.write_text("mine")
    assert run(["texts", "--shards", shop_shards, "--to", str(path)]) == 2
    assert path.read_text() == "mine"
    model = train(shop_shards, store=str(tmp_path / "store"), recipe=RECIPE, threads=1).folder
    assert run(["texts", "--shards", model, "--to", str(tmp_path / "t.parquet")]) == 2
    assert "output of train" in capsys.readouterr().err
    assert not (tmp_path / "t.parquet").exists()
