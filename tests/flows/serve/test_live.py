"""A running service while releases change: real processes, asked without a pause."""

import asyncio
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from clicktower.flows.serve import live as following
from clicktower.flows.serve.live import Live
from clicktower.schemas import storage
from clicktower.schemas.release import read_pointer
from tests.flows.serve.service_release import publish_named
from tests.trained_model import trained_stage
from tests.waiting import SECONDS, wait_until


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return trained_stage(str(tmp_path_factory.mktemp("store")))


# The service as the command starts it, but that it waits for slow requests: on a busy machine the test is slow.
PATIENT = """
import sys
from clicktower.flows.cli import main
from clicktower.flows.serve import endpoints, service
from tests.waiting import SECONDS
endpoints.BODY_SECONDS = service._HEAD_SECONDS = SECONDS
service._BUSY_SECONDS = 2 * SECONDS
main(sys.argv[1:])
"""


def ask(url: str, path: str, body: dict | None = None) -> str:
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, content, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        return answer.read().decode()


def answers(url: str) -> bool:
    try:
        ask(url, "/healthz")
    except OSError:  # refused, or closed unanswered
        return False
    return True


@contextmanager
def started(release: str, log: Path, *options: str):
    """(the process of `clicktower serve` on a free port, its url), what it says in `log`; killed at the end."""
    command = [sys.executable, "-c", PATIENT, "serve", "--release", release, "--port", "0", "--json", *options]
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            url = json.loads(process.stdout.readline())["url"]
            ask(url, "/healthz")
            yield process, url
        finally:
            process.kill()


@contextmanager
def serving(release: str, log: Path, *options: str):
    """The url of a service; ended by SIGTERM, which must end it well."""
    with started(release, log, *options) as (process, url):
        yield url
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0


class Asker(threading.Thread):
    """Asks one query after the other, and keeps every answer that is not wholly of one known release."""

    def __init__(self, url: str, mode: str, name_of: dict[str, str]) -> None:
        super().__init__(daemon=True)
        self.url, self.mode, self.name_of = url, mode, name_of
        self.stopping = threading.Event()
        self.wrong: list[str] = []
        self.seen: set[str] = set()
        self.num_answers = 0

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                found = json.loads(ask(self.url, "/v1/search", {"query": "steel pipe", "mode": self.mode, "k": 20}))
                name = self.name_of[found["release"]]
                if not found["hits"] or not all(
                    hit["id"].startswith(f"{name}-") and hit["title"].endswith(name) for hit in found["hits"]
                ):
                    self.wrong.append(f"mixed: {found}")
                self.seen.add(name)
            except Exception as error:
                self.wrong.append(repr(error))
            self.num_answers += 1


@pytest.mark.engine
def test_releases_change_under_load_and_no_request_is_lost_or_mixed(model, tmp_path):
    uri = str(tmp_path / "live")
    first = publish_named(model, uri, "one", tmp_path)
    elsewhere = [publish_named(model, str(tmp_path / "x"), name, tmp_path) for name in ("two", "three")]
    name_of = {first.release.digest: "one"} | {
        made.release.digest: name for made, name in zip(elsewhere, ("two", "three"), strict=True)
    }
    with serving(uri, tmp_path / "log", "--poll-seconds", "0.1") as url:
        askers = [Asker(url, mode, name_of) for mode in ("vector", "vector", "bm25", "hybrid")]
        for asker in askers:
            asker.start()

        def until(reported: str) -> None:
            wait_until(lambda: reported in ask(url, "/metrics"), lambda: f"{reported}:\n" + ask(url, "/metrics"))

        publish_named(model, uri, "two", tmp_path)
        until('swaps_total{outcome="served"} 1.0')
        # A release that cannot be opened: its table loses its end before the pointer names it.
        third = Path(shutil.copytree(elsewhere[1].folder, Path(uri, "releases", elsewhere[1].release.digest)))
        data = next(third.glob("documents.arrow"))
        data.write_bytes(data.read_bytes()[:-10])
        pointer = f"{uri}/pointer.json"
        sound = storage.read_bytes(pointer)
        storage.write_atomic(pointer, storage.read_bytes(str(tmp_path / "x" / "pointer.json")))
        until('swaps_total{outcome="failed"} 1.0')
        assert json.loads(ask(url, "/healthz"))["release"] == elsewhere[0].release.digest
        storage.write_atomic(pointer, sound)
        publish_named(model, uri, "one", tmp_path)  # back to the first
        until('swaps_total{outcome="served"} 2.0')
        for asker in askers:
            asker.stopping.set()
            asker.join()
        port = int(url.rsplit(":", 1)[1])
        listening = Path("/proc/net/tcp").read_text()
        assert re.search(rf"0100007F:{port:04X} 00000000:0000 0A", listening)
        assert not re.search(rf"00000000:{port:04X} 00000000:0000 0A", listening)
    reported = Path(tmp_path, "log").read_text()
    assert [asker.wrong for asker in askers] == [[], [], [], []]
    assert set.union(*(asker.seen for asker in askers)) == {"one", "two"}
    assert min(asker.num_answers for asker in askers) > 10
    assert reported.count("cannot be served") == 1
    assert "bytes and should have" in reported
    assert "steel" not in reported  # what people ask is in no log


