"""`import clicktower`: the vectors, searches and explanations of the commands, and errors that say what to do."""

import copy
import multiprocessing
import pickle
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
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
from tests.pooled_work import ask
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


def test_every_name_that_it_offers_is_there():
    assert all(getattr(clicktower, name).__name__ == name for name in clicktower.__all__)


COLLECTIONS = {
    "tuple": tuple,
    "generator": iter,
    "NumPy": np.array,
    "NumPy, objects": lambda texts: np.array(texts, object),
    "NumPy, strings": lambda texts: np.array(texts, np.dtypes.StringDType()),
    "NumPy's texts": lambda texts: list(np.array(texts)),
    "Arrow": pa.array,
    "Arrow, large": lambda texts: pa.array(texts, pa.large_string()),
    "Arrow, a dictionary": lambda texts: pa.array(texts).dictionary_encode(),
    "Arrow, in pieces": lambda texts: pa.chunked_array([texts[:1], texts[1:]]),
    "pandas": pd.Series,
    "Polars": pl.Series,
}
MIXED = [
    "Angle  BRACKET",
    "ørn\u00adS 2x4",
    "garden hose",
    "\ufeffCOPPER İ",
]  # normalised by every path of the contract


@pytest.mark.parametrize("kind", list(COLLECTIONS))
def test_texts_come_in_any_ordered_collection(released, kind):
    model = clicktower.load(released)
    for encode in (model.encode_queries, model.encode_titles):
        assert encode(COLLECTIONS[kind](MIXED)).tolist() == encode(MIXED).tolist()
    assert model.search(COLLECTIONS[kind](MIXED), 3) == [model.search(text, 3) for text in MIXED]
    none = COLLECTIONS[kind]([]) if kind not in ("NumPy", "Arrow", "Arrow, in pieces", "pandas", "Polars") else ()
    assert model.encode_titles(none).shape == (0, 8)
    assert model.search(none) == []


@pytest.mark.parametrize("texts", [
    None, 3, 3.5, "angle", np.str_("angle"), b"angle", {"angle": 1}, {"angle"}, ["angle", None], ["angle", 3],
    ["angle", float("nan")], ["angle", b"hose"], [["angle"]], np.array("angle"), np.array([["angle"]]), np.arange(3),
    pa.array(["angle", None]), pa.array([1]), pa.table({"title": ["angle"]}), pd.DataFrame({"title": ["angle"]}),
    pd.Series(["angle", None]), range(3),
])  # fmt: skip
def test_what_is_no_collection_of_texts_is_refused(released, texts):
    model = clicktower.load(released)
    for encode in (model.encode_queries, model.encode_titles):
        with pytest.raises(UsageError, match=r"\. (Put|Give) "):
            encode(texts)
    if not isinstance(texts, str):
        with pytest.raises(UsageError, match=r"\. Give "):
            model.search(texts)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"k": "3"}, "needs k = 1 or more, not '3'"),
        ({"k": 2.0}, "needs k"),
        ({"k": None}, "needs k"),
        ({"k": True}, "needs k"),
        ({"k": 0}, "needs k"),
        ({"offset": "1"}, "needs offset"),
        ({"mode": None}, "no mode None"),
        ({"mode": ["bm25"]}, "no mode"),
        ({"where": []}, "no JSON object"),
        ({"where": "price"}, "no JSON object"),
        ({"where": {3: 3}}, "no column 3"),
        ({"lexical_share": "0.5"}, "share of the terms"),
        ({"lexical_share": float("nan")}, "share of the terms"),
    ],
)
def test_settings_of_another_type_are_refused(released, options, problem):
    opened = clicktower.load(released)
    for text in ("angle", ["angle", "hose"]):
        with pytest.raises(UsageError, match=problem):
            opened.search(text, **options)


def test_whole_numbers_and_scalars_of_numpy_are_numbers(released):
    opened = clicktower.load(released)
    assert opened.search(np.str_("angle"), np.int64(3), offset=np.uint8(2)) == opened.search("angle", 5)[2:]
    assert opened.search("angle", 3, lexical_share=np.float32(0.5)) == opened.search("angle", 3, lexical_share=0.5)
    with pytest.raises(UsageError, match=r"Text number 2 has no word"):
        opened.search(["angle", " ", "hose"])
    with pytest.raises(UsageError, match="As the title something of type NoneType"):
        opened.explain("angle", None)
    with pytest.raises(UsageError, match="The query is no text, but of type int"):
        opened.explain(3, "angle")


