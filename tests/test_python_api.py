"""`import clicktower`: the vectors, searches and explanations of the commands, and errors that say what to do."""

import subprocess
import sys

import numpy as np
import pytest

import clicktower
from clicktower.flows.releases.publish import publish
from clicktower.flows.releases.search import OpenRelease, search
from clicktower.flows.releases.word_shares import explain_hit, explain_pair
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.stage import open_result
from clicktower.training.model.embedding import search_vectors
from clicktower.training.model.model import load_encoder
from tests.flows.releases.catalogue import CONFIG, write_documents
from tests.trained_model import trained_stage
from tests.training.small_shards import write_shop

TEXTS = ["angle brakets", "ANGLE bracket", "garden hose 2x4"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> str:
    return trained_stage(str(tmp_path_factory.mktemp("store")))


@pytest.fixture(scope="module")
def released(trained, tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("release")
    documents = write_documents(folder / "documents.tsv")
    return publish(trained, documents=documents, to=str(folder / "live"), config=CONFIG).uri


def test_a_model_and_its_release_encode_alike(trained, released):
    reference = load_encoder(open_result(trained).data)
    for model in (clicktower.load(trained), clicktower.load(released)):
        assert (model.dimensions, model.similarity) == (reference.dimensions, "cosine")
        np.testing.assert_allclose(model.encode_queries(TEXTS), search_vectors(reference, TEXTS, "query"), atol=1e-6)
        np.testing.assert_allclose(model.encode_titles(TEXTS), search_vectors(reference, TEXTS, "document"), atol=1e-6)


@pytest.fixture
def transformers():
    """The integration, imported late: it imports Triton, whose interpreter tests/training/conftest.py chooses first."""
    from clicktower import sentence_transformer

    return sentence_transformer


def test_it_is_a_sentence_transformer_that_can_be_saved_and_loaded(transformers, released, tmp_path):
    from sentence_transformers import SentenceTransformer

    model, ours = transformers.sentence_transformer(released), clicktower.load(released)
    model.save_pretrained(str(tmp_path / "saved"))
    for loaded in (model, SentenceTransformer(str(tmp_path / "saved"), trust_remote_code=True)):
        for encode, expected in (
            (loaded.encode, ours.encode_queries(TEXTS)),
            (loaded.encode_query, ours.encode_queries(TEXTS)),
            (loaded.encode_document, ours.encode_titles(TEXTS)),
        ):
            np.testing.assert_allclose(encode(TEXTS, batch_size=2), expected, atol=1e-6)
        assert loaded.get_embedding_dimension() == 8
        query, title = loaded.encode_query(TEXTS[:1]), loaded.encode_document(TEXTS[1:2])
        np.testing.assert_allclose(loaded.similarity(query, title).item(), (query @ title.T).item(), atol=1e-6)
        assert not loaded.encode([" "]).any()


def test_the_evaluator_of_sentence_transformers_takes_it(transformers, released):
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

    titles = {"a": "angle bracket", "b": "garden hose", "c": "copper pipe"}
    judged = InformationRetrievalEvaluator(titles, titles, {name: {name} for name in titles}, write_csv=False)
    assert judged(transformers.sentence_transformer(released))["cosine_accuracy@1"] == 1


def test_a_text_without_a_word_has_the_zero_vector(trained):
    vectors = clicktower.load(trained).encode_queries(["angle", " ", "bracket"])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), [1, 0, 1], rtol=1e-6)
    assert clicktower.load(trained).encode_titles([]).shape == (0, 8)


@pytest.mark.parametrize("mode", ["vector", "bm25", "hybrid"])
def test_a_release_searches_as_the_command_does(released, mode):
    opened = clicktower.load(released)
    assert isinstance(opened, clicktower.Release)
    assert opened.search("angle bracket", 5, mode=mode) == search(released, "angle bracket", 5, mode)
    weighted = opened.search("angle bracket", 5, mode=mode, lexical_share=0.5)
    assert weighted == search(released, "angle bracket", 5, mode, lexical_share=0.5)


def test_explanations_are_those_of_the_service(trained, released):
    model = load_encoder(open_result(trained).data)
    assert clicktower.load(trained).explain(*TEXTS[:2]) == explain_pair(model, *TEXTS[:2])
    expected = explain_hit(OpenRelease(released), *TEXTS[:2], "bm25")
    assert clicktower.load(released).explain(*TEXTS[:2], mode="bm25") == expected
    with pytest.raises(UsageError, match="no word"):
        clicktower.load(trained).explain(" ", TEXTS[0])


def test_a_training_is_loaded_and_then_reused(tmp_path):
    shards, said = write_shop(str(tmp_path), 64, 16), []
    fields = {"tower.cells": 8, "epochs": 1, "minibatch": 32, "micro_batch": 16}
    model = clicktower.train(shards, into=str(tmp_path), fields=fields, progress=lambda *told: said.append(told))
    assert model.encode_queries(TEXTS).shape == (3, 8)
    assert said
    said.clear()
    again = clicktower.train(shards, into=str(tmp_path), fields=fields, progress=lambda *told: said.append(told))
    assert (again.path, said) == (model.path, [])


def test_errors_say_what_is_wrong_and_what_to_do(trained, tmp_path):
    with pytest.raises(StageError, match=r"no manifest\.json"):
        clicktower.load(str(tmp_path))
    with pytest.raises(UsageError, match=r"Put it into a list: \[text\]"):
        clicktower.load(trained).encode_queries("angle bracket")
    with pytest.raises(UsageError, match=r"tower\.cels.*did you mean tower\.cells"):
        clicktower.train(str(tmp_path), into=str(tmp_path), fields={"tower.cels": 8})


def test_importing_it_loads_no_engine():
    code = "import sys, clicktower; print(sorted({'torch', 'ray', 'apache_beam', 'lancedb'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
