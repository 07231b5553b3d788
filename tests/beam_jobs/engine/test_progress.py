"""Progress reaches whoever started the job, from this process and from others, and never more than the whole."""

import subprocess
import sys
import time

import pytest

from clicktower.beam_jobs.engine import beam_stage
from clicktower.beam_jobs.engine.beam_stage import advance, listening

STEPS = {"reading": 10, "writing": 4}


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(beam_stage, "NOTE_SECONDS", 0.01)


def _until(seen, wanted):
    deadline = time.monotonic() + 300
    while wanted not in seen:
        assert time.monotonic() < deadline, seen
        time.sleep(0.01)


def test_the_notes_of_all_workers_add_up(tmp_path):
    seen = []
    with listening(lambda *reported: seen.append(reported), STEPS, str(tmp_path / "notes")) as folder:
        assert seen == [("reading", 0, 10)]
        advance(folder, "reading", 3)
        code = f"from clicktower.beam_jobs.engine.beam_stage import advance; advance({folder!r}, 'reading', 4)"
        subprocess.run([sys.executable, "-c", code], check=True)
        _until(seen, ("reading", 7, 10))
        time.sleep(0.02)
        advance(folder, "writing", 9)  # bundles that ran again
        _until(seen, ("writing", 4, 4))


def test_a_worker_whose_folder_is_gone_goes_on(tmp_path):
    advance(str(tmp_path / "gone"), "reading", 1)
    assert not (tmp_path / "gone").exists()


def test_half_a_note_is_left_out(tmp_path):
    seen = []
    (tmp_path / "other.json").write_text('{"reading": 5')
    with listening(lambda *reported: seen.append(reported), STEPS, str(tmp_path)) as folder:
        advance(folder, "reading", 2)
        _until(seen, ("reading", 2, 10))
