"""The score that ranked a hit, explained: by the service, the command and Python, to the last bit of the search's."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

import clicktower
from clicktower.flows.cli import run
from clicktower.flows.releases.publish import publish
from clicktower.flows.releases.search import OpenRelease
from clicktower.flows.releases.word_shares import explain_hit, explain_pair
from clicktower.flows.serve.service import ServeConfig, make_app
from clicktower.schemas.errors import UsageError
from clicktower.schemas.text_contract import words
from clicktower.training.evaluation.combine_stage import combine
from clicktower.training.model.embedding import search_vectors
from clicktower.training.model.model import load_encoder
from clicktower.training.model.named_recipes import LSTM_96
from clicktower.training.ranking.bm25 import TitleBM25
from tests.flows.releases.catalogue import CONFIG, WORDS
from tests.recipes import recipe_with, varied
from tests.rounding import rounded
from tests.trained_model import trained_stage

TITLES = [
    "steel angle bracket", "Steel Angle Bracket", "garden hose & reel, 2x4", "angle grinder", "shelf brackets, angled",
    "the 1/2 in. copper pipe's elbow", "東京の金槌 16 oz.", "o'neil hose-reel (garden)", "& steel",
    *(f"{one} {other} {number} in." for one in WORDS for other in WORDS[:5] for number in (2, 3)),
]  # fmt: skip
QUERIES = ["angle brakets & hose hose", "3็ 東京金槌 Copper-pipe", "steel", "&"]
WITH_SHARES = varied(LSTM_96, cells=16, word_share=0.4, lexical_share=0.2)
# Of 8 cells: by torch, whose vectors depend on the texts beside them.
WITHOUT_KERNEL = varied(LSTM_96, cells=8, name="lstm-8", lexical_share=0.1)
DISTANCE = recipe_with(
    name="by distance", tower="variational", cells=16, latent=12, objective="classify", features="w2", head_units=4
)
KINDS = ["shares", "ensemble", "distance", "vectors"]


def train(kind: str, store: str) -> str:
    if kind == "ensemble":
        members = [trained_stage(store, recipe=recipe) for recipe in (WITH_SHARES, WITHOUT_KERNEL)]
        return combine(members, store=store, shares=[2, 1]).folder
    recipes = {"shares": WITH_SHARES, "distance": DISTANCE, "vectors": varied(LSTM_96, cells=8)}
    return trained_stage(store, recipe=recipes[kind])


def publish_titles(kind: str, folder) -> str:
    documents = folder / "documents.tsv"
    documents.write_text("".join(f"d{at}\t{title}\n" for at, title in enumerate(TITLES)))
    return publish(train(kind, str(folder / "store")), documents=str(documents), to=str(folder / "live"), config=CONFIG).uri


@pytest.fixture(scope="module", params=KINDS)
def uri(request, tmp_path_factory) -> str:
    return publish_titles(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def release(tmp_path_factory) -> OpenRelease:
    """Of a model whose words and terms have shares."""
    return OpenRelease(publish_titles("shares", tmp_path_factory.mktemp("release")))


def assert_adds_up(explained: dict) -> None:
    """To the last bit, whichever way they are added up."""
    contributions = explained["contributions"]
    assert sum(contributions.values()) == explained["score"]
    of_words = [word["contributions"] for word in explained["query"]["words"]]
    for part in ("words", "terms"):
        assert sum(of_word[part] for of_word in of_words) == contributions[part]
    assert sum(word["bm25"] for word in explained["query"]["words"]) == explained["bm25"]


PARTS = ("score", "cosine", "distance", "words", "terms", "bm25")


@pytest.mark.slow
@pytest.mark.parametrize("lexical_share", [None, 0.35])
@pytest.mark.parametrize("mode", ["hybrid", "vector", "bm25"])
def test_service_python_and_command_explain_the_score_that_ranked(uri, mode, lexical_share, capsys):
    of_search = {"mode": mode, "lexical_share": lexical_share}
    with TestClient(make_app(ServeConfig(release=uri)), "http://127.0.0.1") as client:
        release = clicktower.load(uri)
        for query in QUERIES:
            hits = client.post("/v1/search", json={"query": query, "k": 12, **of_search}).json()["hits"]
            python = release.search(query, 12, **of_search)
            assert [(hit.id, hit.score) for hit in python] == [(hit["id"], hit["score"]) for hit in hits]
            for hit in hits:
                body = {"query": query, **of_search}
                served = client.post("/v1/explain", json=body | {"id": hit["id"]}).json()
                assert {part: served[part] for part in PARTS} == {part: hit[part] for part in PARTS}
                assert_adds_up(served)
                by_title = client.post("/v1/explain", json=body | {"title": hit["title"]}).json()
                explained = release.explain(query, hit["title"], **of_search)
                assert explained == {name: value for name, value in served.items() if name in explained}
                assert by_title | {"took_ms": 0} == served | {"took_ms": 0}
            for hit in hits[:1]:
                options = ["--mode", mode, *(["--lexical-share", "0.35"] if lexical_share else [])]
                for title in (hit["id"], hit["title"]):
                    assert run(["explain", "--release", uri, query, title, *options, "--json"]) == 0
                    told = json.loads(capsys.readouterr().out)
                    assert {name: told[name] for name in explained} == release.explain(query, hit["title"], **of_search)
                    assert told["release"] == release.digest
