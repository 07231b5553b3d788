"""Claims on a file system that has no locks: fsspec's in memory, which creates an object only if it is not there."""

import threading
import time
import uuid

import pytest

from clicktower.schemas import object_store, storage
from clicktower.schemas.manifest import Outcome
from clicktower.schemas.stage import run_stage, stage_folder
from tests.schemas.claim_holder import REQUEST
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def store(monkeypatch) -> str:
    monkeypatch.setattr(object_store, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(object_store, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(object_store, "TAKE_OVER_SECONDS", 1.0)
    return f"memory://{uuid.uuid4().hex}"


class Maker:
    """A thread that makes REQUEST in a store, and is at it until it is let go."""

    def __init__(self, store: str) -> None:
        self.begun, self._let_go = threading.Event(), threading.Event()
        self.told: list[str] = []
        self._results: list = []
        self._thread = threading.Thread(target=self._run, args=(store,))
        self._thread.start()

    def _run(self, store: str) -> None:
        def produce(folder: str) -> Outcome:
            self.begun.set()
            self._let_go.wait()
            return Outcome()

        self._results.append(run_stage(store, REQUEST, produce, lambda what, *_: self.told.append(what)))

    def answer(self) -> str:
        self._let_go.set()
        self._thread.join()
        return "reused" if self._results[0].reused else "made"


def claims(store: str) -> list[str]:
    return [name for name in storage.list_names(stage_folder(store, REQUEST)) if name.startswith("claim-")]


def test_the_second_waits_however_long_the_first_takes_and_answers_reused(store):
    first = Maker(store)
    wait_until(first.begun.is_set)
    second = Maker(store)
    wait_until(lambda: second.told)
    assert "another process is making this: waiting (process" in second.told[0]
    time.sleep(3 * object_store.TAKE_OVER_SECONDS)
    assert not second.begun.is_set(), "who gives signs of life is not taken over"
    assert (first.answer(), second.answer()) == ("made", "reused")
    assert claims(store) == []


def test_the_claim_of_a_dead_one_is_taken_over_after_a_while(store):
    storage.write_new(storage.join(stage_folder(store, REQUEST), "claim-000001.json"), b"cut off")
    begun = time.monotonic()
    assert Maker(store).answer() == "made"
    assert time.monotonic() - begun >= object_store.TAKE_OVER_SECONDS
    assert claims(store) == []


def test_a_holder_that_was_only_slow_harms_nobody(store, monkeypatch):
    """It gives no sign of life, is taken over, and goes on: the first to commit counts."""
    monkeypatch.setattr(object_store, "BEAT_SECONDS", 1e6)
    slow = Maker(store)
    wait_until(slow.begun.is_set)
    other = Maker(store)
    wait_until(other.begun.is_set)
    assert claims(store) == ["claim-000002.json"]
    assert (other.answer(), slow.answer()) == ("made", "reused")
    assert claims(store) == []


def test_a_claim_that_is_released_takes_no_claim_of_the_next_holder_with_it(store, monkeypatch):
    name = storage.join(stage_folder(store, REQUEST), "claim-000001.json")
    filesystem = type(storage.filesystem(store)[0])
    rm, next_claims = filesystem.rm, []

    def release(fs, path: str, **how: object) -> None:
        rm(fs, path, **how)
        if path.endswith("claim-000001.json") and not next_claims:
            next_claims.append(storage.write_new(name, b"of the next"))

    monkeypatch.setattr(filesystem, "rm", release)
    assert Maker(store).answer() == "made"
    assert next_claims == [True]
    assert storage.read_bytes(name) == b"of the next"


def test_a_stage_that_fails_gives_its_claim_back(store):
    def fail(folder: str) -> Outcome:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        run_stage(store, REQUEST, fail)
    assert claims(store) == []


def test_a_claim_that_is_released_between_listing_and_reading_is_waited_for_no_longer(store, monkeypatch):
    name = storage.join(stage_folder(store, REQUEST), "claim-000001.json")
    storage.write_new(name, b"of another")
    read_bytes, released = storage.read_bytes, []

    def release_first(uri: str) -> bytes:
        if uri == name and not released:
            released.append(uri)
            storage.remove(name)
        return read_bytes(uri)

    monkeypatch.setattr(storage, "read_bytes", release_first)
    monkeypatch.setattr(object_store, "TAKE_OVER_SECONDS", 1e6)
    assert Maker(store).answer() == "made"
    assert (released, claims(store)) == ([name], [])
