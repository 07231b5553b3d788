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
from clicktower.training.model.recipe import recipe
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
WITH_SHARES = varied(recipe("lstm-96"), cells=16, word_share=0.4, lexical_share=0.2)
# Of 8 cells: by torch, whose vectors depend on the texts beside them.
WITHOUT_KERNEL = varied(recipe("lstm-96"), cells=8, name="lstm-8", lexical_share=0.1)
DISTANCE = recipe_with(
    name="by distance", tower="variational", cells=16, latent=12, objective="classify", features="w2", head_units=4
)
KINDS = ["shares", "ensemble", "distance", "vectors"]


def train(kind: str, store: str) -> str:
    if kind == "ensemble":
        members = [trained_stage(store, recipe=recipe) for recipe in (WITH_SHARES, WITHOUT_KERNEL)]
        return combine(members, store=store, shares=[2, 1]).folder
    recipes = {"shares": WITH_SHARES, "distance": DISTANCE, "vectors": varied(recipe("lstm-96"), cells=8)}
    return trained_stage(store, recipe=recipes[kind])


def publish_titles(kind: str, folder) -> str:
    documents = folder / "documents.tsv"
    documents.write_text("".join(f"d{at}\t{title}\n" for at, title in enumerate(TITLES)))
    return publish(
        train(kind, str(folder / "store")), documents=str(documents), to=str(folder / "live"), config=CONFIG
    ).uri


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
SEARCHES = [
    *({"mode": mode, "lexical_share": None} for mode in ("hybrid", "vector", "bm25")),
    {"mode": "hybrid", "lexical_share": 0.35},
]  # fmt: skip


@pytest.mark.slow
def test_service_python_and_command_explain_the_score_that_ranked(uri, capsys):
    release = clicktower.load(uri)
    with TestClient(make_app(ServeConfig(release=uri)), "http://127.0.0.1") as client:

        def post(path: str, **body) -> dict:
            return client.post(f"/v1/{path}", json=body).json() | {"took_ms": 0}

        for query in QUERIES:
            for asked in SEARCHES:
                hits = post("search", query=query, k=6, **asked)["hits"]
                python = release.search(query, 6, **asked)
                assert [(hit.id, hit.score) for hit in python] == [(hit["id"], hit["score"]) for hit in hits]
                for hit in hits:
                    served = post("explain", query=query, id=hit["id"], **asked)
                    assert {part: served[part] for part in PARTS} == {part: hit[part] for part in PARTS}
                    assert_adds_up(served)
                    assert post("explain", query=query, title=hit["title"], **asked) == served
                    explained = release.explain(query, hit["title"], **asked)
                    assert {"release": release.digest, "took_ms": 0, **explained} == served
    for asked in SEARCHES:
        options = ["--mode", asked["mode"], *(["--lexical-share", "0.35"] if asked["lexical_share"] else [])]
        hit = release.search(QUERIES[0], 1, **asked)[0]
        for title in (hit.id, hit.title):
            assert run(["explain", "--release", uri, QUERIES[0], title, *options, "--json"]) == 0
            told = json.loads(capsys.readouterr().out)
            explained = release.explain(QUERIES[0], hit.title, **asked)
            stage = {"stage": "explain", "release": release.digest, "document": hit.id if title == hit.id else None}
            assert told == {**stage, **explained, "labels": {}}


def idf(having: int) -> float:
    return math.log(1 + (len(TITLES) - having + 0.5) / (having + 0.5))