def test_models_and_releases_are_pickled_and_copied(trained, released, documents_of_another, monkeypatch):
    model, opened = clicktower.load(trained), clicktower.load(released)
    for loaded in (model, opened):
        for same in (pickle.loads(pickle.dumps(loaded)), copy.copy(loaded), copy.deepcopy([loaded])[0]):
            assert type(same) is type(loaded)
            assert ask(same, TEXTS) == ask(loaded, TEXTS)
    content = pickle.dumps(opened)
    assert len(content) < 1_000
    published = publish(trained, documents=documents_of_another, to=released, config=CONFIG)
    assert clicktower.load(released).digest == published.release.digest != opened.digest
    assert pickle.loads(content).digest == opened.digest, "a release stays the same, whatever is published"
    monkeypatch.chdir(Path(released).parent)
    content = pickle.dumps(clicktower.Release("live", digest=opened.digest))
    monkeypatch.chdir("/")
    assert ask(pickle.loads(content), TEXTS) == ask(opened, TEXTS)


@pytest.fixture
def documents_of_another(tmp_path) -> str:
    return write_documents(tmp_path / "documents.tsv", seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_processes_of_a_pool_encode_and_search(trained, released, method):
    opened = clicktower.load(released)
    expected = ask(opened, TEXTS)  # its threads have run before it forks
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
        for model, answer in ((opened, expected), (clicktower.load(trained), (expected[0], None))):
            assert [found.result() for found in [pool.submit(ask, model, TEXTS) for _ in range(4)]] == [answer] * 4


def test_a_long_encoding_reports_progress(trained, monkeypatch):
    monkeypatch.setattr("clicktower.training.model.embedding._CHUNK_TEXTS", 2)
    told: list[tuple] = []
    clicktower.load(trained).encode_titles([*TEXTS, " "], progress=lambda *told_now: told.append(told_now))
    assert told == [("encode", 0, 3), ("encode", 2, 3), ("encode", 3, 3)]


def test_a_text_without_a_word_has_the_zero_vector(trained):
    vectors = clicktower.load(trained).encode_queries(["angle", " ", "bracket"])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), [1, 0, 1], rtol=1e-6)
    assert clicktower.load(trained).encode_titles([]).shape == (0, 8)


@pytest.mark.parametrize("mode", ["vector", "bm25", "hybrid"])
def test_a_release_searches_as_the_command_does(released, mode):
    opened = clicktower.load(released)
    assert isinstance(opened, clicktower.Release)
    assert opened.search("angle bracket", 5, mode=mode) == search(released, "angle bracket", 5, mode)
    if mode == "hybrid":
        weighted = opened.search("angle bracket", 5, lexical_share=0.5)
        assert weighted == search(released, "angle bracket", 5, lexical_share=0.5)


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


@pytest.mark.parametrize("path", [
    None, 3, "", b"release", ["release"], "/etc/passwd", "/dev/null", "/etc", "a\0b", "x" * 5_000, "nowhere://release",
])  # fmt: skip
def test_what_is_no_release_and_no_model_is_said(path):
    with pytest.raises(StageError) as raised:
        clicktower.load(path)
    assert raised.value.problem.endswith((".", ")"))
    assert raised.value.fix.endswith(".")
    assert "Report this defect" not in raised.value.fix


def test_folders_in_place_of_files_are_said(trained, tmp_path):
    for name in ("pointer.json", "manifest.json"):
        (tmp_path / name[0] / name).mkdir(parents=True)
        with pytest.raises(StageError, match="is a folder, and should be a file"):
            clicktower.load(str(tmp_path / name[0]))
    assert clicktower.load(Path(trained)).dimensions == 8


def test_importing_it_loads_no_engine():
    code = "import sys, clicktower; print(sorted({'torch', 'ray', 'apache_beam', 'lancedb'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
