import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from clicktower.flows.releases import make_release as making
from clicktower.flows.releases import publish as publishing
from clicktower.flows.releases.kept_releases import verify
from clicktower.flows.releases.publish import publish
from clicktower.flows.releases.search import search
from clicktower.schemas.errors import StageError
from clicktower.schemas.release import read_pointer
from tests.flows.releases.catalogue import CONFIG, write_documents


@pytest.mark.parametrize(("module", "step"), [(making, "write_rows"), (making, "build_index"), (publishing, "swap")])
def test_an_exception_before_the_swap_leaves_the_old_release_live(live, model, tmp_path, monkeypatch, module, step):
    before = read_pointer(live)

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, step, interrupted)
    with pytest.raises(KeyboardInterrupt):
        publish(model, documents=write_documents(tmp_path / "new.tsv", seed=1), to=live, config=CONFIG)
    assert read_pointer(live) == before
    assert search(live, "angle bracket", 3)
    assert not list(Path(live, "releases").glob(".building-*"))
    assert verify(live) == []


@pytest.mark.slow
def test_a_killed_publisher_leaves_the_old_release_live_and_the_next_one_succeeds(live, model, tmp_path):
    before = read_pointer(live)
    new = write_documents(tmp_path / "new.tsv", seed=2)
    script = f"""
import os, signal
from clicktower.flows.releases import make_release as making
from clicktower.flows.releases import publish as publishing
making.build_index = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)
publishing.publish({model!r}, documents={new!r}, to={live!r}, config=publishing.PublishConfig(num_recall_queries=20))
"""
    killed = subprocess.run([sys.executable, "-c", script], check=False)
    assert killed.returncode == -9
    assert list(Path(live, "releases").glob(".building-*"))  # what it left, under no final name
    assert read_pointer(live) == before
    assert verify(live) == []
    made = publish(model, documents=new, to=live, config=CONFIG)
    assert read_pointer(live).release == made.release.digest
    assert not list(Path(live, "releases").glob(".building-*")), "the same request clears it away"
    folder = Path(live, "releases", ".building-000000000000000000000000-0")
    folder.mkdir()
    half_written = [Path(live, "pointer.json.0.partial"), Path(live, "decisions", "0.json.0.partial")]
    for file in half_written:
        file.parent.mkdir(exist_ok=True)
        file.write_text("{")
    publish(model, documents=write_documents(tmp_path / "newer.tsv", seed=3), to=live, config=CONFIG)
    assert folder.exists(), "another publisher may be at it"
    assert not any(file.exists() for file in half_written), "nobody else writes these meanwhile"
    os.utime(folder, (0, 0))  # left long ago
    publish(model, documents=write_documents(tmp_path / "newest.tsv", seed=4), to=live, config=CONFIG)
    assert not folder.exists()


def test_a_full_disk_is_an_error_and_the_old_release_stays_live(live, model, tmp_path, monkeypatch):
    before = read_pointer(live)
    new = write_documents(tmp_path / "new.tsv", num_documents=1_000, seed=4)
    write_rows, (at_most, ever) = making.write_rows, resource.getrlimit(resource.RLIMIT_FSIZE)

    def on_a_full_disk(*rows):
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, ever))
        try:
            return write_rows(*rows)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (at_most, ever))

    monkeypatch.setattr(making, "write_rows", on_a_full_disk)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # half a file of it would stay
    with pytest.raises(StageError, match="File too large") as caught:
        publish(model, documents=new, to=live, config=CONFIG)
    assert "what is live stays" in str(caught.value).lower()
    assert read_pointer(live) == before
    assert verify(live) == []
    assert not list(Path(live, "releases").glob(".building-*"))


def test_a_place_that_cannot_be_written_is_an_error(model, documents, tmp_path):
    (tmp_path / "a file").write_text("in the way")
    with pytest.raises(StageError, match="A release cannot be published to"):
        publish(model, documents=documents, to=str(tmp_path / "a file" / "live"), config=CONFIG)
