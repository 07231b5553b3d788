"""Pages of hits: those of one long request, without a repeat or a gap."""

import json
from collections.abc import Iterator
from dataclasses import asdict, replace

import pytest
from starlette.testclient import TestClient

from clicktower.flows.cli import run
from clicktower.flows.releases import make_release as making
from clicktower.flows.releases import release_documents
from clicktower.flows.releases import search as searching
from clicktower.flows.releases.interleaving import interleaved_search
from clicktower.flows.releases.publish import publish
from clicktower.flows.releases.search import PAGED, OpenRelease
from clicktower.flows.serve.service import ServeConfig, make_app
from clicktower.schemas.errors import UsageError
from clicktower.training.model.recipe import recipe
from tests.flows.releases.catalogue import CONFIG
from tests.trained_model import trained_stage

QUERY = "steel angle hose"


@pytest.fixture(scope="module", params=["compared", "indexed"])
def opened(request, documents, tmp_path_factory) -> Iterator[OpenRelease]:
    """300 documents, by the whole score: all are compared, or 100 of each kind by an index that looks further for more
    results.
    """
    folder = tmp_path_factory.mktemp("paged")
    bag = recipe("bag-pool-512-words")
    small = replace(bag, tower=replace(bag.tower, cells=16))
    index = "ivf" if request.param == "indexed" else "none"
    config = replace(CONFIG, index=index, min_recall=0.5)
    model = trained_stage(str(folder / "store"), recipe=small)
    with pytest.MonkeyPatch.context() as patched:
        if request.param == "indexed":
            for module in (release_documents, making, searching):
                patched.setattr(module, "CANDIDATES", 100)
        opened = OpenRelease(publish(model, documents=documents, to=str(folder / "live"), config=config).uri)
        opened.load()
        if request.param == "indexed":
            opened.documents_search.steps = [
                {"recall_at": 50, "num_probes": 8}, {"recall_at": 100, "num_probes": 28}
            ]  # fmt: skip
        yield opened


@pytest.mark.parametrize("where", [None, {"title": {"gt": "b"}}], ids=["all", "filtered"])
@pytest.mark.parametrize("mode", ["hybrid", "vector", "bm25"])
@pytest.mark.parametrize("size", [5, 25])
def test_pages_are_the_parts_of_one_long_request(opened, mode, where, size):
    for query in (QUERY, "sledge hammer", "weighed"):  # without a known term the index alone brings candidates
        long = opened.search(query, PAGED, mode, where=where)
        offsets = range(0, PAGED - size + 1, size)
        paged = [hit for at in offsets for hit in opened.search(query, size, mode, offset=at, where=where)]
        assert paged == long[: len(offsets) * size]
        assert [hit.rank for hit in paged] == list(range(1, len(paged) + 1))


def test_pages_of_two_releases_are_the_parts_of_one_list(opened, model, documents, tmp_path):
    rival = OpenRelease(publish(model, documents=documents, to=str(tmp_path / "rival"), config=CONFIG).uri)
    long = interleaved_search(opened, rival, "q1", QUERY, 60)
    paged = [hit for at in range(0, 60, 15) for hit in interleaved_search(opened, rival, "q1", QUERY, 15, offset=at)]
    assert paged == long
    with pytest.raises(UsageError, match="pages reach the first 100"):
        interleaved_search(opened, rival, "q1", QUERY, 60, offset=60)


def test_pages_end_where_the_ranking_is_the_same_for_all_of_them(opened):
    assert len(opened.search(QUERY, 10, offset=PAGED - 10)) == 10
    assert opened.search("copper", 10, "bm25", offset=90, where={"title": "copper"}) == []
    with pytest.raises(UsageError, match=r"Hits 92 to 101 are asked for, and pages reach the first 100\. Ask"):
        opened.search(QUERY, 10, offset=91)
    assert len(opened.search(QUERY, 300)) == 300
    for offset in (-1, 1.0, True, "3", None):
        with pytest.raises(UsageError, match="offset = 0 or more"):
            opened.search(QUERY, offset=offset)


def test_the_command_and_the_service_turn_the_same_pages(opened, capsys):
    expected = [asdict(hit) for hit in opened.search(QUERY, 5, offset=20, details=True)]
    assert run(["search", QUERY, "--release", opened.uri, "--k", "5", "--offset", "20", "--json"]) == 0
    typed = json.loads(capsys.readouterr().out)["hits"]
    assert [(hit["rank"], hit["id"]) for hit in typed] == [(hit["rank"], hit["id"]) for hit in expected]
    with TestClient(make_app(ServeConfig(release=opened.uri)), "http://127.0.0.1") as client:
        body = {"query": QUERY, "k": 5, "offset": 20}
        assert client.post("/v1/search", json=body).json()["hits"] == expected
        for wrong in ({"offset": 96}, {"offset": -1}, {"offset": 1.5}, {"k": 1000}):
            assert client.post("/v1/search", json=body | wrong).status_code == 422
        assert len(client.post("/v1/search", json={"query": QUERY, "k": 300}).json()["hits"]) == 300
