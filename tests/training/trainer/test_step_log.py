"""steps.jsonl has every update once and in order, whenever a run was killed and wherever it went on."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clicktower.schemas import storage
from clicktower.training.trainer.run_report import FILE_NAME, LiveFolder, StepLog


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / FILE_NAME).read_bytes().splitlines()]


def life(folder: Path, checkpoints: str, start: int, end: int, at: set[int]) -> None:
    """Updates start + 1 to end, with the lines kept at some of them; the file is left as a kill would leave it."""
    folder.mkdir()
    log = StepLog(str(folder), checkpoints, start)
    assert [step["update"] for step in log.kept()] == list(range(1, start + 1))
    for update in range(start + 1, end + 1):
        log.add({"update": update, "loss": 1 / update})
        if update in at:
            log.keep()
    log.close()


@given(
    lives=st.lists(st.tuples(st.integers(1, 8), st.sets(st.integers(1, 30)), st.integers(0, 2)), min_size=1, max_size=5)
)
def test_every_update_is_there_once_however_often_the_run_was_killed(tmp_path_factory, lives):
    """Each life makes some updates, keeps some, and the next goes on from one of the last kept (or from the start)."""
    base = tmp_path_factory.mktemp("run")
    checkpoints, kept = str(base / "checkpoints"), [0]
    for number, (made, at, back) in enumerate(lives):
        start = kept[max(0, len(kept) - 1 - back)]  # a damaged checkpoint is passed over for the one before
        kept = [update for update in kept if update <= start]
        life(base / f"attempt-{number}", checkpoints, start, start + made, at)
        kept += sorted(update for update in at if start < update <= start + made)
    last = lives[-1][0]
    found = lines(base / f"attempt-{len(lives) - 1}")
    assert found == [{"update": u, "loss": 1 / u} for u in range(1, start + last + 1)]


def test_a_part_that_a_kill_left_half_written_is_removed(tmp_path):
    checkpoints = tmp_path / "checkpoints"
    life(tmp_path / "a", str(checkpoints), 0, 5, {2, 4})
    (checkpoints / "steps" / f"000000005.jsonl.{'0' * 32}.partial").write_bytes(b'{"upd')
    life(tmp_path / "b", str(checkpoints), 4, 7, {6})
    assert [step["update"] for step in lines(tmp_path / "b")] == [1, 2, 3, 4, 5, 6, 7]
    assert len(storage.list_files(str(checkpoints))) == 3


def test_lines_are_kept_beside_checkpoints_that_are_in_an_object_store(tmp_path):
    checkpoints = "memory://step-log/checkpoints"
    life(tmp_path / "a", checkpoints, 0, 5, {2, 4})
    life(tmp_path / "b", checkpoints, 4, 7, {6})
    assert [step["update"] for step in lines(tmp_path / "b")] == [1, 2, 3, 4, 5, 6, 7]
    assert storage.list_files(checkpoints) == [
        "steps/000000002.jsonl",
        "steps/000000004.jsonl",
        "steps/000000006.jsonl",
    ]


def test_the_file_can_be_followed_while_it_grows(tmp_path):
    log = StepLog(str(tmp_path), str(tmp_path / "checkpoints"), 0)
    log.add({"update": 1})
    log.flush()
    assert lines(tmp_path) == [{"update": 1}]
    log.close()


@pytest.mark.slow
def test_a_killed_trainings_files_for_an_object_store_go_with_the_next_training(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    killed = "import os, signal; from clicktower.training.trainer.run_report import LiveFolder; "
    killed += "LiveFolder('memory://model'); os.kill(os.getpid(), signal.SIGKILL)"
    subprocess.run([sys.executable, "-c", killed], env=os.environ | {"TMPDIR": str(tmp_path)}, check=False)
    assert len(list(tmp_path.iterdir())) == 1
    folder = LiveFolder("memory://model")
    assert list(tmp_path.iterdir()) == [Path(folder.path)]
    folder.close()
    assert not list(tmp_path.iterdir())
