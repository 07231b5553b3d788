"""Storage on an object store whose answers are lost, and in a bucket that is not there: with a real server."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from clicktower.schemas import storage
from tests.bad_line import BadLine
from tests.s3_server import S3Server


@pytest.fixture
def server(tmp_path) -> Iterator[S3Server]:
    pytest.importorskip("s3fs")
    with S3Server(tmp_path / "s3") as server:
        yield server


def reach(address: str, server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (server.environment | {"AWS_ENDPOINT_URL": f"http://{address}"}).items():
        monkeypatch.setenv(name, value)
    storage.filesystem("s3://")[0].clear_instance_cache()


@pytest.mark.engine
def test_whoever_created_an_object_learns_it_though_the_answer_is_lost(server, monkeypatch):
    """The client asks again by itself, and is told that the object is there."""
    lost = iter([True, False] * 2)

    def fault(method: str, path: str, headers: dict[str, str]) -> str:
        return "lost_answer" if "if-none-match" in headers and next(lost) else ""

    with BadLine(server=server.address, fault=fault) as line:
        reach(line.address, server, monkeypatch)
        assert storage.write_new("s3://bucket/one", b"mine")
        assert not storage.write_new("s3://bucket/one", b"theirs")
        assert line.faults["lost_answer"] == 2
    assert [path.read_bytes() for path in server.files()] == [b"mine"]


@pytest.mark.engine
def test_a_bucket_that_is_not_there_is_said_and_not_made(server, monkeypatch):
    reach(server.address, server, monkeypatch)
    for write in (storage.write_new, storage.write_atomic):
        with pytest.raises(FileNotFoundError):
            write("s3://buckett/store/one", b"1")
    assert [path.name for path in (server.folder / "data").iterdir()] == ["bucket"]


@pytest.mark.engine
def test_what_another_process_wrote_is_seen_at_once(server, monkeypatch):
    """Found by the rehearsal: who had listed a folder before did not see the manifest that a job wrote meanwhile."""
    reach(server.address, server, monkeypatch)
    storage.write_atomic("s3://bucket/store/claim", b"1")
    assert storage.list_names("s3://bucket/store") == ["claim"]
    elsewhere = "from clicktower.schemas import storage; storage.write_new('s3://bucket/store/manifest.json', b'{}')"
    subprocess.run([sys.executable, "-c", elsewhere], check=True)
    assert storage.exists("s3://bucket/store/manifest.json")
    assert storage.size_bytes("s3://bucket/store/manifest.json") == 2
    assert storage.read_bytes("s3://bucket/store/manifest.json") == b"{}"
