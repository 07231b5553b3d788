import os
import resource
import signal
import subprocess
import sys
import threading
import tomllib
from contextlib import contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path

import pytest

from clicktower.schemas import storage
from clicktower.schemas.errors import StageError

PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


@pytest.mark.parametrize("base", ["{tmp}", "memory://storage-test"])
def test_a_written_file_is_read_back_and_listed(tmp_path, base):
    base = base.format(tmp=tmp_path)
    storage.write_atomic(storage.join(base, "a", "b.txt"), b"one")
    storage.write_atomic(storage.join(base, "a", "b.txt"), b"two")
    assert storage.read_bytes(storage.join(base, "a", "b.txt")) == b"two"
    assert storage.list_files(base) == ["a/b.txt"]
    assert storage.size_bytes(storage.join(base, "a", "b.txt")) == 3
    assert storage.size_bytes(storage.join(base, "nothing")) is None


@pytest.mark.parametrize("base", ["{tmp}", "memory://storage-pieces-test"])
def test_a_file_is_written_in_pieces_and_mapped_into_memory_that_may_be_written_to(tmp_path, base):
    name = storage.join(base.format(tmp=tmp_path), "pieces")
    storage.write_atomic(name, b"one ", memoryview(b"two"))
    content = storage.map_bytes(name)
    content[:3] = b"ONE"
    assert content[:] == b"ONE two"
    assert storage.read_bytes(name) == b"one two"


@pytest.mark.parametrize("base", ["{tmp}", "memory://storage-new-test"])
def test_a_name_is_created_once(tmp_path, base):
    name = storage.join(base.format(tmp=tmp_path), "once")
    assert storage.write_new(name, b"first")
    assert not storage.write_new(name, b"second")
    assert storage.read_bytes(name) == b"first"


@pytest.mark.parametrize("base", ["", "memory://building"])
@pytest.mark.parametrize("inner", ["", "/part/a.bin", "/b.bin"])
def test_what_is_built_is_there_whole_or_not_at_all(tmp_path, base, inner):
    folder = base or str(tmp_path)
    uri = storage.join(folder, f"made{len(inner)}")
    for ends_well in False, True:
        with pytest.raises(KeyboardInterrupt) if not ends_well else nullcontext(), storage.building(uri) as built:
            storage.write_atomic(f"{built}{inner}", b"0123456789")
            assert not storage.exists(uri)
            if not ends_well:
                raise KeyboardInterrupt
            storage.place(built, uri)
        assert storage.exists(uri) == ends_well
    assert storage.read_bytes(f"{uri}{inner}") == b"0123456789"
    assert not [name for name in storage.list_files(folder) if storage.BUILDING in name]


def test_of_two_that_build_a_folder_the_first_stays(tmp_path):
    uri = str(tmp_path / "made")
    with storage.building(uri) as first, storage.building(uri) as second:
        for built in first, second:
            storage.write_atomic(f"{built}/name", built.encode())
        storage.place(first, uri)
        with pytest.raises(OSError, match="not empty"):
            storage.place(second, uri)
    assert (tmp_path / "made/name").read_text() == first
    assert os.listdir(tmp_path) == ["made"]


def test_what_a_killed_process_was_building_goes_with_the_next_that_builds_the_same(tmp_path):
    killed = """
import os, signal, sys
from clicktower.schemas import storage
with storage.building(sys.argv[1]) as built:
    storage.write_atomic(f"{built}/part/a.bin", b"0123456789")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    uri = str(tmp_path / "made [1]")  # a name with a pattern's marks
    assert subprocess.run([sys.executable, "-c", killed, uri], check=False).returncode == -signal.SIGKILL
    [left] = tmp_path.iterdir()
    (tmp_path / f"{storage.BUILDING}other-0").mkdir()
    with storage.building(uri):
        assert left.exists(), "another process may be at it"
    two_days_ago = left.stat().st_mtime - 2 * storage.ABANDONED_SECONDS
    for path in tmp_path.iterdir():
        os.utime(path, (two_days_ago, two_days_ago))
    with storage.building(uri):
        assert [path.name for path in tmp_path.iterdir()] == [f"{storage.BUILDING}other-0"]


def test_a_folder_goes_although_another_thread_still_writes_to_it(tmp_path, monkeypatch):
    folder, rmdir, late = tmp_path / "scratch", os.rmdir, iter(range(3))

    def write_before(path, **options) -> None:
        if (number := next(late, None)) is not None:
            (folder / f"late-{number}").write_bytes(b"late")
        rmdir(path, **options)

    (folder / "part").mkdir(parents=True)
    monkeypatch.setattr(os, "rmdir", write_before)
    storage.remove(str(folder))
    assert not folder.exists()


def test_a_full_disk_keeps_the_old_file_and_leaves_no_other(tmp_path):
    """The limit on a file's size stands for the disk: write() fails in the middle either way."""
    storage.write_atomic(str(tmp_path / "state"), b"old")
    code = f"from clicktower.schemas import storage; storage.write_atomic({str(tmp_path / 'state')!r}, b'x' * 100_000)"

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    done = subprocess.run([sys.executable, "-B", "-c", code], preexec_fn=limit, capture_output=True, text=True)
    assert "File too large" in done.stderr
    assert (tmp_path / "state").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["state"]


