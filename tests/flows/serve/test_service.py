"""The endpoints in this process: what they answer, what they refuse, and that nothing makes them fail."""

import asyncio
import json
import re
import threading
import unicodedata
from dataclasses import asdict

import jsonschema
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from clicktower.flows.releases.search import OpenRelease
from clicktower.flows.serve import openapi
from clicktower.flows.serve.app import Metrics
from clicktower.flows.serve.endpoints import MOST_BYTES, MOST_LETTERS, MOST_RESULTS, MOST_TEXTS
from clicktower.flows.serve.limits import Limits
from clicktower.flows.serve.service import ServeConfig, is_loopback, make_app
from clicktower.schemas.errors import StageError, UsageError
from clicktower.training.model.embedding import search_vectors
from tests.flows.serve.service_release import publish_named
from tests.trained_model import trained_stage

SENTENCE = re.compile(r"[A-Z].{10,}\.")


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    folder = tmp_path_factory.mktemp("service")
    model = trained_stage(str(folder / "store"), labels={"simulated": True})
    return publish_named(model, str(folder / "live"), "one", folder)


@pytest.fixture(scope="module")
def client(published):
    with TestClient(
        make_app(ServeConfig(release=published.uri)), "http://127.0.0.1", raise_server_exceptions=False
    ) as client:
        yield client


@pytest.fixture(scope="module")
def opened(published):
    return OpenRelease(published.uri)


@pytest.mark.parametrize("mode", ["vector", "bm25", "hybrid"])
def test_search_answers_what_the_release_answers(client, opened, mode):
    asked = {"query": "Angle  BRACKET ørn", "k": 7, "mode": mode, "lexical_share": 0.5 if mode == "hybrid" else None}
    found = client.post("/v1/search", json=asked).json()
    expected = opened.search(asked["query"], 7, mode, lexical_share=asked["lexical_share"], details=True)
    assert found["hits"] == [asdict(hit) for hit in expected]
    assert (found["release"], found["query"], found["mode"]) == (opened.release.digest, asked["query"], mode)
    assert found["took_ms"] > 0
    assert client.post("/v1/search", json=asked | {"release": opened.release.digest}).json()["hits"] == found["hits"]


def test_ten_documents_by_the_whole_score_unless_asked_otherwise(client, opened):
    found = client.post("/v1/search", json={"query": "copper pipe"}).json()
    assert found["mode"] == "hybrid"
    assert [hit["id"] for hit in found["hits"]] == [hit.id for hit in opened.search("copper pipe", 10)]


SLOW = [{"query": "copper " * 100}, {"query": "copper", "k": MOST_RESULTS}, {"query": "copper", "where": {"id": "a"}}]


@pytest.mark.parametrize("body", SLOW, ids=lambda body: ", ".join(body))
def test_what_takes_long_leaves_the_short_requests_their_threads(client, monkeypatch, body):
    search, threads = OpenRelease.search, []

    def watched(self, *args, **kwargs):
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        threads.append(threading.current_thread())
        return search(self, *args, **kwargs)

    monkeypatch.setattr(OpenRelease, "search", watched)
    for asked in [{"query": "copper pipe"}] * 20 + [body] * 2:
        assert client.post("/v1/search", json=asked).status_code == 200
    assert not set(threads[:20]) & set(threads[20:])
    assert len(set(threads[20:])) == 1


@pytest.mark.parametrize(
    ("address", "body"),
    [
        ("q=copper+pipe", {"query": "copper pipe"}),
        ("query=%C3%B8rn&k=3&offset=4&mode=bm25", {"query": "ørn", "k": 3, "offset": 4, "mode": "bm25"}),
        ("q=ørn&lexical_share=0.5", {"query": "ørn", "lexical_share": 0.5}),
        ("q=2&lexical_share=null", {"query": "2", "lexical_share": None}),
        ('q=hose&where={"title":{"gte":"h"}}', {"query": "hose", "where": {"title": {"gte": "h"}}}),
        ("q=hose&release=DIGEST", {"query": "hose", "release": "DIGEST"}),
    ],
)
def test_a_search_by_address_is_that_by_body(client, opened, address, body):
    digest = opened.release.digest
    by_address = client.get(f"/v1/search?{address}".replace("DIGEST", digest)).json()
    by_body = client.post("/v1/search", json=json.loads(json.dumps(body).replace("DIGEST", digest))).json()
    assert by_body["hits"]
    assert by_address | {"took_ms": 0} == by_body | {"took_ms": 0}


