"""An export in a real OpenSearch ranks as our own search does, by what docs/serving.md shows."""

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from clicktower.flows.releases.export_release import export
from clicktower.flows.releases.opensearch_index import index_definition, search_template
from clicktower.flows.releases.publish import publish
from clicktower.flows.releases.search import OpenRelease
from clicktower.schemas.section import Language
from clicktower.training.model.recipe import DEFAULT, recipe
from tests.documented import ROOT, steps
from tests.flows.releases.catalogue import CONFIG
from tests.opensearch_server import OpenSearchServer
from tests.recipes import varied
from tests.schemas.golden_terms import golden_terms
from tests.trained_model import trained_stage

pytestmark = pytest.mark.engine

CLICKS = recipe(DEFAULT).clicks
WORD_SHARE, LEXICAL_SHARE = CLICKS.word_share, CLICKS.lexical_share  # which the page names
QUERIES = ["copper pipes", "Angle bracket, 2x4 unheard-of", "nail nail hose", "garden"]


@pytest.fixture(scope="module")
def released(documents, tmp_path_factory):
    small = varied(recipe("lstm-96"), cells=8, word_share=WORD_SHARE, lexical_share=LEXICAL_SHARE)
    folder = tmp_path_factory.mktemp("shares")
    model = trained_stage(str(folder / "store"), recipe=small)
    return publish(model, documents=documents, to=str(folder / "release"), config=CONFIG)


@pytest.fixture(scope="module")
def opensearch(tmp_path_factory) -> Iterator[OpenSearchServer]:
    with OpenSearchServer(tmp_path_factory.mktemp("opensearch")) as server:
        yield server


def load(release: str, opensearch: OpenSearchServer, name: str, folder: Path) -> Path:
    """Export a release and load it under a name, as the page's curl does."""
    index = folder / f"{name}-index"
    export(release, form="opensearch", into=str(index))
    opensearch.request("PUT", f"/{name}", json.loads((index / "index.json").read_text()))
    for body in sorted(index.glob("documents-*.ndjson")):
        assert not opensearch.request("POST", f"/{name}/_bulk?refresh=true", body.read_bytes())["errors"]
    opensearch.request("PUT", f"/_scripts/{name}", json.loads((index / "search.json").read_text()))
    return index


@pytest.fixture(scope="module")
def documented(released, opensearch, tmp_path_factory) -> dict[str, Any]:
    """The names that the page's Python defines, where its reader has loaded the export."""
    folder = tmp_path_factory.mktemp("exports")
    load(released.uri, opensearch, "titles", folder)
    export(released.uri, form="parquet", into=str(folder / "titles.parquet"))
    (folder / "release").symlink_to(released.uri)
    names: dict[str, Any] = {}
    before = Path.cwd()
    os.chdir(folder)
    try:
        for step in steps(ROOT / "docs" / "serving.md"):
            if step.kind == "python" and ("_termvectors" in step.text or "def whole_scores" in step.text):
                exec(step.text.replace("http://localhost:9200", opensearch.address), names)
    finally:
        os.chdir(before)
    return names


@pytest.mark.parametrize("query", QUERIES)
def test_the_search_of_an_export_scores_as_ours_without_words(released, documented, query):
    ours = OpenRelease(released.uri).search(query, 300, details=True)
    odds = LEXICAL_SHARE / (1 - LEXICAL_SHARE)
    expected = {hit.id: 1 + hit.cosine + odds * hit.terms for hit in ours if hit.terms}
    hits = documented["search"](query, 300)
    scores = {hit["_id"]: hit["_score"] for hit in hits}
    assert len(expected) > 50
    assert {name: scores[name] for name in expected} == pytest.approx(expected, abs=1e-5)
    assert "vector" not in hits[0]["_source"]
    assert [hit["_id"] for hit in documented["search"](query, 3)] == [hit["_id"] for hit in hits[:3]]


@pytest.mark.parametrize("query", QUERIES)
def test_the_client_of_the_page_ranks_as_the_service(released, documented, query):
    hits = documented["search"](query, 100)
    found = documented["rescored"](query, hits)
    ours = OpenRelease(released.uri).search(query, 10)
    assert [score for score, _ in found[:10]] == pytest.approx([hit.score for hit in ours], abs=1e-5)
    last = ours[-1].score
    assert {name for score, name in found if score > last + 1e-5} == {h.id for h in ours if h.score > last + 1e-5}


def test_without_a_share_of_terms_the_nearest_are_best(published, opensearch, tmp_path):
    load(published.uri, opensearch, "nearest", tmp_path)
    opened = OpenRelease(published.uri)
    params = {"query": "copper pipe", "vector": opened.vector("copper pipe").tolist(), "boost": 0, "size": 20}
    answer = opensearch.request("POST", "/nearest/_search/template", {"id": "nearest", "params": params})
    scores = [hit["_score"] - 1 for hit in answer["hits"]["hits"]]
    assert scores == pytest.approx([hit.score for hit in opened.search("copper pipe", 20)], abs=1e-5)


def test_the_search_by_distance_finds_the_nearest(released, opensearch):
    by_distance = replace(released.release, similarity="euclidean", dimensions=2)
    opensearch.request("PUT", "/far", index_definition(by_distance, {}))
    for name, vector in {"a": [0, 2], "b": [3, 0], "c": [0, 9]}.items():
        opensearch.request("PUT", f"/far/_doc/{name}?refresh=true", {"title": name, "vector": vector})
    opensearch.request("PUT", "/_scripts/far", search_template(by_distance))
    answer = opensearch.request("POST", "/far/_search/template", {"id": "far", "params": {"vector": [0, 0]}})
    assert [(hit["_id"], hit["_score"]) for hit in answer["hits"]["hits"]] == [
        ("a", pytest.approx(1 / 5)), ("b", pytest.approx(1 / 10)), ("c", pytest.approx(1 / 82)),
    ]  # fmt: skip


# Golden texts whose terms are others there.
CUT_OTHERWISE = {
    "naïve CAFÉ ½": "naïv café",  # compatibility forms stay, for lack of NFKC
    "ﬁnishing ＷＩＤＥ": "ﬁnish wide",
    "ปลาทอง": "ปลาทอง",  # pairs are of Chinese, Japanese and Korean
    "👍 thumbs": "👍 thumb",  # an emoji is a word
    "lichamelijke fietsen": "licham fiets",  # an older stemmer
}


def test_titles_have_the_terms_of_the_lexical_contract(released, opensearch):
    """And every language has an analyser."""
    otherwise, others = {}, [(language, "2x4", ["2x4"]) for language in get_args(Language)]
    korean: tuple[Language, str, list[str]] = ("none", "한국어 드릴", ["한국어", "드릴"])
    for language, text, terms in [*golden_terms(), *others, korean]:
        release = replace(released.release, lexical={"language": language})
        analysis = index_definition(release, {})["settings"]["analysis"]
        titles = analysis["analyzer"]["titles"]
        defined = {
            part: [analysis[part].get(name, name) for name in titles[part]] for part in ("char_filter", "filter")
        }
        answer = opensearch.request("GET", "/_analyze", {"tokenizer": titles["tokenizer"], "text": text, **defined})
        if (found := [token["token"] for token in answer["tokens"]]) != terms:
            otherwise[text] = " ".join(found)
    assert otherwise == CUT_OTHERWISE
