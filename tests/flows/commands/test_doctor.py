"""What the doctor says of machines and installations, this one and others."""

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from clicktower.beam_jobs.ingest.person_key import ensure_store_key
from clicktower.flows.cli import run
from clicktower.flows.commands import doctor
from clicktower.flows.commands.doctor import Finding
from clicktower.flows.config.pipeline_config import read_pipeline
from clicktower.training.kernel.kernel_library import Status

GB = 10**9


def test_this_machine_can_run_it_and_json_is_one_object(capsys):
    assert run(["doctor", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["stage"], result["ready"]) == ("doctor", True)
    assert result["training_path"] in ("compiled", "reference")
    names = [one["name"] for one in result["findings"]]
    assert names == ["path", "log reader", "packages", "GPU", "memory", "Prism", "Flink"]
    assert not any(one["text"].startswith("could not be checked") for one in result["findings"])


def test_what_is_in_the_way_exits_with_1_and_says_what_to_do(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "installed", dict)
    assert run(["doctor"]) == 1
    output = " ".join(capsys.readouterr().out.split())
    assert "✗ in the way of a run on this machine: 1" in output
    assert "no command works" in output
    assert "→ Run pip install 'clicktower[" in output


def test_the_log_reader_is_compiled_or_says_why_not():
    assert doctor.log_reader("").state == "good"
    without = doctor.log_reader("nothing was compiled: there was no working C++ compiler")
    assert without.state == "look"
    assert "no working C++ compiler" in without.text


@pytest.mark.slow
def test_no_engine_is_loaded_and_no_secret_or_user_is_told():
    """As a process of its own: what it imports decides how long it takes."""
    output = {"PREFECT_API_URL": "http://ann:geheim@127.0.0.1:9/api?key=geheim"}
    code = (
        "import sys; from clicktower.flows.cli import run; code = run(['doctor', '--json'])\n"
        "print(sorted({'torch', 'ray', 'prefect', 'apache_beam', 'lancedb'} & set(sys.modules)), file=sys.stderr)"
    )
    home = {"HOME": "/home/ann", "USER": "ann", "LOGNAME": "ann", "CLICKTOWER_ENGINES": "/home/ann/engines"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | output | home, capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == "[]"
    assert "geheim" not in done.stdout
    assert not re.search(r"\bann\b", done.stdout)


def test_a_check_that_fails_itself_is_a_finding():
    def broken() -> Finding:
        raise ZeroDivisionError("private")

    found = doctor.checked("a", broken)
    assert (found.name, found.state, found.text) == ("a", "look", "could not be checked (ZeroDivisionError)")


@pytest.mark.parametrize(
    ("status", "state", "words"),
    [
        (Status(available=True, instructions="avx512", reason="x"), "good", "avx512 (lstm, bilstm, rnn, dssm, bag)"),
        (Status(available=True, instructions="generic", reason="x"), "look", "without AVX2 or AVX-512"),
        (Status(available=False, instructions="", reason="none was built"), "look", "Install a C++ compiler"),
        (Status(available=False, instructions="", reason="none was built"), "look", "touch pyproject.toml"),
        (Status(available=False, instructions="", reason="a processor without AVX2"), "look", "a processor"),
    ],
)  # fmt: skip
def test_the_path_that_training_takes_comes_with_its_reason_and_remedy(status, state, words):
    found = doctor.training_path(status)
    assert found.state == state
    assert words in f"{found.text} {found.fix}"
    if not status.available:
        assert status.reason in found.text
        assert "several times slower" in found.text


REQUIRES = [
    "numpy>=2",
    'apache-beam>=2.70; extra == "beam"',
    'torch>=2.6; extra == "train"',
    'prefect>=3.4; extra == "flows"',
    'fastapi<0.151; extra == "flows"',
    'pytest>=8; extra == "dev"',
    'clicktower[beam]; extra == "all"',
    'apache-beam[gcp]>=2.70; extra == "dataflow"',
]
INSTALLED = {"numpy": "2.1", "apache-beam": "2.77.0", "torch": "2.15.0+cpu", "prefect": "3.8.8", "fastapi": "0.150.0"}


def test_what_is_declared_and_there_is_told_with_its_versions():
    found = doctor.packages(REQUIRES, INSTALLED)
    assert found.state == "good"
    assert found.text == "torch 2.15.0+cpu, apache-beam 2.77.0, prefect 3.8.8"


@pytest.mark.parametrize(
    ("without", "follows", "do"),
    [
        ("torch", "train, combine, sweep, evaluate", "'clicktower[train]'"),
        ("apache-beam", "ingest, build", "'clicktower[beam]'"),
        ("numpy", "no command works", "Install clicktower again"),
    ],
)
def test_a_missing_package_is_in_the_way_and_named_with_what_it_stops(without, follows, do):
    there = {name: version for name, version in INSTALLED.items() if name != without}
    found = doctor.packages(REQUIRES, there)
    assert found.state == "bad"
    assert found.text.startswith(f"{without} missing")
    assert follows in found.text
    assert do in found.fix


def test_a_version_that_is_not_declared_is_told():
    found = doctor.packages(REQUIRES, INSTALLED | {"fastapi": "0.155.0"})
    assert found.state == "look"
    assert "fastapi 0.155.0 (declared: <0.151)" in found.text


def control_groups(tmp_path: Path, own: str, files: dict[str, str]) -> int | None:
    for name, text in files.items():
        (tmp_path / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "groups" / name).write_text(text)
    (tmp_path / "own").write_text(own)
    return doctor.memory_left(tmp_path / "groups", tmp_path / "own")


def test_the_limit_of_control_groups_is_the_tightest_of_all_above(tmp_path):
    files = {
        "a/b/memory.max": "3000\n", "a/b/memory.current": "1200\n", "a/b/memory.stat": "anon 700\ninactive_file 500\n",
        "a/memory.max": "max\n", "a/memory.current": "5000\n", "other/memory.max": "1\n", "other/memory.current": "1\n",
    }  # fmt: skip
    # Of b's 3000 bytes 1200 are used, 500 of which can be had back.
    assert control_groups(tmp_path, "0::/a/b\n", files) == 2300


def test_no_limit_is_none(tmp_path):
    assert control_groups(tmp_path, "0::/a\n", {"a/memory.max": "max\n", "a/memory.current": "1\n"}) is None
    assert doctor.memory_left(tmp_path / "nothing", tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    ("available", "left", "state"),
    [
        (16 * GB, None, "good"),
        (3 * GB, None, "look"),
        (GB, None, "bad"),
        (16 * GB, GB, "bad"),
        (16 * GB, 30 * GB, "good"),
    ],
)
def test_memory_counts_what_the_control_group_leaves(available, left, state):
    found = doctor.memory(32 * GB, available, left)
    assert found.state == state
    assert ("control group" in found.text) == (left is not None and left < available)


def test_engines_are_found_in_their_folder(tmp_path):
    files = ("flink-job-server/flink-job-server.jar", "python-worker")
    assert "`make engines` brings it" in doctor.engine("Prism", tmp_path, ("prism",)).text
    (tmp_path / "prism").touch()
    (tmp_path / "flink-job-server").mkdir()
    (tmp_path / "flink-job-server" / "flink-job-server.jar").touch()
    assert doctor.engine("Prism", tmp_path, ("prism",)).state == "good"
    assert doctor.engine("Flink", tmp_path, files).text.startswith("in part: python-worker missing")


@pytest.mark.parametrize(
    ("window", "days", "state", "words"),
    [
        ("", 0, "note", "nothing renews it"),
        ("", 80, "look", "the key of people expires on"),
        ("", 95, "look", "the key of people expired on"),
        ("[window]\nlast = 30\n", 80, "good", "the next is made in time"),
        ("[window]\nlast = 90\n", 80, "look", "the key of people expires on"),
        ("[ingest]\nperson_key = 'own.json'\n", 0, "note", "a file of your own"),
    ],
)
def test_with_a_pipeline_the_key_of_people_is_looked_at(tmp_path, window, days, state, words):
    (tmp_path / "pipeline.toml").write_text(
        "store = 'store'\n[log]\nfiles = ['logs/{date}.gz']\n[documents]\nfile = 'd.tsv'\n"
        f"[judgments]\nqueries = 'q.tsv'\nqrels = 'q.txt'\n{window}"
    )
    pipeline = read_pipeline(str(tmp_path / "pipeline.toml"))
    if "own" not in window:
        assert doctor.person_key(pipeline).text == "of people: none yet, the first ingest makes it"
    ensure_store_key(pipeline.store, renew=False, today=datetime.now(UTC).date() - timedelta(days=days))
    finding = doctor.person_key(pipeline)
    assert (finding.name, finding.state) == ("key", state)
    assert words in finding.text
    assert (finding.fix != "") == (state == "look")
