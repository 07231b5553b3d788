"""What is exported says what its vectors reach, and what the service's whole score reaches beside them."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

import clicktower as clicktower_api
from clicktower.flows.cli import run as clicktower
from clicktower.flows.releases.export_release import export, figures_json
from clicktower.flows.releases.make_release import figures
from clicktower.flows.releases.publish import publish
from clicktower.training.evaluation.evaluate_stage import EvaluateConfig, evaluate
from clicktower.training.model.recipe import recipe as named_recipe
from tests.flows.releases.catalogue import CONFIG, WORDS
from tests.recipes import varied
from tests.rounding import rounded
from tests.trained_model import trained_stage

SHARES = SimpleNamespace(word_share=0.4, lexical_share=0.2)
RELEVANT = [39 * number + 5 if number % 2 else 37 * number for number in range(8)]  # rows of titles
QUERIES = {f"q{number}": " ".join(WORDS[number : number + 2]) for number in range(8)}


@pytest.fixture(scope="module")
def judged(tmp_path_factory) -> dict[str, str]:
    """Distinct titles, and for each query one relevant title; for half of them it has both of its words."""
    folder = tmp_path_factory.mktemp("judged")
    titles = dict.fromkeys(f"{one} {two} {three}" for one in WORDS for two in WORDS for three in WORDS[:3])
    lines = {
        "documents.tsv": [f"d{row}\t{title}\n" for row, title in enumerate(titles)],
        "queries.tsv": [f"{name}\t{text}\n" for name, text in QUERIES.items()],
        "qrels.txt": [f"q{number} 0 d{RELEVANT[number]} 2\nq{number} 0 d{number + 50} 0\n" for number in range(8)],
    }
    for name, content in lines.items():
        (folder / name).write_text("".join(content), encoding="utf-8")
    return {name.partition(".")[0]: str(folder / name) for name in lines}


@pytest.fixture(scope="module")
def released(judged, tmp_path_factory):
    """A release whose score has words and terms, with its evaluation."""
    folder = tmp_path_factory.mktemp("released")
    recipe = varied(named_recipe("lstm-96"), cells=8, **vars(SHARES))
    model = trained_stage(str(folder / "store"), recipe=recipe)
    evaluated = evaluate(model, store=str(folder / "store"), config=EvaluateConfig(num_resamples=100), **judged)
    to = str(folder / "release")
    return publish(model, documents=judged["documents"], to=to, config=CONFIG, evaluation=evaluated.folder)


def exported(released, form: str, folder: Path, **more: str) -> dict:
    return export(released.uri, form=form, into=str(folder / form), **more)["metrics"]


def test_figures_are_of_the_vectors_that_are_in_the_file(released, judged, tmp_path):
    measured = exported(released, "parquet", tmp_path)["measured"]
    rows = pq.read_table(tmp_path / "parquet")
    names, vectors = rows["id"].to_pylist(), np.array(rows["vector"].to_pylist())
    cosines = clicktower_api.load(released.uri).encode_queries(list(QUERIES.values())) @ vectors.T
    relevant = [names.index(f"d{RELEVANT[number]}") for number in range(8)]
    ranks = [int((row > row[at]).sum()) + 1 for row, at in zip(cosines, relevant, strict=True)]
    assert measured["queries"] == 8
    assert measured["vectors"]["collection_ndcg@10"] == rounded(
        np.mean([r <= 10 and 1 / np.log2(r + 1) for r in ranks])
    )
    assert measured["vectors"]["collection_mrr@100"] == rounded(np.mean([r <= 100 and 1 / r for r in ranks]))
    assert measured["vectors"]["collection_mrr@100"] != rounded(measured["whole_score"]["collection_mrr@100"])
    whole = released.release.evaluation["systems"]["model"]
    assert measured["whole_score"] == {measure: value["mean"] for measure, value in whole.items()}


def test_every_form_says_what_its_vectors_reach_and_what_the_service_reaches(released, judged, tmp_path, capsys):
    measured = figures(released.release.evaluation, SHARES)
    said = measured.of_vectors()
    for form in ("parquet", "opensearch", "hub"):
        metrics = exported(released, form, tmp_path)
        assert (metrics["sentence"], metrics["measured"]) == (said, figures_json(measured))
    for value in ("vectors", "model"):
        mean = released.release.evaluation["systems"][value]["collection_ndcg@10"]["mean"]
        assert f"NDCG@10 {mean:.3f} among all" in said
    assert "best match" in said
    assert "BM25" in said
    about = json.loads(pq.read_schema(tmp_path / "parquet").metadata[b"clicktower"])
    index = json.loads((tmp_path / "opensearch" / "index.json").read_text())["mappings"]["_meta"]["clicktower"]
    assert about == index
    assert about["measured"]["sentence"] == said
    assert about["shares"] == {"words": 0.4, "terms": 0.2}
    card, hub = (Path(folder, "README.md").read_text() for folder in (released.folder, tmp_path / "hub"))
    for text in (card, hub):
        assert said in text
        values = yaml.safe_load(text.split("---\n")[1])["model-index"][0]["results"][0]["metrics"]
        means = {value["name"]: value["value"] for value in values}
        assert means["NDCG@10, all documents"] == pytest.approx(
            measured.vectors["collection_ndcg@10"]["mean"], abs=6e-5
        )
        assert re.search(r"\| the whole score, as served \| .*\n+\| the vectors alone, as exported \|", text)
    into = str(tmp_path / "again")
    assert clicktower(["export", "--release", released.uri, "--form", "parquet", "--into", into]) == 0
    assert said in " ".join(capsys.readouterr().err.split())
    metrics = exported(released, "trec", tmp_path, queries=judged["queries"])
    assert metrics["sentence"].startswith("Ranked as the service does: NDCG@10")
    assert f"{measured.whole['collection_ndcg@10']['mean']:.3f} among all" in metrics["sentence"]


def test_a_release_whose_vectors_were_not_measured_says_whose_its_figures_are(released):
    systems = dict(released.release.evaluation["systems"])
    del systems["vectors"]
    measured = figures({"n": 8, "systems": systems}, SHARES)
    assert "not measured" in measured.of_vectors()
    assert "are of the service's whole score" in measured.of_vectors()
    assert figures_json(measured)["vectors"] is None


def test_a_release_without_an_evaluation_says_that_nothing_was_measured(published, tmp_path):
    metrics = exported(published, "parquet", tmp_path)
    assert "was not measured" in metrics["sentence"]
    assert metrics["measured"] == {"queries": 0, "vectors": None, "whole_score": None, "sentence": metrics["sentence"]}
    assert "model-index" not in Path(published.folder, "README.md").read_text()


def test_without_words_and_terms_the_vectors_are_the_whole_score():
    evaluation = {"n": 3, "systems": {"model": {"ndcg@10": {"mean": 0.5}}}}
    measured = figures(evaluation, SimpleNamespace(word_share=0, lexical_share=0))
    assert measured.vectors == measured.whole
    assert measured.of_vectors() == (
        "These vectors alone reach NDCG@10 0.500 among judged documents (3 queries), and so does the service, which"
        " ranks by them."
    )
