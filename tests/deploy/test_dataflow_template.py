"""The Dataflow template: what its launcher runs, with Beam's in-process runner where Google's would be."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from clicktower.beam_jobs.engine.beam_engine import options_of
from clicktower.beam_jobs.engine.engine_start import HandedOver, _leave_to_launcher
from tests.beam_jobs.sources.ubi_lines import event, search

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = ROOT / "deploy" / "dataflow"


def launched(template: str, folder: Path, *arguments: str) -> dict:
    """The result of a template's launcher in a folder."""
    engine = ("--runner=FnApiRunner", "--job_name=some-job", "--project=some-project")
    done = subprocess.run(
        [sys.executable, str(TEMPLATE / "launch.py"), *arguments, *engine], cwd=folder, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "CLICKTOWER_TEMPLATE": template}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.slow
def test_the_launchers_arguments_become_an_ingest_a_build_and_judgments(tmp_path):
    lines = []
    for number in range(40):
        query_id, client = f"q{number}", f"c{number % 20}"
        lines.append(search(query_id, f"lamp {number % 2}", client, f"2026-09-01T10:{number:02d}:00Z"))
        for position in (1, 2, 3):
            document = f"D{1 + (position + number) % 3}"
            lines.append(event(query_id, "impression", document, position, client))
        lines.append(event(query_id, "click", f"D{1 + (1 + number) % 3}", 1, client))
    (tmp_path / "log.ndjson").write_bytes(b"\n".join(lines))
    (tmp_path / "documents.tsv").write_text("".join(f"D{number}\tlamp number {number}\n" for number in range(1, 20)))
    ingested = launched("ingest", tmp_path, "--logs=log.ndjson", "--into=store", "--date=2026-09-01")
    assert (ingested["stage"], ingested["counts"]["lines"]) == ("ingest", 200)
    built = launched("build", tmp_path, "--days=store", "--documents=documents.tsv", "--into=store", "--k=2",
                     "--from=2026-09-01", "--to=2026-09-01")  # fmt: skip
    assert built["stage"] == "build"
    assert built["counts"]["train_pairs"] > 0
    words = [
        sys.executable,
        str(TEMPLATE / "launch.py"),
        "--days=store",
        "--into=store",
        "--min_impressions=2",
        "--k=2",
    ]
    done = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT), "CLICKTOWER_TEMPLATE": "judgments"},
    )  # fmt: skip
    assert json.loads(done.stdout)["stage"] == "judgments", done.stderr[-2000:]  # too small a log to judge is no matter


@pytest.mark.parametrize(
    ("template", "required", "optional"),
    [
        ("ingest", {"logs", "into"}, {"date", "format", "mapping", "person_key"}),
        ("build", {"days", "documents", "into"}, {"from", "to", "k", "judged_queries"}),
        ("judgments", {"days", "into"}, {"from", "to", "k", "trained_on", "min_impressions"}),
    ],
)
def test_a_template_describes_the_parameters_that_its_command_takes(template, required, optional):
    described = json.loads((TEMPLATE / f"{template}.json").read_text(encoding="utf-8"))["parameters"]
    assert {one["name"] for one in described if not one.get("isOptional")} == required | {"sdk_container_image"}
    assert {one["name"] for one in described if one.get("isOptional")} == optional
    assert all(one["helpText"] and one["label"] for one in described)


def test_a_job_that_a_launcher_will_start_is_no_failure():
    launched = options_of(["--runner=DataflowRunner", "--template_location=gs://bucket/job_object"])
    with pytest.raises(HandedOver) as handed_over:
        _leave_to_launcher("DataflowRunner", launched)
    assert handed_over.value.exit_code == 0
    _leave_to_launcher("DataflowRunner", options_of(["--runner=DataflowRunner"]))
    _leave_to_launcher("FlinkRunner", launched)
