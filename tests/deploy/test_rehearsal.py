"""The short form of `make rehearsal`: one night on everything remote, and five processes killed in it."""

import subprocess
import sys
from pathlib import Path

import pytest

from clicktower.flows.config.settings import Settings

ROOT = Path(__file__).parents[2]


@pytest.mark.rehearsal
@pytest.mark.engine
@pytest.mark.several_machines
def test_a_night_in_which_five_processes_are_killed_makes_what_an_undisturbed_one_makes():
    for engine in ("s3-server", "flink", "python-worker"):
        if not (Path(Settings().engines) / engine).exists():
            pytest.skip(f"there is no {engine}: run `make engines`")
    command = [sys.executable, "-m", "tests.rehearsal", "--runs", "1", "--nights", "1", "--kills", "5"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)  # its folder is one with a short path
    print(done.stdout)
    assert done.returncode == 0, done.stderr
    assert "run-0: " in done.stdout
