"""Bad input, through the command line: an exit code, a sentence that says what to do, no trace, nothing half-made."""

import gzip
import os
import resource
import shutil
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, ingest_log
from clicktower.flows.cli import run
from tests.end_to_end.shop import clicktower, make_shop

SEARCH = b'{"query_id": "s1", "client_id": "c1", "user_query": "red hammer", "timestamp": "2026-09-01T10:00:00Z"}\n'
CLICK = (
    b'{"query_id": "s1", "client_id": "c1", "action_name": "click", "timestamp": "2026-09-01T10:00:05Z", '
    b'"event_attributes": {"object": {"object_id": "d1"}, "position": {"ordinal": 1}}}\n'
)
GOOD_LOG = SEARCH + CLICK
DOCUMENTS = b"d1\tRed hammer\nd2\tBlue saw\n"


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "documents.tsv").write_bytes(DOCUMENTS)
    (tmp_path / "log.ndjson").write_bytes(GOOD_LOG)
    return tmp_path


@pytest.fixture(scope="module")
def day(tmp_path_factory) -> Path:
    """A store with the log's ingested day, for others to copy."""
    folder = tmp_path_factory.mktemp("day")
    (folder / "log.ndjson").write_bytes(GOOD_LOG)
    ingest_log([str(folder / "log.ndjson")], store=str(folder / "store"), config=IngestConfig())
    return folder / "store"


@pytest.fixture
def here(capfd):
    """`clicktower` in this process, which starts sooner: its exit code and all that it said."""

    def call(*arguments: str) -> CompletedProcess:
        capfd.readouterr()
        code = run(list(arguments))
        return CompletedProcess(arguments, code, *capfd.readouterr())

    return call


@pytest.fixture
def ingested(place, day) -> Path:
    shutil.copytree(day, place / "store")
    return place


def assert_refused(done, code: int, *words: str) -> None:
    output = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == code, output
    assert "Traceback" not in output
    assert "defect" not in output
    for word in words:
        assert word in output


def assert_nothing_published(folder: Path) -> None:
    assert [p for p in folder.rglob("*") if p.name == "manifest.json" or p.name.startswith("attempt-")] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "content", "code", "words"),
    [
        ("nowhere.ndjson", None, 2, "nowhere.ndjson"),
        ("empty.ndjson", b"", 1, "is empty"),
        ("empty.ndjson.gz", gzip.compress(b""), 1, "is empty"),
        ("cut.ndjson.gz", gzip.compress(GOOD_LOG * 200)[:-20], 1, "cut.ndjson.gz"),
        ("plain.ndjson.gz", GOOD_LOG, 1, "plain.ndjson.gz"),
        ("other.ndjson", "q1\thämmer\td1\n".encode() * 50, 1, "50"),
        ("latin.ndjson", GOOD_LOG.replace(b"red", b"r\xe4d") * 50, 1, "UTF-8"),
    ],
)
def test_a_log_that_cannot_be_read_is_refused(place, here, name, content, code, words):
    if content is not None:
        (place / name).write_bytes(content)
    assert_refused(here("ingest", name, "--into", "store"), code, words)
    assert_nothing_published(place / "store")


def test_a_folder_where_a_log_should_be_unreadable(place, here):
    (place / "logs").mkdir()
    assert_refused(here("ingest", "logs", "--into", "store"), 2, "logs")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"d1\t\nd2\t \n", "None of the 2 documents"),
        (DOCUMENTS + b"d1\tAgain\n", "(d1)"),
        (b"", "is empty"),
        (b"d9\tSome other catalogue\n", "document"),
    ],
)
def test_documents_that_cannot_be_used_are_refused(ingested, here, content, words):
    (ingested / "documents.tsv").write_bytes(content)
    done = here("build", "--days", "store", "--documents", "documents.tsv", "--k", "1", "--into", "store")
    assert_refused(done, 1, words)
    assert_nothing_published(ingested / "store" / "build")


@pytest.mark.slow
def test_a_log_in_which_nothing_survives_k_says_what_would_help(ingested):
    done = clicktower("build", "--days", "store", "--documents", "documents.tsv", "--into", "store")
    assert_refused(done, 1, "k = 5", "Lower")
    assert_nothing_published(ingested / "store" / "build")


def test_a_k_beyond_what_a_day_can_answer_is_wrong_usage(ingested, here):
    done = here("build", "--days", "store", "--documents", "documents.tsv", "--k", "33", "--into", "store")
    assert_refused(done, 2, "32")


@pytest.mark.parametrize("command", ["build", "train", "evaluate", "publish", "search"])
def test_an_input_folder_that_is_not_there_is_refused(place, here, command):
    documents = ["--documents", "documents.tsv"]
    arguments = {
        "build": ["--days", "nowhere", *documents, "--into", "store"],
        "train": ["--shards", "nowhere", "--into", "store"],
        "evaluate": ["--model", "nowhere", *documents, "--queries", "q", "--qrels", "r", "--into", "store"],
        "publish": ["--model", "nowhere", *documents, "--to", "release"],
        "search": ["--release", "nowhere", "hammer"],
    }[command]
    done = here(command, *arguments)
    assert_refused(done, done.returncode or 1, "nowhere")


def test_an_output_that_cannot_be_written_is_refused(place):
    (place / "file").write_bytes(b"not a folder")
    assert_refused(clicktower("ingest", "log.ndjson", "--into", "file/store"), 1)
    assert (place / "file").read_bytes() == b"not a folder"


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Path:
    return make_shop(tmp_path_factory.mktemp("bad"))


@pytest.mark.rehearsal
@pytest.mark.engine
def test_a_full_disk_leaves_nothing_half_written_in_any_stage(shop, monkeypatch):
    """A limit on the size of files stands for the disk: writing fails in the middle, as on a full one."""
    monkeypatch.chdir(shop)
    judgments = ["--queries", "data/judgments/queries.dev.tsv", "--qrels", "data/judgments/qrels.dev.txt"]
    documents = ["--documents", "data/documents.tsv"]
    small = ["--epochs", "1", "--threads", "1", "--set", "tower.cells=8"]
    stages = {
        "ingest": ["data/log", "--into", "store"],
        "build": ["--days", "store", *documents, "--k", "2", "--into", "store"],
        "train": ["--shards", "BUILD", *small, "--into", "store"],
        "evaluate": ["--model", "TRAIN", *documents, *judgments, "--into", "store"],
        "publish": ["--model", "TRAIN", *documents, "--to", "release"],
    }
    for stage, arguments in stages.items():
        filled = [str(next((shop / "store" / a.lower()).iterdir())) if a.isupper() else a for a in arguments]
        assert_refused(clicktower(stage, *filled, preexec_fn=_no_file_above_20_kb), 1)
        assert_nothing_published(shop / "store" / stage)
        assert not (shop / "release" / "pointer.json").exists()
        assert clicktower(stage, *filled).returncode == 0
    found = clicktower("search", "--release", "release", "hammer")
    assert found.returncode == 0


@pytest.mark.parametrize("text", ["", "   "])
def test_a_query_without_words_is_refused(here, text):
    assert_refused(here("search", "--release", "release", text), 2, "word")


def _no_file_above_20_kb() -> None:
    os.putenv("PYTHONDONTWRITEBYTECODE", "1")  # Python 3.11 would keep half of a file of bytecode, for everybody
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
