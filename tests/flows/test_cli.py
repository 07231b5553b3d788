"""The command line as a program sees it: exit codes, one JSON object, no traceback."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from flows import console
from flows.cli import COMMANDS
from flows.submit import run_stage_command
from schemas.errors import StageError, UsageError
from tests.imported import ENGINES, TOLD, imported

# What a help or a wrong call has no use for: loading it would take longer than all the rest.
HEAVY = ENGINES | {"prefect", "pyarrow", "pydantic_settings"}


def clicktower(*arguments: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "flows.cli", *arguments], capture_output=True, text=True, **options)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_teaches_with_an_example_and_loads_nothing_heavy(command):
    done = clicktower(command, "--help", env=TOLD)
    assert done.returncode == 0
    assert re.search(rf"^ clicktower {command}( |$)", done.stdout, re.M), "an example is a line of its own"
    assert "--json" in done.stdout
    assert "cyclopts" in imported(done.stderr), "what was imported is told"
    assert not imported(done.stderr) & HEAVY


@pytest.mark.parametrize(
    "arguments",
    [("nonsense",), ("train",), ("train", "--shards", "x", "--into", "y", "--foo"), ("search", "--k", "many")],
)
def test_wrong_usage_exits_with_2_and_loads_nothing_heavy(arguments):
    done = clicktower(*arguments, env=TOLD)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert not imported(done.stderr) & HEAVY


def test_a_failure_with_json_is_one_object_on_stdout(tmp_path):
    done = clicktower("verify", str(tmp_path), "--json")
    assert done.returncode in (1, 2)
    assert set(json.loads(done.stdout)["error"]) == {"kind", "asked", "found", "follows", "do"}
    assert done.stderr == ""


def test_a_stage_process_raises_the_stage_s_own_error(tmp_path):
    with pytest.raises(UsageError, match=r"(?i)no such file"):
        run_stage_command(["run", str(tmp_path / "nowhere.toml")])


def test_a_killed_stage_process_is_told_apart_from_a_failed_one(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(StageError, match="ended with code 1 and no result"):
        run_stage_command(["verify", "x"])


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EFBIG])
def test_operating_system_errors_become_sentences(number):
    facts = console.explain(OSError(number, os.strerror(number), "store/x"))
    assert "store/x" in facts.found
    assert "defect" not in facts.do


def test_an_unexpected_error_quotes_nothing():
    assert "private" not in str(console.explain(KeyError("a private query")))


def test_foreign_text_cannot_write_markup_or_escapes_to_a_terminal():
    assert console.plain("[red]x\x1b[2J") == r"\[red]x�[2J"


def test_an_interrupted_submitter_takes_its_stage_with_it(tmp_path):
    """SIGINT to the submitting process: the child that it started is gone."""
    marker = tmp_path / "child.pid"
    child = f"import os, time; open({str(marker)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    fake = tmp_path / "python"
    fake.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{child}"\n')
    fake.chmod(0o755)
    code = (
        f"import sys; sys.executable = {str(fake)!r}\n"
        "from flows.submit import run_stage_command\nrun_stage_command(['verify', 'x'])"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 20
    while not (marker.exists() and marker.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    pid = int(marker.read_text())
    parent.send_signal(signal.SIGINT)
    parent.wait(30)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
