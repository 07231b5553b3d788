"""Temporary files of processes that were killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

WRITES = """
import os, sys, tempfile, time
from clicktower.schemas.process import keep_folder, kept_path, use_scratch
use_scratch()
log = tempfile.mkdtemp()
keep_folder(log)
with tempfile.NamedTemporaryFile(delete=False) as file:
    file.write(b"of mine")
print(file.name, kept_path(log), flush=True)
sys.stdin.read()
"""


def start(folder: Path) -> tuple[subprocess.Popen, Path, Path]:
    """A process that uses a scratch folder, what it wrote there and what it keeps."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITES], env=os.environ | {"TMPDIR": str(folder)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    written, kept = map(Path, process.stdout.readline().split())
    return process, written, kept


def test_what_a_killed_process_wrote_goes_with_the_next_one_and_what_is_in_use_stays(tmp_path):
    killed, left, kept = start(tmp_path)
    killed.kill()
    killed.communicate()
    assert left.read_bytes() == b"of mine"
    first, in_use, _ = start(tmp_path)
    assert not left.parent.exists()
    below, below_it, _ = start(in_use.parent)  # as of a stage, which is to outlive the run that started it
    assert below_it.parent.parent == tmp_path
    first.send_signal(signal.SIGKILL)
    first.communicate()
    last, _, _ = start(tmp_path)
    assert below_it.exists()
    for process in (below, last):
        process.communicate()
    assert {path.name[:16] for path in tmp_path.iterdir()} == {"clicktower-kept-"}
    assert kept.is_dir()
    week_ago = kept.stat().st_mtime - 8 * 24 * 3600
    os.utime(kept, (week_ago, week_ago))
    start(tmp_path)[0].communicate()
    assert not kept.exists()
