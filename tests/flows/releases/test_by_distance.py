"""A release of a model that compares by distance: everything that is made and asked of it, beside float64 distances."""

import json
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pytest
from starlette.testclient import TestClient

from clicktower.flows.cli import run as clicktower
from clicktower.flows.releases.export_release import export
from clicktower.flows.releases.kept_releases import verify
from clicktower.flows.releases.publish import publish
from clicktower.flows.releases.search import OpenRelease
from clicktower.flows.serve.service import ServeConfig, make_app
from clicktower.schemas.documents import read_documents
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.stage import open_result
from clicktower.training.analysis.classifying import confidence_of
from clicktower.training.evaluation.combine_stage import combine
from clicktower.training.model.model import load_model
from clicktower.training.model.model_folder import Outputs
from clicktower.training.ranking.bm25 import TitleBM25
from tests.flows.releases.catalogue import CONFIG
from tests.recipes import recipe_with
from tests.rounding import assert_equal_but_for_rounding, rounded
from tests.trained_model import trained_stage

QUERY = "steel angle hose"
RECIPE = recipe_with(
    name="by distance", tower="variational", cells=16, latent=12, objective="classify", features="w2", head_units=4
)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return trained_stage(str(tmp_path_factory.mktemp("store")), recipe=RECIPE)


@pytest.fixture(scope="module")
def published(model, documents, tmp_path_factory):
    return publish(model, documents=documents, to=str(tmp_path_factory.mktemp("live")), config=CONFIG)


@pytest.fixture(scope="module")
def opened(published) -> OpenRelease:
    return OpenRelease(published.uri)


@pytest.fixture(scope="module")
def distances(model, documents) -> dict[str, float]:
    """W2 of the query and each document, from the definition: of the means, and of the deviations, in float64."""
    catalogue, encoder = read_documents(documents), load_model(open_result(model).data)
    query = encoder.encode([QUERY], "query").astype(np.float64)
    titles = encoder.encode(catalogue.titles, "document").astype(np.float64)
    means, deviations = ((titles[:, part] - query[:, part]) ** 2 for part in (slice(0, 12), slice(12, 24)))
    return dict(zip(catalogue.ids, np.sqrt(means.sum(axis=1) + deviations.sum(axis=1)).tolist(), strict=True))


def test_the_nearest_are_found_and_documents_of_the_query_s_own_words_are_0_away_but_for_rounding(opened, distances):
    hits = opened.search(QUERY.upper(), 300)
    furthest = max(distances.values())
    assert [hit.distance for hit in hits] == rounded(sorted(distances.values()), of=furthest)
    assert [hit.distance for hit in hits] == rounded([distances[hit.id] for hit in hits], of=furthest)
    assert all(hit.score == -hit.distance and hit.cosine is None for hit in hits)
    assert opened.search(QUERY, 7) == hits[:7]
    title = opened.titles[0].as_py()
    same = [hit for hit in opened.search(title, 300) if hit.title == title]
    assert len({hit.distance for hit in same}) == 1
    assert same[0].distance == rounded(0)  # one text alone may be encoded with other roundings than among others
    assert [hit.id for hit in same] == sorted((hit.id for hit in same), reverse=True)
    assert same[0].rank == 1


def test_a_hybrid_subtracts_the_distance_from_the_share_of_the_terms(opened, documents, distances):
    catalogue = read_documents(documents)
    terms = dict(zip(catalogue.ids, TitleBM25(catalogue.titles).relative_scores([QUERY])[0].tolist(), strict=True))
    hits = opened.search(QUERY, 300, "hybrid", lexical_share=0.3)
    best = sorted((0.3 * terms[i] - 0.7 * distances[i] for i in terms), reverse=True)
    assert [hit.score for hit in hits] == rounded(best, of=max(terms.values()) + max(distances.values()))
    assert [hit.terms for hit in hits] == rounded([terms[hit.id] for hit in hits], of=1)


def test_an_index_is_made_and_measured_by_distance(model, documents, tmp_path):
    config = replace(CONFIG, index="ivf", min_recall=0.9, recall_at=20)
    made = publish(model, documents=documents, to=str(tmp_path), config=config)
    assert made.release.index["kind"] == "ivf"
    opened, probes = OpenRelease(made.uri), made.release.index["num_probes"]
    assert probes < made.release.index["num_partitions"]
    shares = []
    for title in opened.titles.to_pylist()[:100]:
        found = {hit.distance for hit in opened.search(title, 20)}
        exact = np.sort(-opened.documents_search.exact(opened.vector(title), 20)[1])[:20]
        shares.append(np.mean([distance in found for distance in exact.tolist()]))
    assert np.mean(shares) > 0.85


