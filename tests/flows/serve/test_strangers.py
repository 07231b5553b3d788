"""Those who ask in bad faith: other names for this machine, requests that never end, more at once than it can do."""

import asyncio
import json
import socket
import threading
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from http.client import HTTPConnection

import pytest
import uvicorn
from starlette.testclient import TestClient

from clicktower.flows.serve import app as serving
from clicktower.flows.serve import endpoints, service
from clicktower.flows.serve.limits import Limits, Refused, address_of
from clicktower.flows.serve.service import ServeConfig, _uvicorn, hosts_of, make_app
from clicktower.flows.serve.turns import Turns, Waits
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
def listening(release: str, **settings):
    """The port of a service as `clicktower serve` sets it up."""
    config = ServeConfig(release=release, port=0, **settings)
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


@pytest.mark.parametrize(("workers", "waiting"), [(1, 2), (2, 5)])  # which two workers divide
def test_what_is_too_much_at_once_is_refused_and_what_is_under_way_is_answered(
    release, tmp_path, monkeypatch, workers, waiting
):
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    explained, may_end, under_way = endpoints.explain, threading.Event(), threading.Event()

    def slow(body, served):
        under_way.set()
        may_end.wait()
        return explained(body, served)

    monkeypatch.setattr(endpoints, "explain", slow)
    config = ServeConfig(release=release, workers=workers, limits=Limits(slow_requests=waiting))
    with TestClient(make_app(config), "http://127.0.0.1") as client, ThreadPoolExecutor(9) as pool:
        ask = lambda: client.post("/v1/explain", json={"query": "door", "title": "door handle"})  # noqa: E731
        asked = [pool.submit(ask)]
        under_way.wait()
        asked += [pool.submit(ask) for _ in range(3)]
        [refused], waiting = wait(asked, return_when=FIRST_COMPLETED)
        assert refused.result().status_code == 429
        assert refused.result().headers["Retry-After"] == "1"
        assert client.post("/v1/search", json={"query": "door"}).status_code == 200
        may_end.set()
        assert [one.result().status_code for one in waiting] == [200] * 3
        assert ask().status_code == 200


async def in_order(turns: Turns, addresses: str) -> tuple[list[str], list[str]]:
    """(what was done, what was refused), of requests that come while one is under way."""
    done, may_end = [], threading.Event()
    first = asyncio.create_task(turns.run("first", may_end.wait))
    await asyncio.sleep(0)
    tasks = {}
    for at, address in enumerate(addresses):
        name = f"{address}{at}"
        tasks[name] = asyncio.create_task(turns.run(address, partial(done.append, name)))
        await asyncio.sleep(0)
    may_end.set()
    await first
    results = dict(zip(tasks, await asyncio.gather(*tasks.values(), return_exceptions=True), strict=True))
    return done, [name for name, result in results.items() if isinstance(result, Refused)]


def test_addresses_take_turns():
    assert asyncio.run(in_order(Turns(1, 99), "aaaabbc")) == (["a0", "b4", "c6", "a1", "b5", "a2", "a3"], [])


def test_of_too_many_the_address_that_asks_most_is_refused():
    assert asyncio.run(in_order(Turns(1, 4), "aaaabc")) == (["a0", "b4", "c5", "a1"], ["a2", "a3"])
    assert asyncio.run(in_order(Turns(1, 2), "abc")) == (["a0", "b1"], ["c2"])


def test_a_request_that_is_given_up_gives_its_turn_to_the_next():
    async def ask() -> list[str]:
        turns, done, may_end = Turns(1, 99), [], threading.Event()
        first = asyncio.create_task(turns.run("a", may_end.wait))
        await asyncio.sleep(0)
        given_up, other = (asyncio.create_task(turns.run("a", partial(done.append, name))) for name in "bc")
        await asyncio.sleep(0)
        given_up.cancel()
        may_end.set()
        await asyncio.gather(first, other)
        await turns.run("a", partial(done.append, "d"))
        return done

    assert asyncio.run(ask()) == ["c", "d"]


def test_of_too_many_waits_the_oldest_of_the_address_with_most_is_ended():
    waits, ended = Waits(3), []
    ends = [partial(ended.append, at) for at in range(6)]
    for end, address in zip(ends, "abbcab", strict=True):
        waits.begin(address, end)
    assert ended == [1, 0, 2]
    waits.end("b", ends[5])
    waits.end("b", ends[1])  # which has given way
    waits.begin("c", partial(ended.append, "c"))
    assert ended == [1, 0, 2]


HEAD = "POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"


def search(port: int) -> int:
    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as other:
        other.request("POST", "/v1/search", json.dumps({"query": "door"}), {"Content-Type": "application/json"})
        return other.getresponse().status


@pytest.mark.slow
def test_bodies_that_arrive_slowly_lock_nobody_out(release):
    with listening(release, limits=Limits(bodies=8)) as port, ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60)) for _ in range(20)]
        for number, asker in enumerate(slow):
            asker.sendall(HEAD.encode())
            assert number % 5 or search(port) == 200
        answers = [rest_of(asker) for asker in slow[:12]]  # which came first
        assert {answer[9:12] for answer in answers} == {b"408"}
        assert search(port) == 200


@pytest.mark.slow
def test_connections_that_say_nothing_lock_nobody_out(release):
    with listening(release, limits=Limits(connections=8)) as port, ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60)) for _ in range(20)]
        assert search(port) == 200
        for asker in silent[:12]:
            with suppress(ConnectionResetError):
                assert rest_of(asker) == b""


@pytest.mark.slow
def test_whoever_takes_no_answer_is_left(release, monkeypatch):
    monkeypatch.setattr(service, "_IDLE_SECONDS", 0.5)
    with listening(release) as port, socket.create_connection(("127.0.0.1", port), timeout=60) as asker:
        asker.setblocking(False)
        request = b"GET /docs HTTP/1.1\r\nHost: localhost\r\n\r\n" * 10
        with suppress(BlockingIOError):
            while True:  # until the service reads no more
                asker.sendall(request)
        asker.setblocking(True)

        def is_left() -> bool:
            try:
                asker.send(b"GET", socket.MSG_DONTWAIT)
            except BlockingIOError:
                return False
            except OSError:
                return True
            return False

        wait_until(is_left, "the service to end the connection")


@pytest.mark.parametrize(
    ("trusted", "said", "address"),
    [
        ((), "10.0.0.7", "127.0.0.1"),
        (("127.0.0.1",), "10.0.0.7", "10.0.0.7"),
        (("127.0.0.0/8",), "9.9.9.9, 10.0.0.7", "10.0.0.7"),  # the first was said by the client
        (("127.0.0.1",), "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        (("10.0.0.1",), "10.0.0.7", "127.0.0.1"),
    ],
)
def test_a_proxy_is_believed_only_if_it_is_trusted(release, monkeypatch, trusted, said, address):
    addresses = []
    monkeypatch.setattr(serving, "address_of", lambda request: addresses.append(address_of(request)) or addresses[-1])
    with listening(release, trusted_proxies=trusted) as port, closing(HTTPConnection("127.0.0.1", port)) as other:
        headers = {"Content-Type": "application/json", "X-Forwarded-For": said}
        other.request("POST", "/v1/search", json.dumps({"query": "door"}), headers)
        assert other.getresponse().status == 200
    assert addresses == [address]


def test_the_description_tells_of_every_refusal(release):
    with TestClient(make_app(ServeConfig(release=release)), "http://127.0.0.1") as client:
        output = json.loads(client.get("/openapi.json").content)["paths"]["/v1/explain"]["post"]["responses"]
    assert {"408", "413", "421", "429"} <= set(output)