@pytest.mark.parametrize(
    ("address", "status", "output"),
    [
        ("", 422, "query"),
        ("q=", 422, "query"),
        ("q=+%09", 422, "has no word"),
        ("q=a&q=b", 422, "twice"),
        ("q=a&query=b", 422, "twice"),
        ("q=" + "a" * (MOST_LETTERS + 1), 422, "query"),
        ("q=a%00b", 422, r"control character \(U\+0000\) at place 2"),
        ("q=a%ED%A0%80", 400, "UTF-8"),
        ("q=%FF", 400, "UTF-8"),
        ("q=a&k=0", 422, "k"),
        ("q=a&k=1001", 422, "k"),
        ("q=a&k=many", 422, "k"),
        ("q=a&k=1.5", 422, "k"),
        ("q=a&k=true", 422, "k"),
        ("q=a&k=", 422, "k"),
        ("q=a&k=1e400", 422, "k"),
        ("q=a&offset=100", 422, "offset"),
        ("q=a&offset=95", 422, "pages reach the first 100"),
        ("q=a&lexical_share=NaN", 422, "lexical_share"),
        ("q=a&mode=exact", 422, "mode"),
        ("q=a&quary=b", 422, "quary"),
        ("q=a&where=price", 422, "where"),
        ("q=a&where=" + "[" * 10_000, 422, "where"),
        ('q=a&where={"size":3}', 422, "no column 'size'"),
        ("q=a&release=gone", 404, "release"),
    ],
)
def test_an_address_that_cannot_be_answered_is_refused_in_a_sentence(client, address, status, output):
    answer = client.get(f"/v1/search?{address}")
    assert answer.status_code == status, answer.text
    assert SENTENCE.fullmatch(answer.json()["error"])
    assert re.search(output, answer.json()["error"])


def test_pages_of_other_sites_read_answers_only_where_the_service_names_them(published, client):
    shop, other = {"Origin": "https://shop.example"}, {"Origin": "https://other.example"}
    preflight = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    of_answers = "Access-Control-Allow-Origin"
    assert of_answers not in client.get("/v1/search?q=hose", headers=shop).headers
    assert client.options("/v1/search", headers=shop | preflight).status_code == 405
    config = ServeConfig(release=published.uri, allowed_origins=("https://shop.example", "http://localhost:3000"))
    with TestClient(make_app(config), "http://127.0.0.1") as shared:
        asked = shared.options("/v1/search", headers=shop | preflight)
        assert (asked.status_code, asked.headers[of_answers]) == (200, "https://shop.example")
        assert "content-type" in asked.headers["Access-Control-Allow-Headers"].lower()
        for answer in (
            shared.get("/v1/search?q=hose", headers=shop),
            shared.post("/v1/search", json=SEARCH, headers=shop),
            shared.post("/v1/search", json={}, headers=shop),  # a refusal is readable too
        ):
            assert (answer.headers[of_answers], answer.headers["Vary"]) == ("https://shop.example", "Origin")
        assert shared.options("/v1/search", headers=other | preflight).status_code == 400
        assert of_answers not in shared.get("/v1/search?q=hose", headers=other).headers
        assert shared.get("/v1/search?q=hose", headers=shop | {"Host": "evil.example"}).status_code == 421
    with TestClient(
        make_app(ServeConfig(release=published.uri, allowed_origins=("*",))), "http://127.0.0.1"
    ) as any_site:
        assert any_site.get("/v1/search?q=hose", headers=other).headers[of_answers] == "*"
    for wrong in (
        "https://shop.example/",
        "shop.example",
        "https://Shop.example",
        "https://shop.example:443",
        "null",
        "",
    ):
        with pytest.raises(UsageError, match="No browser names"):
            ServeConfig(release="release", allowed_origins=(wrong,))


