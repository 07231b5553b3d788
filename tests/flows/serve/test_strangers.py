"""Those who ask in bad faith: other names for this machine, requests that never end, more at once than it can do."""

import asyncio
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.client import HTTPConnection

import pytest
import uvicorn
from starlette.testclient import TestClient

from clicktower.flows.serve import app as serving
from clicktower.flows.serve import endpoints, service
from clicktower.flows.serve.service import ServeConfig, _uvicorn, hosts_of, make_app
from tests.flows.serve.service_release import publish_named
from tests.trained_model import trained_stage
from tests.waiting import SECONDS, wait_until


@pytest.fixture(scope="module")
def release(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("service")
    return publish_named(trained_stage(str(folder / "store")), str(folder / "live"), "one", folder).uri


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8080", 200), ("localhost", 200), ("LocalHost:1", 200), ("[::1]:8080", 200), ("[::1]", 200),
        ("search.example", 200), ("evil.example", 421), ("127.0.0.1.evil.example:8080", 421), ("", 421),
        ("localhost:80:evil", 421),
    ],
)  # fmt: skip
def test_a_service_of_this_machine_answers_to_its_own_names_only(release, host, status):
    config = ServeConfig(release=release, allowed_hosts=("search.example",))
    with TestClient(make_app(config), "http://127.0.0.1") as client:
        for method, path in (("GET", "/healthz"), ("GET", "/"), ("POST", "/v1/search")):
            answer = client.request(method, path, headers={"Host": host}, json={"query": "door"})
            assert answer.status_code == status
            assert (status == 200) or "host name" in answer.json()["error"]


def test_a_service_for_other_machines_answers_to_any_name_unless_told():
    assert hosts_of(ServeConfig(release="r", host="0.0.0.0")) is None
    assert hosts_of(ServeConfig(release="r", host="0.0.0.0", allowed_hosts=("a",))) >= {"a", "localhost"}
    assert "[::1]" in hosts_of(ServeConfig(release="r", host="::1"))


@contextmanager
def listening(release: str):
    """The port of a service as `clicktower serve` sets it up."""
    config = ServeConfig(release=release, port=0)
    server = uvicorn.Server(_uvicorn(config, make_app(config)))
    with service.listen(config) as found:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [found]}, daemon=True)
        thread.start()
        wait_until(lambda: server.started, "the service to start")
        yield found.getsockname()[1]
        server.should_exit = True
        thread.join()


def rest_of(asker: socket.socket) -> bytes:
    """What is answered until the connection is closed from the other side."""
    found = b""
    while piece := asker.recv(1 << 16):
        found += piece
    return found


HEAD = b"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n"
NEVER_END = [
    # Nothing at all, half a line, a head without an end. To say it late is as good.
    (service, "_HEAD_SECONDS", {b"": b"", b"POST /v1/se": b"", HEAD: b""}),
    # A body without an end; and, as quickly refused, a head that grows.
    (endpoints, "BODY_SECONDS", {HEAD + b"\r\n{": b"408", b"GET / HTTP/1.1\r\n" + b"X: " + b"y" * (65 << 10): b"400"}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("module", "limit", "ways"), NEVER_END, ids=["head", "body"])
def test_what_never_ends_is_closed_and_others_are_answered_meanwhile(release, monkeypatch, module, limit, ways):
    monkeypatch.setattr(module, limit, 0.3)
    with listening(release) as port:
        askers = []
        for said in ways:
            asker = socket.create_connection(("127.0.0.1", port))
            asker.settimeout(SECONDS)
            asker.sendall(said)
            askers.append(asker)

        def state() -> str:
            """Empty where this process asked too late, so that the service had closed the connection."""
            try:
                other.request("GET", "/healthz")
                return json.loads(other.getresponse().read())["status"]
            except ConnectionError:
                other.close()
                return ""

        with closing(HTTPConnection("127.0.0.1", port)) as other:
            wait_until(state, "an answer")
            kept = other.sock
            time.sleep(0.5)  # a kept connection may wait for longer between two requests
            assert state() == "ok"
            assert other.sock is kept
        for asker, expected in zip(askers, ways.values(), strict=True):
            with closing(asker):
                answered = rest_of(asker)
            assert answered[9:12] == expected


def test_what_is_too_much_at_once_is_refused_and_what_is_under_way_is_answered(release, monkeypatch):
    explained, may_end, under_way = endpoints.explain, threading.Event(), threading.Semaphore(0)

    async def slow(body, served):
        under_way.release()
        await asyncio.to_thread(may_end.wait)
        return await explained(body, served)

    monkeypatch.setattr(endpoints, "explain", slow)
    with (
        TestClient(make_app(ServeConfig(release=release)), "http://127.0.0.1") as client,
        ThreadPoolExecutor(9) as pool,
    ):
        ask = lambda: client.post("/v1/explain", json={"query": "door", "title": "door handle"})  # noqa: E731
        asked = [pool.submit(ask) for _ in range(serving.MOST_EXPLANATIONS)]
        for _ in asked:
            under_way.acquire()
        refused = ask()
        assert refused.status_code == 429
        assert refused.headers["Retry-After"] == "1"
        assert client.post("/v1/search", json={"query": "door"}).status_code == 200
        may_end.set()
        assert [one.result().status_code for one in asked] == [200] * serving.MOST_EXPLANATIONS
        assert ask().status_code == 200


def test_the_description_tells_of_every_refusal(release):
    with TestClient(make_app(ServeConfig(release=release)), "http://127.0.0.1") as client:
        output = json.loads(client.get("/openapi.json").content)["paths"]["/v1/explain"]["post"]["responses"]
    assert {"408", "413", "421", "429"} <= set(output)
