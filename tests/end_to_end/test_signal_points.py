"""Commands that a scheduler or a person ends, at some moments on each engine (signal_points: all of them)."""

import json
import subprocess
import sys

import pytest

from tests.documented import ROOT

EVERY = 7  # of the signals and moments: two or three of eight at each point
pytestmark = [pytest.mark.engine, pytest.mark.rehearsal, pytest.mark.several_machines]


def test_every_stage_ends_when_it_is_asked_to_on_every_engine():
    command = [sys.executable, "-m", "tests.signal_points", "--every", str(EVERY)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0
    results = json.loads(done.stdout)
    assert {name: result["wrong"] for name, result in results.items() if result["wrong"]} == {}
    assert all(result["sent"] for result in results.values())
    assert sum(result["finished"] for result in results.values()) < sum(r["sent"] for r in results.values()) / 2
