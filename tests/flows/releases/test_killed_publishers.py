"""A client searches all the time while a second model is published, and the publisher is killed at twenty points."""

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from clicktower.flows.releases.kept_releases import verify
from clicktower.flows.releases.publish import publish
from clicktower.flows.releases.search import OpenRelease
from clicktower.schemas import object_store, storage
from clicktower.schemas.release import read_pointer
from clicktower.training.model.recipe import recipe as named_recipe
from tests.flows.releases import publishers_to_kill
from tests.flows.releases.catalogue import CONFIG, write_documents
from tests.recipes import varied
from tests.trained_model import trained_stage

NUM_POINTS = 20
QUERIES = ("copper pipe", "angle bracket", "garden hose 2x4")


class Client(threading.Thread):
    """Opens what is live, asks three queries, and opens again; what it saw is looked at afterwards."""

    def __init__(self, uri: str) -> None:
        super().__init__(daemon=True)
        self.uri = uri
        self.answers: list[tuple[str, str, list]] = []
        self.failures: list[BaseException] = []
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.is_set():
            try:
                opened = OpenRelease(self.uri)
                self.answers += [(opened.release.digest, text, opened.search(text, 10)) for text in QUERIES]
            except BaseException as error:
                self.failures.append(error)
            time.sleep(0.01)  # or the publishers would have to wait for it

    def end(self) -> None:
        self._ended.set()
        self.join()


@pytest.fixture
def publishers(documents, tmp_path):
    """Asks the program for a publisher of another model over another catalogue."""
    recipe = varied(named_recipe("lstm-96"), cells=16, seed=2)  # the kernel's vectors: the same bits every time
    model = trained_stage(str(tmp_path / "store"), recipe=recipe)
    new = write_documents(tmp_path / "new.tsv", num_documents=200, seed=30)
    command = [sys.executable, publishers_to_kill.__file__, model, new]
    program = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": os.getcwd()}
    )

    def ask(uri: str, kill_at: int) -> tuple[int, int]:
        program.stdin.write(f"{uri}\t{kill_at}\n")
        program.stdin.flush()
        status, steps = program.stdout.readline().rstrip("\n").split("\t")
        return int(status), int(steps or 0)

    yield ask, lambda uri: publish(model, documents=new, to=uri, config=CONFIG)
    program.stdin.close()
    program.wait()


@pytest.mark.rehearsal
@pytest.mark.engine
def test_whatever_kills_a_publisher_every_answer_is_of_one_release_and_the_next_publish_completes(
    published, publishers, tmp_path
):
    def a_live_release(name: str) -> str:
        """The first model's release, its files linked: nobody writes into a file that is there."""
        return str(shutil.copytree(published.uri, tmp_path / name, copy_function=os.link))

    kill_at_every_point(a_live_release, publishers, published.release.digest, uri=published.uri)


@pytest.mark.rehearsal
@pytest.mark.engine
def test_the_same_on_an_object_store_between_any_two_of_its_requests(on_s3, model, documents, publishers, monkeypatch):
    monkeypatch.setattr(object_store, "TAKE_OVER_SECONDS", 0.5)  # from a publisher that is dead
    monkeypatch.setattr(object_store, "LOOK_SECONDS", 0.1)
    bucket = on_s3.folder / "data" / "bucket"
    first = publish(model, documents=documents, to="s3://bucket/first", config=CONFIG)

    def a_live_release(name: str) -> str:
        shutil.copytree(bucket / "first", bucket / name, copy_function=os.link)
        return f"s3://bucket/{name}"

    kill_at_every_point(a_live_release, publishers, first.release.digest, uri=first.uri)


def kill_at_every_point(a_live_release: Callable[[str], str], publishers, old: str, *, uri: str) -> None:
    """NUM_POINTS of them. `old`: the digest of the release at `uri`, of which `a_live_release` makes copies."""
    ask, publish_it = publishers
    undisturbed = a_live_release("undisturbed")
    status, num_steps = ask(undisturbed, 0)
    assert status == 0
    new = read_pointer(undisturbed).release
    assert old != new
    opened = {digest: OpenRelease(place) for digest, place in ((old, uri), (new, undisturbed))}
    expected = {(digest, text): opened[digest].search(text, 10) for digest in opened for text in QUERIES}
    assert all(expected[old, text] != expected[new, text] for text in QUERIES)

    evenly = [1 + i * (num_steps - 10) // (NUM_POINTS - 10) for i in range(NUM_POINTS - 9)]
    points = sorted({*evenly, *range(num_steps - 8, num_steps + 1)})  # all of the last: they are about the pointer
    assert len(points) == NUM_POINTS
    live_after_kill = []
    for point in points:
        uri = a_live_release(f"killed-{point}")
        client = Client(uri)
        client.start()
        try:
            status, _ = ask(uri, point)
            assert status == -9
            live_after_kill.append(read_pointer(uri).release)
            assert verify(uri) == [], point
            assert publish_it(uri).is_live
            before = len(client.answers)
            while len(client.answers) < before + 2 * len(QUERIES) and not client.failures:
                time.sleep(0.01)
        finally:
            client.end()
        assert client.failures == []
        for digest, text, hits in client.answers:
            assert hits == expected[digest, text], point
        assert client.answers[0][0] == old
        assert client.answers[-1][0] == read_pointer(uri).release == new
        assert verify(uri) == []
        storage.remove(uri)
    assert {old, new} == set(live_after_kill)  # some were killed before the swap, some after it
