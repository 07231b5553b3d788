"""What a benchmark says about a command's memory."""

import os
import sys
from pathlib import Path

from benchmarks.measured_process import run_measured

MEGABYTE = 1 << 20

# Takes a hundred megabytes, forks, and waits in both processes while they share them; gives them back at once.
SHARED = f"""
import os, time
held = b"x" * (100 * {MEGABYTE})
child = os.fork()
time.sleep(1.5)
if child: os.wait(); print("told")
"""


def test_the_peak_is_of_all_processes_and_counts_what_they_share_once():
    found = run_measured([sys.executable, "-c", SHARED], cwd=Path.cwd(), env=dict(os.environ))
    assert found.stdout == "told\n"
    assert 100 * MEGABYTE < found.peak_bytes < 190 * MEGABYTE  # two interpreters of some 10 each; not 200 and more


def test_memory_that_comes_late_is_seen():
    script = (
        f"import time; a = bytearray(100 * {MEGABYTE}); time.sleep(1); b = bytearray(60 * {MEGABYTE}); time.sleep(0.6)"
    )
    found = run_measured([sys.executable, "-c", script], cwd=Path.cwd(), env=dict(os.environ))
    assert found.peak_bytes > 160 * MEGABYTE
