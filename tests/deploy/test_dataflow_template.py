"""The Dataflow template: what its launcher runs, with Beam's in-process runner where Google's would be."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from beam_jobs.engine.beam_engine import HandedOver, _leave_to_launcher, _options
from tests.beam_jobs.ubi_lines import event, search

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = ROOT / "deploy" / "dataflow"


@pytest.mark.slow
def test_the_launchers_arguments_become_an_ingest(tmp_path):
    lines = [search("q1", "angle bracket"), event("q1", "click", "P1")]
    (tmp_path / "log.ndjson").write_bytes(b"\n".join(lines))
    done = subprocess.run(
        [sys.executable, str(TEMPLATE / "ingest.py"), "--logs=log.ndjson", "--into=store",
         "--date=2026-09-01", "--runner=FnApiRunner", "--job_name=some-job", "--project=some-project"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout)
    assert (result["stage"], result["counts"]["lines"]) == ("ingest", 2)


def test_the_template_describes_the_parameters_that_the_launcher_passes_on():
    described = json.loads((TEMPLATE / "metadata.json").read_text(encoding="utf-8"))["parameters"]
    names = {one["name"] for one in described}
    required = {one["name"] for one in described if not one.get("isOptional")}
    assert names == {"logs", "into", "date", "format", "mapping", "person_key", "sdk_container_image"}
    assert required == {"logs", "into", "sdk_container_image"}
    assert all(one["helpText"] and one["label"] for one in described)


def test_a_job_that_a_launcher_will_start_is_no_failure():
    launched = _options(["--runner=DataflowRunner", "--template_location=gs://bucket/job_object"])
    with pytest.raises(HandedOver) as handed_over:
        _leave_to_launcher("DataflowRunner", launched)
    assert handed_over.value.exit_code == 0
    _leave_to_launcher("DataflowRunner", _options(["--runner=DataflowRunner"]))
    _leave_to_launcher("FlinkRunner", launched)