@pytest.mark.engine
@pytest.mark.several_machines  # it is told to listen to them
def test_workers_share_a_port_and_their_numbers_and_end_together(model, tmp_path):
    uri = str(tmp_path / "live")
    publish_named(model, uri, "one", tmp_path)
    with serving(uri, tmp_path / "log", "--workers", "2", "--host", "0.0.0.0") as url:
        for _ in range(40):
            ask(url, "/v1/search", {"query": "steel pipe"})
        found = ask(url, "/metrics")
        assert 'clicktower_requests_total{route="/v1/search",status="200"} 40.0' in found
        assert "clicktower_release_documents 300.0" in found
    assert "no authentication" in Path(tmp_path, "log").read_text()
    with pytest.raises(urllib.error.URLError):
        ask(url, "/healthz")


@pytest.mark.engine
def test_a_worker_that_is_killed_in_the_middle_of_a_health_check_is_replaced(model, tmp_path):
    uri = str(tmp_path / "live")
    publish_named(model, uri, "one", tmp_path)
    with started(uri, tmp_path / "log", "--workers", "2") as (process, url):

        def workers() -> set[psutil.Process]:
            living = set[psutil.Process]()
            for child in psutil.Process(process.pid).children():
                with suppress(psutil.NoSuchProcess):  # or one that waits to be reaped
                    if "spawn_main" in " ".join(child.cmdline()):
                        living.add(child)
            return living

        wait_until(lambda: figure(url, "clicktower_release_documents") and len(workers()) == 2, "both workers")
        before = workers()
        killed = before.pop()
        killed.suspend()
        time.sleep(2)  # the parent begins a check every half second, and waits for this worker's answer
        killed.kill()
        wait_until(lambda: len(workers() - before) == 1, "another worker")
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0


@contextmanager
def busy_machine(num_processes: int):
    """So many processes that want a core all the time."""
    with ExitStack() as stack:
        for _ in range(num_processes):
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(process.kill)
        yield


def figure(url: str, name: str) -> float:
    """A figure of /metrics, 0 if it is not there yet."""
    found = re.search(rf"^{re.escape(name)} (\S+)$", ask(url, "/metrics"), re.MULTILINE)
    return float(found[1]) if found else 0.0


@pytest.mark.engine
def test_workers_are_one_service_on_a_busy_machine_while_releases_change(model, tmp_path):
    uri = str(tmp_path / "live")
    digests = [publish_named(model, str(tmp_path / name), name, tmp_path).release.digest for name in ("one", "two")]
    shutil.copytree(tmp_path / "one", uri)
    serving_one, serving_two = (f'clicktower_release_info{{release="{digest}"}}' for digest in digests)
    options = ("--workers", "2", "--poll-seconds", "0.1")
    answered = 'clicktower_requests_total{route="/v1/search",status="200"}'
    with serving(uri, tmp_path / "log", *options) as url:
        wait_until(lambda: figure(url, serving_one) == 2, "both workers")
        with busy_machine(15):
            for number in range(1, 11):
                ask(url, "/v1/search", {"query": "steel pipe"})
                assert figure(url, answered) == number  # whichever worker is asked
            shutil.copytree(tmp_path / "two" / "releases" / digests[1], f"{uri}/releases/{digests[1]}")
            storage.write_atomic(f"{uri}/pointer.json", storage.read_bytes(str(tmp_path / "two" / "pointer.json")))
            wait_until(lambda: figure(url, serving_two) == 2, "both workers to serve the second release")
            assert figure(url, serving_one) == 0


