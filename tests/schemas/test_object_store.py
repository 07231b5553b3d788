"""Storage on object stores whose answers are lost, and in a bucket that is not there: with real servers."""

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from clicktower.schemas import storage
from tests.bad_line import BadLine
from tests.gcs_server import GcsServer
from tests.object_server import ObjectServer
from tests.s3_server import S3Server


@pytest.fixture(params=[S3Server, GcsServer], ids=["s3", "gs"])
def server(request, tmp_path) -> Iterator[ObjectServer]:
    with request.param(tmp_path / "server") as server:
        yield server


def reach(address: str, server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in server.environment_at(address).items():
        monkeypatch.setenv(name, value)
    storage.filesystem(server.bucket)[0].clear_instance_cache()


def is_creation(path: str, headers: dict[str, str]) -> bool:
    return "if-none-match" in headers or "ifGenerationMatch=0" in path


@pytest.mark.engine
def test_of_creators_at_once_one_wins_and_its_bytes_stay(server, monkeypatch):
    reach(server.address, server, monkeypatch)
    with ThreadPoolExecutor(8) as creators:
        for name in range(20):
            uri = f"{server.bucket}/claims/{name}"
            won = list(creators.map(lambda creator, uri=uri: storage.write_new(uri, bytes([creator])), range(8)))
            assert won.count(True) == 1
            assert storage.read_bytes(uri) == bytes([won.index(True)])


@pytest.mark.engine
def test_whoever_created_an_object_learns_it_though_the_answer_is_lost(server, monkeypatch):
    """The client asks again by itself, and is told that the object is there."""
    lost = iter([True, False] * 2)

    def fault(method: str, path: str, headers: dict[str, str]) -> str:
        return "lost_answer" if is_creation(path, headers) and next(lost) else ""

    with BadLine(server=server.address, fault=fault) as line:
        reach(line.address, server, monkeypatch)
        assert storage.write_new(f"{server.bucket}/one", b"mine")
        assert not storage.write_new(f"{server.bucket}/one", b"theirs")
        assert line.faults["lost_answer"] == 2
    assert [path.read_bytes() for path in server.files()] == [b"mine"]


@pytest.mark.engine
def test_a_bucket_that_is_not_there_is_said_and_not_made(server, monkeypatch):
    reach(server.address, server, monkeypatch)
    for write in (storage.write_new, storage.write_atomic):
        with pytest.raises(FileNotFoundError):
            write(f"{server.bucket}t/store/one", b"1")
    assert [path.name for path in (server.folder / "data").iterdir() if path.is_dir()] == ["bucket"]


@pytest.mark.engine
def test_what_another_process_wrote_is_seen_at_once(server, monkeypatch):
    """Found by the rehearsal: who had listed a folder before did not see the manifest that a job wrote meanwhile."""
    reach(server.address, server, monkeypatch)
    store = f"{server.bucket}/store"
    storage.write_atomic(f"{store}/claim", b"1")
    assert storage.list_names(store) == ["claim"]
    elsewhere = f"from clicktower.schemas import storage; storage.write_new('{store}/manifest.json', b'{{}}')"
    subprocess.run([sys.executable, "-c", elsewhere], check=True)
    assert storage.exists(f"{store}/manifest.json")
    assert storage.size_bytes(f"{store}/manifest.json") == 2
    assert storage.read_bytes(f"{store}/manifest.json") == b"{}"


@pytest.mark.engine
def test_a_large_object_is_written_copied_moved_and_read_in_parts(server, monkeypatch):
    """Above 50 MiB the clients upload in parts."""
    reach(server.address, server, monkeypatch)
    content = bytes(range(256)) * (51 << 12)
    storage.write_atomic(f"{server.bucket}/large", content)
    before = storage.state(f"{server.bucket}/large")
    storage.copy(f"{server.bucket}/large", f"{server.bucket}/copies/copy")
    storage.move(f"{server.bucket}/copies/copy", f"{server.bucket}/moved/large")
    assert storage.list_files(server.bucket) == ["large", "moved/large"]
    assert storage.list_folders(server.bucket) == ["moved"]
    assert storage.sha256(f"{server.bucket}/moved/large") == hashlib.sha256(content).hexdigest()
    starts = (0, (50 << 20) - 3, (50 << 20) + 5)  # before, over and after the border of two parts
    ranges = [(f"{server.bucket}/large", start, 7) for start in starts]
    assert storage.read_ranges(ranges) == [content[start : start + 7] for start in starts]
    storage.write_atomic(f"{server.bucket}/large", content[1:])
    assert storage.state(f"{server.bucket}/large") != before
    storage.remove(f"{server.bucket}/moved")
    assert storage.list_files(server.bucket) == ["large"]
