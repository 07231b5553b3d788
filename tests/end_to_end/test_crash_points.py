"""A command that is killed at a call that changes the disk, or gets an error from it, succeeds when it is repeated."""

import json
import subprocess
import sys

import pytest

from tests.documented import ROOT

EVERY = 13  # all of them: `python -m tests.crash_points`, in ten minutes


@pytest.mark.engine
def test_a_command_that_was_cut_off_at_any_call_succeeds_when_repeated():
    command = [sys.executable, "-m", "tests.crash_points", "--every", str(EVERY)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for stage, result in json.loads(done.stdout).items():
        assert result["calls"] > 10, stage
        assert result["tried"] == 2 * -(-result["calls"] // EVERY)
        assert result["wrong"] == []
