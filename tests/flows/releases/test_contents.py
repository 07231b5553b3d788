"""What a release carries for others: golden texts, the ONNX tower, the evaluation, the model card."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pyarrow as pa
import yaml

from clicktower.flows.releases import make_release as making
from clicktower.flows.releases.publish import publish
from clicktower.flows.releases.query_onnx import query_onnx
from clicktower.flows.releases.release_documents import Rows, open_documents, write_rows
from clicktower.flows.releases.search import search
from clicktower.schemas.ledger import Ledger
from clicktower.schemas.manifest import Outcome, Request
from clicktower.schemas.stage import open_result, run_stage
from clicktower.schemas.storage import write_atomic
from clicktower.training.model.model import load_model
from clicktower.training.model.recipe import recipe
from tests.flows.releases.catalogue import CONFIG
from tests.recipes import varied
from tests.rounding import assert_equal_but_for_rounding, rounded
from tests.schemas.reference_trigrams import reference_ids, reference_words
from tests.trained_model import TABLE_ROWS, trained_stage

EVALUATED = {
    "n": 2,
    "systems": {
        "model": {"ndcg@10": {"mean": 0.512, "low": 0.401, "high": 0.623}},
        "bm25": {"ndcg@10": {"mean": 0.5, "low": 0.4, "high": 0.6}},
    },
    "confidence": 0.95,
    "warnings": [],
}
PER_QUERY = {"query_ids": ["q1", "q2"], "systems": {"model": {"ndcg@10": [0.4, 0.624]}}}


def evaluation_of(model: str, store: str) -> str:
    request = Request(
        stage="evaluate",
        stage_version=1,
        config={"gain": "exponential"},
        inputs={"model": open_result(model).manifest.digest, "qrels": "f00d"},
    )

    def produce(folder: str) -> Outcome:
        write_atomic(f"{folder}/per_query.json", json.dumps(PER_QUERY).encode())
        return Outcome(metrics=EVALUATED | {"example_queries": ["angle bracket"]})

    return run_stage(store, request, produce).folder


def test_a_client_that_knows_nothing_of_us_reaches_the_golden_vectors_and_our_ranking(published):
    """From text to words and trigram ids by the contract's second implementation, to vectors by ONNX."""
    session = onnxruntime.InferenceSession(f"{published.folder}/query.onnx")
    lines = Path(published.folder, "golden.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == published.release.golden["num_texts"] > 70
    _, documents = open_documents(published.folder)
    for line in lines:
        case = json.loads(line)
        assert reference_words(case["text"]) == case["words"]
        ids = [reference_ids(word, TABLE_ROWS) for word in case["words"]]
        assert ids == case["trigram_ids"]
        flat = np.array([i for of_word in ids for i in of_word], np.int64)
        word = np.repeat(np.arange(len(ids)), [len(of_word) for of_word in ids])
        vector = session.run(None, {"trigram_ids": flat, "word_of_trigram": word})[0]
        assert_equal_but_for_rounding(vector, case["vector"])
    best = search(published.uri, case["text"], 1)[0]
    assert best.score == rounded(float((documents @ vector).max()))


def test_a_tower_whose_graph_differs_is_not_shipped_and_that_is_said(model, documents, tmp_path, monkeypatch):
    loaded = load_model(open_result(model).data)
    towers = {name: {part: array * 1.5 for part, array in parts.items()} for name, parts in loaded.towers.items()}
    wrong = query_onnx(replace(loaded, towers=towers))
    monkeypatch.setattr(making.in_onnx, "query_onnx", lambda model: wrong)
    made = publish(model, documents=documents, to=str(tmp_path), config=CONFIG)
    assert made.release.query_tower["file"] is None
    assert "its vectors would differ by up to" in made.release.query_tower["reason"]
    assert not Path(made.folder, "query.onnx").exists()
    assert "There is no ONNX query tower: its vectors would differ" in Path(made.folder, "README.md").read_text()


def test_the_evaluation_travels_with_its_values_for_each_query(model, documents, tmp_path):
    evaluation = evaluation_of(model, str(tmp_path / "store"))
    made = publish(model, documents=documents, to=str(tmp_path / "live"), config=CONFIG, evaluation=evaluation)
    assert made.release.evaluation == EVALUATED
    assert made.release.evaluated["inputs"]["qrels"] == "f00d"
    assert made.release.evaluated["config"] == {"gain": "exponential"}
    assert json.loads(Path(made.folder, "per_query.json").read_text()) == PER_QUERY


def test_the_model_card_says_where_the_model_comes_from_how_well_it_ranks_and_what_it_is_not_for(documents, tmp_path):
    store = str(tmp_path / "store")
    ledger = Ledger(total=10, lines={"click_train": 7, "query_below_k": 3})
    window = {"from": "2026-09-01", "to": "2026-09-07", "missing": ["2026-09-03"]}
    outcome = Outcome(
        counts={"train_pairs": 4_321, "dev_pairs": 12, "train_queries": 99, "pool_documents": 300},
        metrics={"privacy_gate": "k = 5 keeps 7 of 10 clicks", "window": window},
        ledger=ledger,
    )
    build = run_stage(
        store, Request(stage="build", stage_version=1, config={}, inputs={}), lambda folder: outcome
    ).manifest.digest
    model = trained_stage(store, inputs={"shards": build}, labels={"simulated": True})
    evaluation = evaluation_of(model, store)
    made = publish(model, documents=documents, to=str(tmp_path / "live"), config=CONFIG, evaluation=evaluation)
    text = Path(made.folder, "README.md").read_text(encoding="utf-8")
    _, front, body = text.split("---\n", 2)
    metadata = yaml.safe_load(front)
    assert metadata["pipeline_tag"] == "sentence-similarity"
    metrics = metadata["model-index"][0]["results"][0]["metrics"]
    assert metrics == [{"type": "ndcg_at_10", "value": 0.512, "name": "NDCG@10"}]
    for said in (
        "| this model | 0.512 [0.401, 0.623] |", "| BM25 | 0.500 [0.400, 0.600] |", "95% intervals over 2 judged",
        "2026-09-01 to 2026-09-07, without 2026-09-03", "10, of which 7 were used", "4,321", "k = 5 keeps 7 of 10",
        "Trained on a simulated log", "`lstm-96`", f"`{build}`", "300 documents", "## Intended use and limits",
        "settings not those that arXiv:1502.06922 prints",
    ):  # fmt: skip
        assert said in body, said
    assert "angle bracket" not in body  # an example query of the evaluation


def test_the_model_card_has_the_dates_of_a_log_that_was_ingested_without_one(documents, tmp_path):
    store = str(tmp_path / "store")

    def made(stage: str, inputs: dict, metrics: dict) -> str:
        request = Request(stage=stage, stage_version=1, config={}, inputs=inputs)
        return run_stage(store, request, lambda folder: Outcome(metrics=metrics)).manifest.digest

    days = [
        made("ingest", {"logs": [last]}, {"first_time": f"2026-09-{first}T08:00:00Z", "last_time": f"{last}T10:00:00Z"})
        for first, last in (("03", "2026-09-20"), ("01", "2026-10-30"))
    ]
    timeless = made("ingest", {"logs": ["c"]}, {"first_time": None, "last_time": None})
    for of_build, words in ((days, "2026-09-01 to 2026-10-30"), ([timeless], "not known: the log has no dates")):
        build = made("build", {"days": of_build}, {"window": {"from": None, "to": None}})
        model = trained_stage(store, inputs={"shards": build})
        card = publish(model, documents=documents, to=str(tmp_path / build), config=CONFIG)
        assert words in Path(card.folder, "README.md").read_text(encoding="utf-8")


def test_a_card_says_that_a_model_was_trained_as_printed(documents, tmp_path):
    model = trained_stage(str(tmp_path), recipe=varied(recipe("paper-lstm-96"), cells=8))
    made = publish(model, documents=documents, to=str(tmp_path / "live"), config=CONFIG)
    assert "settings as printed in arXiv:1502.06922" in Path(made.folder, "README.md").read_text(encoding="utf-8")


def test_a_card_without_an_evaluation_or_builds_says_so(published):
    body = Path(published.folder, "README.md").read_text(encoding="utf-8")
    assert "what its vectors reach was not measured" in body
    assert "were not beside the model" in body
    assert "| `bm25.arrow` | the titles by term, for BM25; language of the terms: english |" in body


def test_documents_are_read_as_they_were_written_whatever_their_columns_hold(tmp_path):
    table = pa.table(
        {
            "id": ["a", "b", "c"],
            "title": ["x", "ø", "x"],
            "price": pa.array([float("nan"), None, -0.0]),
            "half": pa.array([float("nan"), 1, 2], pa.float32()),
            "sold": [True, None, False],
            "brand": ["", None, "é"],
        }
    )
    vectors = np.array([[1, 0], [np.float32(0.1), -0.0]], np.float32)
    written = write_rows(str(tmp_path), Rows(documents=table, vectors_TD=vectors, text_of_N=np.array([0, 1, 0])))
    documents, read = open_documents(str(tmp_path))
    assert written.tobytes() == read.tobytes() == vectors[[0, 1, 0]].tobytes()
    assert str(documents.to_pylist()) == str(table.to_pylist())
    assert documents.schema.field("brand").type == pa.large_string()
