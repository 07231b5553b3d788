import random
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from clicktower.flows.releases import make_release as making
from clicktower.flows.releases import publish as publishing
from clicktower.flows.releases.kept_releases import rollback, verify
from clicktower.flows.releases.publish import Published, publish
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError
from clicktower.schemas.manifest import to_bytes
from clicktower.schemas.release import RELEASE, Pointer, Release, read_pointer
from clicktower.schemas.release import release_folder as folder_of
from tests.flows.releases.catalogue import CONFIG, write_documents
from tests.waiting import SECONDS

NUM_ROUNDS = 16  # without a claim one in ten goes wrong


def swap(uri: str, *, expected: Pointer | None, release: str) -> Pointer:
    """The pointer, moved to a release that there seems to be."""
    storage.write_new(storage.join(folder_of(uri, release), RELEASE), b"{}")
    return publishing.swap(uri, expected=expected, release=release)


def test_the_second_of_two_publishers_says_that_the_pointer_moved(live):
    seen_by_both = read_pointer(live)
    winner = swap(live, expected=seen_by_both, release="winner")
    with pytest.raises(StageError, match="Another publisher moved the pointer of"):
        swap(live, expected=seen_by_both, release="loser")
    assert read_pointer(live) == winner


@pytest.mark.slow
def test_of_many_processes_that_swap_at_once_exactly_one_wins(tmp_path):
    script = f"""
import sys
from clicktower.flows.releases import publish as publishing
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError
print("ready", flush=True)
sys.stdin.readline()
try:
    storage.write_new(f"{tmp_path}/releases/{{sys.argv[1]}}/release.json", b"{{}}")
    print(publishing.swap({str(tmp_path)!r}, expected=None, release=sys.argv[1]).release)
except StageError as error:
    print(error.problem)
"""
    pipes = {"text": True, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    publishers = [subprocess.Popen([sys.executable, "-c", script, f"r{i}"], **pipes) for i in range(6)]
    assert [publisher.stdout.readline() for publisher in publishers] == ["ready\n"] * 6
    for publisher in publishers:
        publisher.stdin.write("go\n")
        publisher.stdin.flush()
    said = [publisher.communicate()[0].strip() for publisher in publishers]
    live = read_pointer(str(tmp_path)).release
    assert live in said
    assert sum(f"Another publisher moved the pointer of {tmp_path} to {live}" in line for line in said) == 5


def test_a_pointer_that_moves_while_a_release_is_made_is_not_undone(live, model, tmp_path, monkeypatch):
    real = making.build_index

    def while_another_publishes(*args, **kwargs):
        swap(live, expected=read_pointer(live), release="theirs")
        return real(*args, **kwargs)

    monkeypatch.setattr(making, "build_index", while_another_publishes)
    new = write_documents(tmp_path / "new.tsv", seed=5)
    with pytest.raises(StageError, match="Another publisher moved the pointer of"):
        publish(model, documents=new, to=live, config=CONFIG)
    monkeypatch.undo()
    again = publish(model, documents=new, to=live, config=CONFIG)  # its files were kept: nothing is encoded again
    assert again.milliseconds_per_search is None
    assert read_pointer(live).release == again.release.digest


def publish_together(monkeypatch, requests: list[dict]) -> tuple[list[Published], list[StageError]]:
    """Each request by a publisher of its own, all of them ready to swap before the first one does."""
    ready, real, made, refused = threading.Barrier(len(requests)), publishing.swap, [], []

    def when_all_are_ready(*args, **kwargs):
        ready.wait(timeout=SECONDS)
        return real(*args, **kwargs)

    def one(request: dict) -> None:
        try:
            made.append(publish(**request))
        except StageError as error:
            refused.append(error)

    monkeypatch.setattr(publishing, "swap", when_all_are_ready)
    publishers = [threading.Thread(target=one, args=[request]) for request in requests]
    for publisher in publishers:
        publisher.start()
    for publisher in publishers:
        publisher.join()
    return made, refused


def test_of_two_publishers_at_once_one_wins_and_the_other_says_so(live, model, tmp_path, monkeypatch):
    before = read_pointer(live)
    requests = [
        {"model": model, "documents": write_documents(tmp_path / f"{seed}.tsv", 60, seed), "to": live, "config": CONFIG}
        for seed in (40, 41)
    ]
    (won,), (refused,) = publish_together(monkeypatch, requests)
    assert f"Another publisher moved the pointer of {live} to {won.release.digest}" in refused.problem
    assert read_pointer(live) == won.pointer
    assert won.pointer.previous == before.release
    assert verify(live) == []


def test_two_publishers_of_the_same_release_both_have_it_live(live, model, tmp_path, monkeypatch):
    new = write_documents(tmp_path / "new.tsv", 60, 42)
    request = {"model": model, "documents": new, "to": live, "config": CONFIG}
    (one, other), refused = publish_together(monkeypatch, [request, request])
    assert refused == []
    assert one.release == other.release
    assert one.pointer == other.pointer == read_pointer(live)
    assert verify(live) == []


def test_on_an_object_store_a_swap_between_comparison_and_writing_is_not_lost(monkeypatch):
    """fsspec's file system in memory creates an object only if it is not there, as the object stores do."""
    uri = "memory://between/live"
    first = swap(uri, expected=None, release="first")
    real = storage.write_new

    def after_another(where, content):
        monkeypatch.setattr(storage, "write_new", real)
        swap(uri, expected=first, release="theirs")
        return real(where, content)

    monkeypatch.setattr(storage, "write_new", after_another)
    with pytest.raises(StageError, match="Another publisher moved the pointer of"):
        swap(uri, expected=first, release="ours")
    assert read_pointer(uri).release == "theirs"


def test_on_an_object_store_a_publisher_that_dies_or_dawdles_between_its_two_writes_breaks_nothing(monkeypatch):
    uri = "memory://dawdling/live"
    swap(uri, expected=None, release="first")
    begun = storage.read_bytes(f"{uri}/pointer.json")

    def killed(where, content):
        raise KeyboardInterrupt

    monkeypatch.setattr(storage, "write_atomic", killed)
    with pytest.raises(KeyboardInterrupt):
        swap(uri, expected=read_pointer(uri), release="second")
    monkeypatch.undo()
    second = read_pointer(uri)
    assert (second.release, second.previous, second.number) == ("second", "first", 2)
    third = swap(uri, expected=second, release="third")
    storage.write_atomic(f"{uri}/pointer.json", begun)  # of a publisher that wakes up late
    assert read_pointer(uri) == third
    storage.write_atomic(f"{uri}/swaps/0000000002.json", b'{"schema_version": "1.1"')
    with pytest.raises(StageError, match=r"swaps/0000000002\.json of .* is damaged"):
        read_pointer(uri)


def test_a_release_that_was_removed_meanwhile_does_not_go_live(live):
    before = read_pointer(live)
    with pytest.raises(StageError, match=r"another publisher may have removed it among the oldest."):
        publishing.swap(live, expected=before, release="0" * 24)
    assert read_pointer(live) == before


def test_a_release_that_goes_live_while_others_are_cleared_away_stays(live, model, tmp_path, monkeypatch):
    """A publisher that was slow clears away as it knew the pointer before: it is read again, under one lock."""
    first = read_pointer(live).release
    for seed in (30, 31):
        publish(model, documents=write_documents(tmp_path / f"{seed}.tsv", num_documents=40, seed=seed), to=live,
                config=CONFIG)  # fmt: skip
    locked, others = publishing.claimed, []

    @contextmanager
    def late(uri, progress):
        monkeypatch.setattr(publishing, "claimed", locked)
        other = threading.Thread(target=rollback, args=(live,), kwargs={"release": first})
        other.start()
        other.join()  # just before
        others.append(other)
        with locked(uri, progress):
            yield

    monkeypatch.setattr(publishing, "claimed", late)
    publishing.prune(live, keep=0)
    assert others
    assert read_pointer(live).release == first
    assert verify(live) == []


AT_ONCE = """
import sys, time
from clicktower.flows.releases import publish as publishing
from clicktower.schemas import object_store
from clicktower.schemas.errors import StageError
from clicktower.schemas.release import read_pointer
object_store.LOOK_SECONDS = 0.02
for line in sys.stdin:
    uri, what = line.split()
    seen = read_pointer(uri)
    print("ready", flush=True)
    time.sleep(float(sys.stdin.readline()))
    try:
        if what == "prune":
            print(*publishing.prune(uri, keep=0), flush=True)
        else:
            print(publishing.swap(uri, expected=seen, release=what).release, flush=True)
    except StageError as error:
        print(error.problem, flush=True)
"""


@pytest.mark.rehearsal
@pytest.mark.engine
def test_on_an_object_store_nothing_that_goes_live_is_cleared_away(on_s3):
    """Two processes that swap and one that clears away, begun within moments of each other, again and again."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    command = [sys.executable, "-c", AT_ONCE]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]

    def ask(process: subprocess.Popen, line: str) -> None:
        process.stdin.write(f"{line}\n")
        process.stdin.flush()

    live = set()
    for number in range(NUM_ROUNDS):
        uri = f"s3://bucket/{number}"
        for digest in "ABC":
            release = Release(digest=digest, text_contract={}, num_documents=0, dimensions=1, index={}, evaluation={},
                              inputs={}, created=digest)  # fmt: skip
            storage.write_new(storage.join(folder_of(uri, digest), RELEASE), to_bytes(release.to_json()))
        swap(uri, expected=None, release="A")
        for process, what in zip(processes, ("B", "prune", "C"), strict=True):
            ask(process, f"{uri} {what}")
        assert [process.stdout.readline() for process in processes] == ["ready\n"] * 3
        for process, after in zip(processes, (None, 0.08 * (number % 2), None), strict=True):
            ask(process, str(chance.uniform(0, 0.2) if after is None else after))
        said = [process.stdout.readline() for process in processes]
        pointer = read_pointer(uri)
        for digest in filter(None, (pointer.release, pointer.previous)):
            assert storage.exists(storage.join(folder_of(uri, digest), RELEASE)), (seed, number, said)
        live.add(pointer.release)
    for process in processes:
        process.communicate()
    assert live > {"A"}, "at times a swap came first"
    assert not list((on_s3.folder / "data" / "bucket").rglob("claim-*"))
