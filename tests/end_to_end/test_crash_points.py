"""Commands that are killed, or get an error, at a call that changes the disk or an object store; and in any order."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from clicktower.flows.config.settings import Settings
from tests.documented import ROOT

# All calls: `python -m tests.crash_points`, in ten minutes, and `--on s3`, in an hour.
EVERY = {"disk": (13, 2), "s3": (41, 3)}  # (each Nth call, modes)
STEPS = 120  # 10,000: `python -m tests.store_machine`, in an hour and a half
pytestmark = [pytest.mark.engine, pytest.mark.rehearsal]


def _printed(module: str, *arguments: str) -> dict:
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("place", EVERY)
def test_a_command_that_was_cut_off_at_any_call_succeeds_when_repeated(place):
    if place == "s3" and not (Path(Settings().engines) / "s3-server").exists():
        pytest.skip("there is no S3 server: run `make engines`")
    every, modes = EVERY[place]
    for stage, result in _printed("tests.crash_points", "--every", str(every), "--on", place).items():
        assert result["calls"] > 5, stage
        assert result["tried"] == modes * -(-result["calls"] // every)
        assert result["wrong"] == []


def test_a_store_holds_what_its_model_says_after_commands_in_any_order():
    result = _printed("tests.store_machine", "--steps", str(STEPS), "--seed", "7")
    assert result["commands"] > STEPS / 2
    assert result["disturbed"] > 0