@pytest.mark.parametrize("texts", [["copper pipe"], ["copper pipe", "ørn", "2x4 " * 200] * 20])
def test_embed_gives_the_vectors_of_the_model(client, opened, texts):
    for side in ("query", "document"):
        found = client.post("/v1/embed", json={"texts": texts, "side": side}).json()
        assert np.float32(found["vectors"]).tolist() == search_vectors(opened.encoder, texts, side).tolist()
        assert (found["release"], found["dimensions"]) == (opened.release.digest, 8)


def test_explain_takes_a_document_or_any_title(client, opened):
    hit = opened.search("copper pipe", 1, details=True)[0]
    by_id = client.post("/v1/explain", json={"query": "copper pipe", "id": hit.id}).json()
    by_title = client.post("/v1/explain", json={"query": "copper pipe", "title": hit.title}).json()
    assert by_id | {"took_ms": 0} == by_title | {"took_ms": 0}
    assert (by_id["score"], by_id["cosine"], by_id["bm25"]) == (hit.score, hit.cosine, hit.bm25)
    described = openapi.DESCRIPTION["paths"]["/v1/explain"]["post"]["responses"]["200"]["content"]
    jsonschema.validate(by_id, described["application/json"]["schema"])
    by_terms = client.post("/v1/explain", json={"query": "copper pipe", "id": hit.id, "mode": "bm25"}).json()
    assert by_terms["score"] == hit.bm25
    for wrong in ({}, {"id": hit.id, "title": hit.title}):
        assert client.post("/v1/explain", json={"query": "copper pipe", **wrong}).status_code == 422
    assert client.post("/v1/explain", json={"query": "copper pipe", "id": "nowhere"}).status_code == 404


def test_it_says_what_it_serves(client, opened):
    found = client.get("/v1/release").json()
    assert (found["release"], found["num_documents"], found["dimensions"]) == (opened.release.digest, 300, 8)
    assert found["index"]["recall"] == 1.0
    assert found["labels"] == {"simulated": True}
    assert client.get("/healthz").json() == {"status": "ok", "release": opened.release.digest}


SEARCH = {"query": "copper pipe"}
EMBED = {"texts": ["copper pipe"], "side": "query"}
REFUSED = [
    ("search", {}, 422, "query"),
    ("search", {"query": ""}, 422, "query"),
    ("search", {"query": " \t\n "}, 422, "has no word"),
    ("search", {"query": "\u200b \ufeff"}, 422, "has no word"),
    ("search", SEARCH | {"interleave": "a" * (MOST_LETTERS + 1)}, 422, "interleave"),
    ("search", {"query": "copper\0pipe"}, 422, r"control character \(U\+0000\) at place 7"),
    ("search", {"query": "copper\x1b[31m"}, 422, r"U\+001B"),
    ("search", {"query": 7}, 422, "query"),
    ("search", SEARCH | {"k": 0}, 422, "k"),
    ("search", SEARCH | {"k": -1}, 422, "k"),
    ("search", SEARCH | {"k": MOST_RESULTS + 1}, 422, "k"),
    ("search", SEARCH | {"k": 10**30}, 422, "k"),
    ("search", SEARCH | {"k": 1.5}, 422, "k"),
    ("search", SEARCH | {"k": True}, 422, "k"),
    ("search", SEARCH | {"mode": "exact"}, 422, "mode"),
    ("search", SEARCH | {"lexical_share": -0.1}, 422, "lexical_share"),
    ("search", SEARCH | {"lexical_share": "1"}, 422, "lexical_share"),
    ("search", SEARCH | {"lexical_share": 0.1, "mode": "bm25"}, 422, "by terms alone"),
    ("search", SEARCH | {"lexical_share": 0.1, "mode": "vector"}, 422, "by vectors alone"),
    ("search", SEARCH | {"quary": "a"}, 422, "quary"),
    ("search", SEARCH | {"release": "gone"}, 404, "release"),
    ("search", [SEARCH], 422, "object"),
    ("search", None, 422, "object"),
    ("embed", {"texts": [], "side": "query"}, 422, "texts"),
    ("embed", EMBED | {"texts": ["a"] * (MOST_TEXTS + 1)}, 422, "texts"),
    ("embed", EMBED | {"texts": ["copper", " "]}, 422, "number 2"),
    ("embed", EMBED | {"texts": ["copper", "a\x7f"]}, 422, "control"),
    ("embed", EMBED | {"side": "title"}, 422, "side"),
    ("embed", EMBED | {"release": "gone"}, 404, "release"),
    ("explain", {"query": "a", "title": " "}, 422, "word"),
    ("explain", {"query": "a", "title": "b", "mode": "exact"}, 422, "mode"),
    ("explain", {"query": "a", "title": "b", "lexical_share": 1}, 422, "lexical_share"),
    ("explain", {"query": "a", "title": "b", "release": "gone"}, 404, "release"),
]