@pytest.mark.engine
def test_sigterm_while_the_next_release_is_opened_ends_the_service_too(model, tmp_path):
    uri = str(tmp_path / "live")
    publish_named(model, uri, "one", tmp_path)
    with started(uri, tmp_path / "log", "--poll-seconds", "0.05") as (process, url), busy_machine(15):
        asker = Asker(url, "hybrid", {})
        asker.start()
        publish_named(model, uri, "two", tmp_path, num_documents=3_000)
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
        asker.stopping.set()
        asker.join(60)


@pytest.mark.engine
def test_a_request_under_way_is_answered_after_sigterm_and_no_other_is_taken(model, tmp_path):
    uri = str(tmp_path / "live")
    publish_named(model, uri, "one", tmp_path)
    body = json.dumps({"query": "steel pipe"}).encode()
    head = "POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with started(uri, tmp_path / "log", "--drain-seconds", f"{SECONDS:.0f}") as (process, url):
        port = int(url.rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as under_way:
            under_way.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:5])
            ask(url, "/healthz")  # answered after the half above was read
            process.send_signal(signal.SIGTERM)
            while answers(url):
                pass
            under_way.sendall(body[5:])
            assert under_way.recv(12) == b"HTTP/1.1 200"
        assert process.wait(SECONDS) == 0


UNLUCKY = """
import os, signal
from clicktower.flows.serve import service

class Dropped:
    def __del__(self):  # Python prints and drops what is raised here, as in the callbacks of its imports
        os.kill(os.getpid(), signal.SIGTERM)
        os.getpid()

def make_app(config):
    Dropped()
    async def app(scope, receive, send):
        raise NotImplementedError
    return app

service.make_app = make_app
config = service.ServeConfig(release="live", port=0)
service.serve(config, service.listen(config))
"""


def test_sigterm_whose_exception_gets_lost_ends_the_service_too():
    done = subprocess.run([sys.executable, "-c", UNLUCKY], timeout=SECONDS, capture_output=True, text=True, check=False)
    assert (done.returncode, "SystemExit" in done.stderr) == (0, True)


def test_a_release_that_cannot_be_opened_is_tried_again_after_a_while(model, tmp_path, monkeypatch):
    uri = str(tmp_path / "live")
    first = publish_named(model, uri, "one", tmp_path)
    changed, failures = [], []
    live = Live(uri, changed=changed.append, failed=lambda: failures.append(1))
    second = publish_named(model, uri, "two", tmp_path)
    files = [*Path(second.folder).glob("model/*"), Path(second.folder, "documents.arrow")]
    content = bytearray(files[-1].read_bytes())
    content[len(content) // 2] ^= 1  # sizes alone would not show it
    sound = files[-1].read_bytes()
    files[-1].write_bytes(content)
    asyncio.run(live.look())
    asyncio.run(live.look())
    assert (live.current.digest, len(failures)) == (first.release.digest, 1)
    files[-1].write_bytes(sound)
    asyncio.run(live.look())  # not yet
    assert live.current.digest == first.release.digest
    monkeypatch.setattr(following, "RETRY_SECONDS", 0.0)
    live._retry_at = 0.0
    asyncio.run(live.look())
    assert live.current.digest == second.release.digest == read_pointer(uri).release
    assert [served.digest for served in changed] == [first.release.digest, second.release.digest]
    Path(uri, "pointer.json").unlink()
    asyncio.run(live.look())
    assert (live.current.digest, len(failures)) == (second.release.digest, 2)


@pytest.mark.slow
def test_the_old_release_is_given_back_when_its_last_request_ended(model, tmp_path):
    import gc
    import weakref

    uri = str(tmp_path / "live")
    publish_named(model, uri, "one", tmp_path)
    live = Live(uri, changed=lambda served: None, failed=lambda: None)
    answering = live.current
    old = weakref.ref(answering.opened)
    publish_named(model, uri, "two", tmp_path)
    asyncio.run(live.look())
    gc.collect()
    assert old() is answering.opened  # a request under way holds it
    assert {hit.id.split("-")[0] for hit in answering.opened.search("steel pipe", 50)} == {"one"}
    del answering
    gc.collect()
    assert old() is None
