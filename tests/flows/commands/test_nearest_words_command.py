"""`clicktower nearest-words` beside gensim's own most_similar, and beside cosines of a tower's words one by one."""

import json
from pathlib import Path

import numpy as np
import pytest

from clicktower.flows.cli import run
from clicktower.schemas.shard import TEXTS, open_table
from clicktower.schemas.stage import open_result
from clicktower.training.model.model import load_model
from clicktower.training.model.recipe import recipe
from tests.recipes import varied
from tests.trained_model import trained_stage
from tests.training.small_shards import write_build

PAIRS = [
    ("pizza oven", "stone for a pizza oven", ["sink infection drain"]),
    ("infection", "drain cleaner against infection", ["pizza stone"]),
    ("pizza stone", "round pizza stone", ["drain"]),
]
HELD_OUT = [("bracket", "angle bracket for a shelf", ["shelf"])]


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> str:
    store = str(tmp_path_factory.mktemp("store"))
    return write_build(
        store, {"train-00000": PAIRS, "dev-00000": HELD_OUT}, ["shelf", "pizza"], labels={"simulated": True}
    )


def nearest(capsys, *arguments: str, code: int = 0) -> dict:
    assert run(["nearest-words", *arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def texts_of(shards: str) -> list[str]:
    files = sorted(Path(open_result(shards).data).glob("*/texts.arrow"))
    assert len(files) == 3
    return list(dict.fromkeys(text for file in files for text in open_table(str(file), TEXTS)["text"].to_pylist()))


def test_the_nearest_words_of_doc2vec_are_gensims_most_similar(shards, capsys):
    doc2vec = pytest.importorskip("gensim.models.doc2vec")
    found = nearest(capsys, "Pizza", "infection", "--shards", shards, "--k", "4", "--epochs", "50", "--seed", "2")
    model = doc2vec.Doc2Vec(
        [doc2vec.TaggedDocument(text.split(), [at]) for at, text in enumerate(texts_of(shards))],
        vector_size=100, window=5, min_count=1, sample=1e-4, negative=5, epochs=50, seed=2, workers=1, dm=1,
    )  # fmt: skip
    assert [one["word"] for one in found["words"]] == ["pizza", "infection"]
    for one in found["words"]:
        expected = model.wv.most_similar(one["word"], topn=4)
        assert [near["word"] for near in one["nearest"]] == [word for word, _ in expected]
        assert [near["score"] for near in one["nearest"]] == pytest.approx([score for _, score in expected], abs=1e-5)
    assert (found["vectors"], found["vocabulary"], found["labels"]) == ("doc2vec", len(model.wv), {"simulated": True})


@pytest.mark.parametrize("side", ["query", "document"])
def test_the_nearest_words_of_a_tower_have_the_cosines_of_its_embeddings(shards, side, tmp_path, capsys):
    trained = trained_stage(str(tmp_path), recipe=varied(recipe("lstm-96"), cells=64))
    found = nearest(capsys, "bracket", "brackets", "--shards", shards, "--model", trained, "--side", side, "--k", "99")
    model = load_model(open_result(trained).data)
    vocabulary = sorted({word for text in texts_of(shards) for word in text.split()})
    for one in found["words"]:
        expected = {word: cosine(model.encode([one["word"]], side)[0], model.encode([word], side)[0])
                    for word in vocabulary if word != one["word"]}  # fmt: skip
        assert {near["word"]: near["score"] for near in one["nearest"]} == pytest.approx(expected, abs=1e-5)
        scores = [near["score"] for near in one["nearest"]]
        assert scores == sorted(scores, reverse=True)
    assert found["vocabulary"] == len(vocabulary)
    assert found["words"][1]["nearest"][0]["word"] == "bracket", "a word that no text has is read by its letters"


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


@pytest.mark.parametrize("asked", [["two words"], [" "], [], ["unheard-of"], ["pizza", "--k", "0"]])
def test_what_is_no_known_word_is_refused_with_what_to_do(shards, asked, capsys):
    pytest.importorskip("gensim")
    error = nearest(capsys, *asked, "--shards", shards, code=2)["error"]
    assert error["problem"]
    assert error["fix"]


def test_a_person_sees_each_word_with_its_score(shards, tmp_path, capsys):
    assert run(["nearest-words", "pizza", "--shards", shards, "--model", trained_stage(str(tmp_path)), "--k", "1"]) == 0
    shown = capsys.readouterr().out
    assert "pizza" in shown
    assert "cosine" in shown
    assert "simulated" not in shown, "the model is not of a simulated log"