def test_the_parts_are_those_of_the_formula(release):
    query, title = "angle brakets & hose hose", "garden hose & reel, 2x4"
    explained = explain_hit(release, query, title)
    of_query, of_title = words(query), words(title)
    w, l = explained["word_share"], explained["lexical_share"]  # noqa: E741
    assert (w, l) == (0.4, 0.2)
    query_D = search_vectors(release.encoder, [query], "query")[0]
    title_D = search_vectors(release.encoder, [title], "document")[0]
    assert explained["cosine"] == rounded(float(query_D @ title_D))

    cosines = (
        search_vectors(release.encoder, of_query, "query") @ search_vectors(release.encoder, of_title, "document").T
    )
    having = [sum(word in words(other) for other in TITLES) for word in of_query]
    rarity = [idf(number) / sum(map(idf, having)) for number in having]
    bm25, by_term = TitleBM25(TITLES), iter(TitleBM25(TITLES).parts(query, title))
    for at, word in enumerate(explained["query"]["words"]):
        assert word["word"] == of_query[at]
        assert word["match"] == {
            "word": of_title[cosines[at].argmax()],
            "cosine": rounded(float(cosines[at].max())),
            "weight": rounded(rarity[at]),
        }
        assert word["contributions"]["words"] == rounded((1 - l) * w * rarity[at] * float(cosines[at].max()))
        if word["word"] == "&":
            assert (word["terms"], word["bm25"], word["contributions"]["terms"]) == ([], 0, 0)
            continue
        term, part = next(by_term)
        assert word["terms"] == [term]
        assert word["bm25"] == rounded(part, of=4)
        assert word["contributions"]["terms"] == rounded(l * part / bm25.self_score(query))
    assert [word["contributions"]["terms"] > 0 for word in explained["query"]["words"]] == [False] * 3 + [True] * 2
    assert explained["contributions"]["vectors"] == rounded((1 - l) * (1 - w) * float(query_D @ title_D))
    assert_adds_up(explained)


TEXT = st.text(st.sampled_from("ab &'.,-3½東京กข๏็\u0301\u200d\u3099"), min_size=1, max_size=12)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(query=st.one_of(TEXT, st.lists(st.sampled_from(WORDS)).map(" ".join)), title=TEXT)
def test_whatever_is_typed_adds_up_exactly(release, query, title):
    """Of any title, as BM25 alone scores it, which cuts a query otherwise than the model does."""
    if not (words(query) and words(title)):
        with pytest.raises(UsageError, match="no word"):
            explain_hit(release, query, title)
        return
    explained = explain_hit(release, query, title)
    assert_adds_up(explained)
    terms = release.bm25.parts(query, title)
    assert [term for word in explained["query"]["words"] for term in word["terms"]] == [term for term, _ in terms]
    assert explained["bm25"] == rounded(sum(part for _, part in terms), of=10)
    assert explain_hit(release, query, title, "bm25")["score"] == explained["bm25"]
    assert explain_hit(release, query, title, "vector")["score"] == explained["cosine"]


def test_every_word_of_a_long_query_contributes_and_the_first_are_left_out_in_turn(release):
    explained = explain_hit(release, "steel angle " * 80, "steel shelf")
    assert [word["share"] is None for word in explained["query"]["words"]] == [False] * 100 + [True] * 60
    assert_adds_up(explained)


def test_without_the_titles_that_weigh_words_and_terms_nothing_is_called_the_score(release):
    explained = explain_pair(release.encoder, "angle & hose", "garden hose")
    assert explained["cosine"] == explain_hit(release, "angle & hose", "garden hose")["cosine"]
    assert (explained["word_share"], explained["lexical_share"]) == (0.4, 0.2)
    for part in ("score", "contributions", "words", "terms", "bm25"):
        assert explained[part] is None
    for word in explained["query"]["words"]:
        assert (word["contributions"], word["terms"], word["bm25"], word["match"]["weight"]) == (None,) * 4


def test_a_model_that_ranks_by_vectors_has_a_score_without_titles_too(tmp_path):
    model = clicktower.load(train("vectors", str(tmp_path)))
    explained = model.explain("angle", "garden hose")
    assert explained["score"] == explained["cosine"] == explained["contributions"]["vectors"]
    assert explained["query"]["words"][0]["match"] is None


def test_an_id_that_no_document_has_is_said_to_be_read_as_a_title(release, capsys):
    assert run(["explain", "--release", release.uri, "angle", "999"]) == 0
    assert "No document has the id '999': it is explained as a title." in capsys.readouterr().out
    assert run(["explain", "--release", release.uri, "angle", "d1"]) == 0
    assert "No document" not in capsys.readouterr().out


def test_a_mode_or_a_share_that_no_search_has_is_refused(release):
    with pytest.raises(UsageError, match="no mode 'exact'"):
        explain_hit(release, "angle", "hose", "exact")
    with pytest.raises(UsageError, match="below 1"):
        explain_hit(release, "angle", "hose", lexical_share=1)
    for mode in ("vector", "bm25"):
        with pytest.raises(UsageError, match=rf"The mode {mode} ranks by \w+ alone"):
            explain_hit(release, "angle", "hose", mode, lexical_share=0.2)