def test_what_travels_with_it_says_how_it_is_compared(published, tmp_path, capsys):
    release = published.release
    assert release.similarity == "euclidean"
    assert release.query_tower["file"] == "query.onnx"
    assert release.query_tower["max_difference"] < 1e-5
    golden = json.loads(Path(published.folder, "golden.jsonl").read_text(encoding="utf-8").splitlines()[0])
    expected = load_model(f"{published.folder}/model").encode([golden["text"]], "query")[0]
    assert_equal_but_for_rounding(np.float32(golden["vector"]), expected)  # as it is, not of length 1
    assert "float32, compared by distance" in Path(published.folder, "README.md").read_text(encoding="utf-8")
    export(published.uri, form="opensearch", into=str(tmp_path / "index"))
    index = json.loads((tmp_path / "index" / "index.json").read_text())
    assert index["mappings"]["properties"]["vector"]["method"]["space_type"] == "l2"
    into = str(tmp_path / "titles.parquet")
    export(published.uri, form="parquet", into=into)
    ((about,),) = duckdb.sql(f"SELECT value FROM parquet_kv_metadata('{into}') WHERE key = 'clicktower'").fetchall()
    assert json.loads(about)["similarity"] == "Euclidean distance"
    assert verify(published.uri) == []
    assert clicktower(["search", "--release", published.uri, "--k", "3", QUERY]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split() == ["distance", "title", "id"]
    assert all(float(line.split()[1]) > 0 for line in shown[1:4])


def test_the_service_gives_distances_where_others_give_cosines(published, opened):
    with TestClient(make_app(ServeConfig(release=published.uri)), "http://127.0.0.1") as client:
        assert client.get("/v1/release").json()["similarity"] == "euclidean"
        hits = client.post("/v1/search", json={"query": QUERY}).json()["hits"]
        assert [hit["distance"] for hit in hits] == [hit.distance for hit in opened.search(QUERY)]
        assert {hit["cosine"] for hit in hits} == {None}
        why = client.post("/v1/explain", json={"query": QUERY, "id": hits[0]["id"]}).json()
        assert (why["score"], why["distance"], why["cosine"]) == (hits[0]["score"], hits[0]["distance"], None)
        (vector,) = client.post("/v1/embed", json={"texts": [QUERY], "side": "query"}).json()["vectors"]
        assert vector == opened.vector(QUERY).tolist()


def test_a_head_is_asked_how_sure_it_is(opened, model, tmp_path):
    """Of the second of two classes: the probability by the head's equations, in float64."""
    confidence = confidence_of(opened.encoder)
    trained = load_model(open_result(model).data)
    part = {name: value.astype(np.float64) for name, value in trained.towers["shared"].items()}
    hits = opened.rerank(QUERY, 5, confidence, depth=50)
    query = opened.vector(QUERY).astype(np.float64)
    for hit in hits:
        other = opened.documents_search.vectors_of(np.array([opened.ids.to_pylist().index(hit.id)]))[0]
        features = np.concatenate([(query - other) ** 2, query[:12] * other[:12]])
        hidden = np.maximum(features @ part["head.W_1"] + part["head.b_1"], 0)
        first, second = np.exp(hidden @ part["head.W_2"] + part["head.b_2"])
        assert hit.confidence == pytest.approx(second / (first + second), abs=1e-5)
    assert [hit.confidence for hit in hits] == sorted((hit.confidence for hit in hits), reverse=True)
    with pytest.raises(UsageError, match="3 classes apart"):
        confidence_of(replace(opened.encoder, outputs=Outputs(unit="pairs", classes=("0", "1", "2"))))
    with pytest.raises(UsageError, match="has no classifier by the distance"):
        confidence_of(load_model(open_result(trained_stage(str(tmp_path))).data))


def test_a_second_scorer_ranks_the_nearest_and_only_them(opened):
    nearest = opened.search(QUERY, 20)
    every = opened.documents_search.vectors_of(np.arange(300))
    vectors = {name: vector.tobytes() for name, vector in zip(opened.ids.to_pylist(), every, strict=True)}
    asked = []

    def the_last_first(query_KD, document_KD):
        asked.extend(vector.tobytes() for vector in document_KD)
        assert (query_KD == opened.vector(QUERY)).all()
        return np.repeat(np.linspace(0, 1, 10), 2)

    hits = opened.rerank(QUERY, 20, the_last_first, depth=20)
    assert asked == [vectors[hit.id] for hit in nearest]
    pairs = [nearest[at : at + 2] for at in range(18, -1, -2)]  # of two equally sure ones the nearer is first
    assert [(hit.id, hit.distance) for hit in hits] == [(hit.id, hit.distance) for pair in pairs for hit in pair]
    assert [hit.rank for hit in hits] == list(range(1, 21))
    assert hits[0].confidence == 1
    asked.clear()
    assert opened.rerank(QUERY, 3, the_last_first, depth=20) == hits[:3]
    with pytest.raises(UsageError, match="30 best cannot be chosen from the 20 nearest"):
        opened.rerank(QUERY, 30, the_last_first, depth=20)
    for wrong in (np.nan, -0.1, 1.1):
        with pytest.raises(StageError, match="not a number from 0 to 1"):
            opened.rerank(QUERY, 3, lambda query, document, wrong=wrong: np.full(len(query), wrong))


def test_models_that_compare_by_distance_are_not_put_side_by_side(model, tmp_path):
    with pytest.raises(UsageError, match="compares by distance"):
        combine([model, trained_stage(str(tmp_path))], store=str(tmp_path))
