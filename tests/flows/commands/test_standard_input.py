"""`-`: a log that comes through standard input is that log in a file, and no file of it stays."""

import gzip
import io
import json
import os
import stat
from pathlib import Path

import pytest

from clicktower.beam_jobs.sources import log_files
from clicktower.flows.cli import run
from clicktower.schemas.manifest import read
from tests.beam_jobs.sources.ubi_lines import event, search

LINES = b"".join(line + b"\n" for n in range(6) for line in (search(f"q{n}", "hose"), event(f"q{n}", "click", "D1")))


@pytest.fixture
def copies(tmp_path, monkeypatch):
    """Where temporary files go, and the modes of the folders that a log was read from."""
    scratch, modes = tmp_path / "scratch", []
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    find = log_files.find_files

    def look(logs):
        modes.extend(stat.S_IMODE(os.stat(Path(log).parent).st_mode) for log in logs)
        return find(logs)

    monkeypatch.setattr("clicktower.beam_jobs.checking.check_log.find_files", look)
    return scratch, modes


def _pipe(monkeypatch, content):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))


@pytest.mark.parametrize("content", [LINES, gzip.compress(LINES)], ids=["plain", "gzip"])
def test_check_reads_it_and_leaves_nothing(monkeypatch, capsys, copies, content):
    scratch, modes = copies
    _pipe(monkeypatch, content)
    assert run(["check", "-", "--json"]) == 0
    checked = json.loads(capsys.readouterr().out)
    assert checked["lines"] == {"search": 6, "click": 6}
    assert checked["next"].startswith("ingest - ")
    assert list(scratch.iterdir()) == []
    assert modes == [0o700]


@pytest.mark.slow
def test_ingest_makes_the_day_of_the_same_log_in_a_file(monkeypatch, capsys, tmp_path):
    (tmp_path / "log.ndjson").write_bytes(LINES)
    assert run(["ingest", str(tmp_path / "log.ndjson"), "--into", str(tmp_path / "file"), "--json"]) == 0
    of_file = json.loads(capsys.readouterr().out)
    _pipe(monkeypatch, LINES)
    assert run(["ingest", "-", "--into", str(tmp_path / "pipe"), "--json"]) == 0
    of_pipe = json.loads(capsys.readouterr().out)
    days = [read(result["path"]).outcome for result in (of_file, of_pipe)]
    assert days[0].logical_digest == days[1].logical_digest
    assert days[0].ledger == days[1].ledger


def test_a_terminal_is_no_log(monkeypatch, capsys):
    class Terminal(io.TextIOWrapper):
        def isatty(self):
            return True

    monkeypatch.setattr("sys.stdin", Terminal(io.BytesIO(b"")))
    assert run(["check", "-"]) == 2
    assert "Standard input is a terminal" in capsys.readouterr().err