@pytest.mark.parametrize(("path", "body", "status", "output"), REFUSED)
def test_what_cannot_be_answered_is_refused_in_a_sentence(client, path, body, status, output):
    answer = client.post(f"/v1/{path}", content=json.dumps(body), headers={"Content-Type": "application/json"})
    assert answer.status_code == status
    assert SENTENCE.fullmatch(answer.json()["error"])
    assert re.search(output, answer.json()["error"])


# What one letter of NFKC becomes: eighteen letters, of which four are words; a pair of Japanese letters is a word.
BOMB, PAIRS = "\ufdfa", "寿"
LONG = {
    "letters": ("a" * 101, "101 letters,"),
    "letters when normalised": (BOMB * 6, "108 letters, ligatures written out,"),
    "words": ("a " * 31, "31 words,"),
    "words when normalised": (f"{'a ' * 26}{BOMB}{BOMB}", "33 words,"),
    "words without spaces": (PAIRS * 32, "31 words,"),
}
DOORS = [
    ("search", "query", {}), ("search", "query", {"interleave": "q1"}), ("search", "query", {"mode": "bm25"}),
    ("embed", "texts", {"side": "query"}), ("explain", "query", {"title": "a"}), ("explain", "title", {"query": "a"}),
]  # fmt: skip


@pytest.fixture(scope="module")
def narrow(published):
    config = ServeConfig(release=published.uri, limits=Limits(letters=100, words=30), against=published.release.digest)
    with TestClient(make_app(config), "http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


@pytest.mark.parametrize(("path", "name", "rest"), DOORS)
def test_a_text_has_so_many_letters_and_words_behind_every_door(narrow, path, name, rest):
    def ask(text: str):
        return narrow.post(f"/v1/{path}", json=rest | {name: ["a", text] if name == "texts" else text})

    for text, reason in LONG.values():
        refused = ask(text)
        assert refused.status_code == 422
        assert refused.json()["error"].startswith(f"The field {name} has a text of {reason}")
        assert SENTENCE.fullmatch(refused.json()["error"])
    for text in ("a" * 100, "a " * 30, BOMB * 5, PAIRS * 31):
        assert ask(text).status_code == 200


def test_normalising_works_on_no_more_letters_than_are_read(monkeypatch):
    normalise, worked = unicodedata.normalize, []

    def counted(form: str, text: str) -> str:
        worked.append(len(text))
        return normalise(form, text)

    monkeypatch.setattr(unicodedata, "normalize", counted)
    for text in (BOMB * 1_000_000, BOMB * 2_000):
        with pytest.raises(UsageError):
            Limits().require_text("query", text)
    assert worked == [2_000, 36_000]


BYTES = [
    (b"", 400),
    (b"{", 400),
    (b'{"query": "a"} x', 400),
    (b'{"query": "\xff"}', 400),
    (b'{"query": "\\ud800"}', 400),
    (b'{"query": "a", "lexical_share": NaN}', 400),
    (b'{"query": "a", "lexical_share": 1e999}', 422),
    (b"[" * 200_000, 422),
    (b'{"query": ' + b"[" * 200_000, 422),
    (b'{"deep": ' * 20_000, 422),
    (b'{"query": "' + b"a" * MOST_BYTES + b'"}', 413),
]


@pytest.mark.parametrize(("content", "status"), BYTES, ids=[content[:20] for content, _ in BYTES])
def test_bytes_that_are_not_what_is_asked_for_are_refused(client, content, status):
    answer = client.post("/v1/search", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == status
    assert SENTENCE.fullmatch(answer.json()["error"])


def test_another_content_type_path_or_method_is_refused(client):
    body = json.dumps(SEARCH)
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        assert client.post("/v1/search", content=body, headers={"Content-Type": kind}).status_code == 415
    kind = "Application/JSON; charset=utf-8"
    assert client.post("/v1/search", content=body, headers={"Content-Type": kind}).status_code == 200
    for method, path, status in [("GET", "/v1/embed", 405), ("PUT", "/", 405), ("DELETE", "/metrics", 405),
                                 ("GET", "/v1", 404), ("POST", "/v1/search/", 404), ("GET", "/%00", 404)]:  # fmt: skip
        answer = client.request(method, path)
        assert answer.status_code == status
        assert SENTENCE.fullmatch(answer.json()["error"])


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
TEXT = st.text(st.characters(), min_size=1, max_size=40)
MODES = st.sampled_from(["vector", "bm25", "hybrid"])
LIKELY = {
    "search": st.fixed_dictionaries(
        {"query": TEXT},
        optional={
            "k": st.integers(1, 60),
            "offset": st.integers(0, 99),
            "mode": MODES,
            "lexical_share": st.none() | st.floats(0, 0.99),
        },
    ),
    "embed": st.fixed_dictionaries(
        {"texts": st.lists(TEXT, min_size=1, max_size=12), "side": st.sampled_from(["query", "document"])}
    ),
    "explain": st.fixed_dictionaries({"query": TEXT, "title": TEXT}, optional={"mode": MODES}),
}


@pytest.mark.slow
@pytest.mark.parametrize("path", list(LIKELY))
@settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_whatever_is_sent_is_answered_or_refused(client, path, data):
    body = data.draw(LIKELY[path])
    if data.draw(st.booleans()):
        names = st.sampled_from([*body, "release", "id", "other"])
        body = body | data.draw(st.dictionaries(names, JUNK, max_size=2))
    content = json.dumps(body).encode()
    if data.draw(st.integers(0, 3)) == 0:
        at = data.draw(st.integers(0, len(content)))
        content = content[:at] + data.draw(st.binary(max_size=4)) + content[at + data.draw(st.integers(0, 3)) :]
    answer = client.post(f"/v1/{path}", content=content, headers={"Content-Type": "application/json"})
    found = answer.json()
    if answer.status_code == 200:
        assert set(openapi.DESCRIPTION["paths"][f"/v1/{path}"]["post"]["responses"]["200"]["content"][
            "application/json"]["schema"]["required"]) <= set(found)  # fmt: skip
    else:
        assert 400 <= answer.status_code < 500
        assert list(found) == ["error"]
        assert found["error"].endswith(".")


def test_metrics_count_what_was_asked_and_hold_no_text(published):
    with TestClient(make_app(ServeConfig(release=published.uri)), "http://127.0.0.1") as client:
        for _ in range(3):
            client.post("/v1/search", json={"query": "zanzibar"})
        client.post("/v1/search", json={"query": ""})
        client.get("/zanzibar")
        text = client.get("/metrics").text
    assert 'clicktower_requests_total{route="/v1/search",status="200"} 3.0' in text
    assert 'clicktower_requests_total{route="/v1/search",status="422"} 1.0' in text
    assert 'clicktower_requests_total{route="other",status="404"} 1.0' in text
    assert 'clicktower_request_seconds_count{route="/v1/search"} 4.0' in text
    assert f'clicktower_release_info{{release="{published.release.digest}"}} 1.0' in text
    assert "clicktower_release_documents 300.0" in text
    assert 'clicktower_release_swaps_total{outcome="failed"} 0.0' in text
    assert "zanzibar" not in text


def test_the_sums_of_workers_are_without_that_of_one_that_begins_or_was_killed(tmp_path, monkeypatch):
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    of_killed = tmp_path / "gauge_livesum_99999999.db"  # no process has so high a number
    of_killed.touch()
    metrics = Metrics(shared=True)
    assert not of_killed.exists()
    (tmp_path / "counter_1.db").touch()
    assert metrics.text() == b""


def test_the_description_names_every_endpoint_and_its_page_loads_nothing_from_elsewhere(client):
    described = client.get("/openapi.json").json()
    assert described["openapi"].startswith("3.1")
    for path, ways in described["paths"].items():
        for method in ways:
            parameters = {"q": "hose"} if ways[method].get("parameters") else {}
            assert client.request(method.upper(), path, params=parameters).status_code in (200, 415)
    page = client.get("/docs")
    for link in re.findall(r'(?:src|href)="([^"]+)"', page.text):
        assert client.get(link).status_code == 200
    for path, body in re.findall(r"http://127.0.0.1:8080(/v1/\w+) -d &#x27;(.+?)&#x27;", page.text):
        assert client.post(path, json=json.loads(body.replace("&quot;", '"'))).status_code == 200


def test_every_answer_tells_the_browser_what_it_may_do_with_it(client):
    asked = [("GET", path) for path in ("/", "/docs", "/openapi.json", "/healthz", "/metrics", "/v1/release",
                                        "/static/examples.json", "/nowhere")]  # fmt: skip
    for method, path in [*asked, ("PUT", "/"), ("POST", "/v1/search"), ("POST", "/v1/explain")]:
        for host in ("localhost", "evil.example"):
            answer = client.request(method, path, json=SEARCH, headers={"Host": host})
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["Referrer-Policy"] == "no-referrer"


@pytest.mark.parametrize(
    ("method", "address", "status", "caching"),
    [
        ("GET", "/v1/search?q=copper+pipe", 200, "no-store"),
        ("GET", "/v1/search?q=+", 422, "no-store"),
        ("POST", "/v1/search", 415, "no-store"),
        ("GET", "/?q=copper", 200, "no-store"),  # the address that the page makes of a query
        ("GET", "/nowhere?q=copper", 404, "no-store"),
        ("GET", "/", 200, "no-cache"),
        ("GET", "/static/page.js", 200, "no-cache"),
        ("GET", "/healthz", 200, "no-cache"),
    ],
)
def test_no_cache_keeps_what_a_person_typed(client, method, address, status, caching):
    answer = client.request(method, address)
    assert (answer.status_code, answer.headers.get_list("Cache-Control")) == (status, [caching])


def test_a_defect_is_an_answer_too_and_is_logged_without_the_text(client, monkeypatch, caplog):
    def broken(*args, **kwargs):
        raise RuntimeError("zanzibar")

    monkeypatch.setattr("clicktower.flows.releases.search.OpenRelease.search", broken)
    answer = client.post("/v1/search", json={"query": "zanzibar"})
    assert answer.status_code == 500
    assert "RuntimeError in tests.flows.serve.test_service" in caplog.text
    assert "zanzibar" not in caplog.text + answer.text


def test_what_cannot_be_served_is_said_at_the_start(tmp_path):
    with pytest.raises(StageError, match="Nothing is published at"):
        make_app(ServeConfig(release=str(tmp_path)))
    for wrong in ({"port": -1}, {"workers": 0}, {"poll_seconds": 0.0}):
        with pytest.raises(UsageError, match=r"See `clicktower serve --help`."):
            ServeConfig(release="release", **wrong)
    with pytest.raises(UsageError, match=r"40 workers cannot share .* 40 slow_requests.* --set slow_requests=40"):
        ServeConfig(release="release", workers=40)
    found = [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "::", "10.0.0.1", "a.example")]
    assert found == [True] * 3 + [False] * 4