def test_a_pattern_names_files_and_folders_and_a_name_that_exists_is_no_pattern(tmp_path):
    for name in ("b.gz", "a.gz", "c[1].txt", "c1.txt", "a::b", "logs [a]/x.gz", "logs a/y.gz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    names = lambda pattern: [p.removeprefix(f"{tmp_path}/") for p in storage.expand(str(tmp_path / pattern))]  # noqa: E731
    assert names("*.gz") == ["a.gz", "b.gz"]
    assert names("c[1].txt") == ["c[1].txt"]
    assert names("c[12].txt") == ["c1.txt"]
    assert names("log*") == ["logs [a]", "logs a"]
    assert names("logs [a]") == ["logs [a]"]
    assert names("d.txt") == []
    assert storage.read_bytes(f"{tmp_path}/a::b") == storage.read_bytes(f"file://{tmp_path}/a::b") == b"a::b"
    assert storage.filesystem("s3://bucket/a::b")[1] == "bucket/a::b"


def test_a_walk_goes_through_links_and_not_in_circles(tmp_path):
    for name in ("logs/a", "logs/sub/b", "elsewhere/c"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "logs/linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "logs/sub/up").symlink_to(tmp_path / "logs")
    (tmp_path / "logs/file").symlink_to(tmp_path / "elsewhere/c")
    os.mkfifo(tmp_path / "logs/pipe")
    names = [path.removeprefix(f"{tmp_path}/logs/") for path in storage.walk(str(tmp_path / "logs"))]
    assert names == ["a", "file", "linked/c", "sub/b"]
    assert storage.is_pipe(str(tmp_path / "logs/pipe"))
    storage.write_atomic("memory://walk/a/b", b"x")
    assert storage.walk("memory://walk") == ["memory:///walk/a/b"]


def test_a_local_fingerprint_is_of_the_content_alone(tmp_path):
    (tmp_path / "a").write_bytes(b"same")
    (tmp_path / "b").write_bytes(b"same")
    (tmp_path / "c").write_bytes(b"other")
    a, b, c = (storage.fingerprint(str(tmp_path / n)) for n in "abc")
    assert a == b != c


def test_files_are_looked_at_side_by_side_and_come_in_their_order(tmp_path):
    names = [str(tmp_path / f"{number}") for number in range(40)]
    for number, name in enumerate(names):
        storage.write_atomic(name, b"%d" % number)
    expected = [storage.sha256(name) for name in names]
    assert len(set(expected)) == 40
    assert storage.map_files(storage.sha256, names) == expected
    assert storage.map_files(storage.sha256, []) == []
    with pytest.raises(FileNotFoundError):
        storage.map_files(storage.sha256, [*names, str(tmp_path / "gone")])


@contextmanager
def web_server(files: dict[str, tuple[bytes, dict[str, str]]]):
    """The origin of a server of this machine: what each path holds, and what is said of it."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            content, headers = files[self.path]
            self.send_response(200)
            for name, value in ({"Content-Length": str(len(content))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        do_HEAD = do_GET

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.slow
@pytest.mark.parametrize("header", ["ETag", "Last-Modified", None])
def test_a_file_of_a_web_server_that_changed_has_another_fingerprint(header):
    """Its address is the same every night; what is at it is not."""
    files = {"/documents.tsv": (b"d1\tone\n", {header: "monday"} if header else {})}
    with web_server(files) as origin:
        uri = f"{origin}/documents.tsv"
        first, state = storage.fingerprint(uri), storage.state(uri)
        assert storage.fingerprint(uri) == first
        assert storage.state(uri) == state
        files["/documents.tsv"] = (b"d1\ttwo\n", {header: "tuesday"} if header else {})
        assert storage.fingerprint(uri) != first
        assert (storage.state(uri) != state) == (header is not None)


@pytest.mark.parametrize("base", ["{tmp}", "memory://storage-state-test"])
def test_the_state_of_a_file_changes_with_every_write(tmp_path, base):
    name = storage.join(base.format(tmp=tmp_path), "log")
    storage.write_atomic(name, b"one")
    before = storage.state(name)
    assert storage.state(name) == before
    if storage.is_local(name):
        os.utime(name, ns=(0, 0))
    else:
        storage.write_atomic(name, b"two")
    assert storage.state(name) != before


@pytest.mark.parametrize(
    ("uri", "package", "extra"),
    [
        ("s3://bucket/store", "s3fs", "s3"),
        ("gs://bucket/store", "gcsfs", "gcs"),
        ("az://container/store", "adlfs", "azure"),
        ("zip://day.ndjson::abfss://container/log.zip", "adlfs", "azure"),
    ],
)
def test_a_uri_whose_package_is_missing_names_the_extra_that_brings_it(uri, package, extra, monkeypatch):
    protocol = uri.partition("::")[2].partition("://")[0] or uri.partition("://")[0]
    loaded = import_module("fsspec.registry")._registry
    monkeypatch.delitem(loaded, protocol, raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(StageError) as raised:
        storage.exists(uri)
    assert f"pip install 'clicktower[{extra}]'" in raised.value.fix
    assert extra in tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]


def test_a_client_without_an_account_is_no_defect(monkeypatch):
    pytest.importorskip("adlfs")
    for name in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(name)
    with pytest.raises(StageError, match="abfs:// refuses its settings"):
        storage.exists("abfs://container/store")
