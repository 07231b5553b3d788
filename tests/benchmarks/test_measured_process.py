"""What a benchmark says about a command's memory."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import measured_process
from benchmarks.measured_process import Measured, run_measured

MEGABYTE = 1 << 20

# `be_seen(name)`: wait until the memory has been looked at.
SEEN = """
import os, time

def be_seen(name):
    open(name + ".held", "w").close()
    while not os.path.exists(name + ".seen"):
        time.sleep(0.01)
"""

# Takes a hundred megabytes, forks, and waits in both processes while they share them; gives them back at once.
SHARED = f"""
held = b"x" * (100 * {MEGABYTE})
child = os.fork()
be_seen("by both" if child else "by the other")
if child: os.wait(); print("told")
"""

LATE = f"""
first = bytearray(100 * {MEGABYTE})
be_seen("first")
second = bytearray(60 * {MEGABYTE})
be_seen("second")
"""


@pytest.fixture
def measured(tmp_path, monkeypatch) -> Callable[[str], Measured]:
    """Measures a script that may wait until a whole look at the memory has begun and ended."""
    look = measured_process._Sampler._find_all
    looked_at: list[Path] = []

    def and_say_so(sampler) -> None:
        for held in looked_at:  # the last look has ended where the next one begins
            held.with_suffix(".seen").touch()
        looked_at[:] = tmp_path.glob("*.held")
        look(sampler)

    monkeypatch.setattr(measured_process._Sampler, "_find_all", and_say_so)
    return lambda script: run_measured([sys.executable, "-c", SEEN + script], cwd=tmp_path, env=dict(os.environ))


def test_the_peak_is_of_all_processes_and_counts_what_they_share_once(measured):
    found = measured(SHARED)
    assert found.stdout == "told\n"
    assert 100 * MEGABYTE < found.peak_bytes < 190 * MEGABYTE  # two interpreters of some 10 each; not 200 and more


@pytest.mark.slow
def test_memory_that_comes_late_is_seen(measured):
    assert measured(LATE).peak_bytes > 160 * MEGABYTE
