"""What ingest writes, and what Beam's workers write on the way, is for the owner's eyes alone, whatever the umask."""

import os
import stat
from pathlib import Path

import pytest

from clicktower.beam_jobs.build.build_stage import BuildConfig, build_shards
from clicktower.beam_jobs.ingest.erase import erase
from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, ingest_log
from clicktower.beam_jobs.judgments.judge_clicks import JudgmentsConfig
from clicktower.beam_jobs.judgments.judgments_stage import derive_judgments
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError
from tests.beam_jobs.build.day_folders import write_documents
from tests.beam_jobs.ingest.dated_logs import day_lines, write_lines

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def usual_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    """Everything below a folder, and it, that anybody but its owner may do something with."""
    found = []
    for path in (folder, *folder.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode != (0o700 if path.is_dir() else 0o600):
            found.append(f"{oct(mode)} {path}")
    return found


class Watched:
    """A Progress that looks at everything below the scratch folders of a store at each word."""

    def __init__(self, store: Path) -> None:
        self._store, self.num_seen, self.open = store, 0, list[str]()

    def __call__(self, what: str, done: int, total: int | None) -> None:
        for scratch in self._store.glob("*/*/*-scratch"):
            self.num_seen += len(list(scratch.rglob("*")))
            self.open += open_to_others(scratch)


@pytest.mark.parametrize("engine", [(), ("--direct_running_mode=multi_processing", "--direct_num_workers=2")],
                         ids=["here", "two"])  # fmt: skip
def test_days_and_scratch_are_private(tmp_path, monkeypatch, engine):
    monkeypatch.setattr("clicktower.beam_jobs.engine.beam_stage.NOTE_SECONDS", 0.02)
    store = tmp_path / "store"
    lines = [line for number in range(5) for line in day_lines("2026-09-01", number, clients=60)]
    log = write_lines(tmp_path / "log.ndjson", [*lines, b"not a line"])
    titles = {f"d{number}": f"angle bracket {number}" for number in range(12)}
    documents = write_documents(tmp_path / "documents.tsv", titles)
    watched = Watched(store)
    ingest_log([log], store=str(store), config=IngestConfig(), beam_options=engine, progress=watched)
    erase(["client-7"], store=str(store))
    again = ingest_log([log], store=str(store), config=IngestConfig(), beam_options=engine, progress=watched)
    late = write_lines(tmp_path / "late.ndjson", day_lines("2026-09-01", 7, clients=60))
    late = ingest_log([late], store=str(store), config=IngestConfig(), beam_options=engine, progress=watched)
    assert again.reused
    assert late.manifest.outcome.ledger.lines["erased"] > 0
    for private in ("ingest", "private"):
        assert open_to_others(store / private) == []
    names = sorted(path.name for path in (store / "private").rglob("*.json"))
    assert names == ["erasure-00001.json", "list-key.json", "person-key.json"]
    assert list(store.glob("ingest/*/*/rejects-*"))
    build_shards(
        [str(store)],
        documents,
        store=str(store),
        config=BuildConfig(k=1, num_negatives=1),
        beam_options=engine,
        progress=watched,
    )
    with pytest.raises(StageError):  # twelve documents always in the same places say nothing of ranks
        derive_judgments(
            [str(store)], store=str(store), config=JudgmentsConfig(k=1), beam_options=engine, progress=watched
        )
    assert watched.num_seen
    assert watched.open == []
    assert not list(store.glob("*/*/*-scratch"))


def test_a_day_that_others_could_read_is_closed_to_them(tmp_path):
    (tmp_path / "store" / "ingest").mkdir(parents=True)
    log = write_lines(tmp_path / "log.ndjson", day_lines("2026-09-01", 1))
    ingest_log([log], store=str(tmp_path / "store"), config=IngestConfig())
    assert open_to_others(tmp_path / "store" / "ingest") == []


def test_what_is_made_below_a_private_folder_is_private_and_elsewhere_as_the_umask_says(tmp_path):
    storage.make_folder(str(tmp_path / "mine"), private=True)
    (tmp_path / "all").mkdir(mode=0o755)
    for folder in ("mine", "all"):
        base = str(tmp_path / folder / "a" / "b")
        storage.write_atomic(f"{base}/atomic", b"")
        storage.write_new(f"{base}/new", b"")
        storage.make_folder(f"{base}/c/d")
        with storage.open_new(f"{base}/e/opened") as file:
            file.write(b"")
        storage.copy(f"{base}/new", f"{base}/f/copy")
        storage.move(f"{base}/new", f"{base}/g/moved")
    assert open_to_others(tmp_path / "mine") == []
    assert stat.S_IMODE((tmp_path / "all/a/b/atomic").stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "all/a/b/c").stat().st_mode) == 0o755
