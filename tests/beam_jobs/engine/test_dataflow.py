"""Dataflow, as far as it goes without an account: Beam's runner for it translates the three jobs, offline.

Never tried: the job description that is sent to Google (it needs credentials), and running there.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

pytestmark = pytest.mark.engine


def test_the_three_jobs_translate_for_dataflow(engines, shop, tmp_path):
    python = engines / "dataflow" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"there is no {python}: run `make engines`")
    done = subprocess.run(
        [str(python), "-m", "tests.beam_jobs.engine.translate_for_dataflow", str(shop), str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"NO_GCE_CHECK": "true"},  # or Beam asks the network whether this is a machine of Google's
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert all("for DataflowRunner" in sentence for sentence in found.values())
    for step in ("Read lines", "Join events to searches", "Write the day", "Commit"):
        assert step in found["ingest"]
    for step in ("By document", "By query", "Pair behind the gate", "Commit"):
        assert step in found["build"]
    for step in ("Measure ranks", "Commit"):
        assert step in found["judgments"]
