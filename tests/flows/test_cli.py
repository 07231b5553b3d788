"""The command line as a program sees it: exit codes, one JSON object, no traceback."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
from io import UnsupportedOperation
from pathlib import Path

import pytest

from clicktower.flows import cli
from clicktower.flows.config.commands import COMMANDS
from clicktower.flows.show import console, failures
from clicktower.flows.submit import run_stage_command
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, UsageError
from tests.imported import ENGINES
from tests.waiting import SECONDS, wait_until

ROOT = Path(__file__).parents[2]
# What a help or a wrong call has no use for: loading it would take longer than all the rest.
HEAVY = ENGINES | {"prefect", "pyarrow", "pydantic_settings"}
HELPS = [(command, "--help") for command in COMMANDS]
WRONG = [("nonsense",), ("train",), ("train", "--shards", "x", "--into", "y", "--foo"), ("search", "--k", "many")]


def clicktower(*arguments: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "clicktower.flows.cli", *arguments], capture_output=True, text=True, **options
    )


@pytest.fixture(scope="module")
def told() -> dict[tuple[str, ...], dict]:
    """What tests.flows.commands.forked_commands tells of each help and wrong call."""
    command = [sys.executable, "-m", "tests.flows.commands.forked_commands"]
    asked = json.dumps(HELPS + WRONG)
    done = subprocess.run(command, input=asked, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    return dict(zip(HELPS + WRONG, json.loads(done.stdout), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("arguments", HELPS, ids=list(COMMANDS))
def test_every_command_teaches_with_an_example_and_loads_nothing_heavy(arguments, told):
    done = told[arguments]
    assert done["code"] == 0
    assert re.search(rf"^ clicktower {arguments[0]}( |$)", done["printed"], re.M), "an example is a line of its own"
    assert "--json" in done["printed"]
    assert "cyclopts" in done["loaded"], "what was imported is told"
    assert not HEAVY.intersection(done["loaded"])


@pytest.mark.slow
@pytest.mark.parametrize("arguments", WRONG)
def test_wrong_usage_exits_with_2_and_loads_nothing_heavy(arguments, told):
    done = told[arguments]
    assert done["code"] == 2
    assert "Traceback" not in done["complained"]
    command = f"clicktower {arguments[0]} --help" if arguments[0] in COMMANDS else "clicktower --help"
    assert f"See `{command}`." in " ".join(done["complained"].split())
    assert not HEAVY.intersection(done["loaded"])


def test_a_failure_with_json_is_one_object_on_stdout(tmp_path):
    done = clicktower("verify", str(tmp_path), "--json")
    assert done.returncode in (1, 2)
    assert set(json.loads(done.stdout)["error"]) == {"kind", "problem", "fix"}
    assert done.stderr == ""


def test_a_stage_process_raises_the_stage_s_own_error(tmp_path):
    with pytest.raises(UsageError, match=r"(?i)There is no pipeline file"):
        run_stage_command("run", {"config": str(tmp_path / "nowhere.toml")})


def test_a_killed_stage_process_is_told_apart_from_a_failed_one(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(StageError, match="ended with code 1 and no result"):
        run_stage_command("verify", {"folder": "x"})


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EFBIG])
def test_operating_system_errors_become_sentences(number):
    facts = failures.explain(OSError(number, os.strerror(number), "store/x"))
    assert "store/x" in facts.problem
    assert "defect" not in facts.fix


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_a_command_whose_output_nobody_reads_ends_as_other_tools_do(closed):
    """`clicktower ... | head`: quietly, and not as a command that is done."""
    read, write = os.pipe()
    os.close(read)
    command = "settings" if closed == "stdout" else "nonsense"
    done = subprocess.run(
        [sys.executable, "-m", "clicktower.flows.cli", command],
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, closed: write},
    )
    assert done.returncode == 128 + signal.SIGPIPE
    assert not done.stderr


def test_a_broken_connection_is_a_failure(monkeypatch, capfd):
    def broken(command: str) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr(cli, "build_app", broken)
    assert cli.run(["settings"]) == 1
    assert capfd.readouterr().err


def test_a_pipe_as_judgments_is_refused_in_plain_words():
    reads, writes = os.pipe()  # as a shell's <(...)
    os.close(writes)
    with pytest.raises(UnsupportedOperation) as error:
        storage.read_bytes(f"/dev/fd/{reads}")
    os.close(reads)
    assert failures.explain(error.value).problem == "A pipe is where a file should be."


def test_a_name_that_is_not_utf8_is_called_so(tmp_path):
    done = clicktower("simulate", os.fsdecode(os.fsencode(tmp_path / "caf") + b"\xe9"), "--searches", "50")
    assert (done.returncode, list(tmp_path.iterdir())) == (2, [])
    assert "not UTF-8" in done.stderr


def test_an_unexpected_error_quotes_nothing():
    assert "private" not in str(failures.explain(KeyError("a private query")))


def test_foreign_text_cannot_write_markup_or_escapes_to_a_terminal():
    assert console.plain("[red]x\x1b[2J") == r"\[red]x�[2J"


def test_an_error_that_names_a_strangers_file_writes_no_escape_to_a_terminal(capsys):
    assert failures.report_error(StageError("Line 2 repeats q\x1b[31m1.", "Look at\nit."), "evaluate", False) == 1
    assert "repeats q�[31m1. Look at\nit." in capsys.readouterr().err


def test_an_interrupted_service_does_not_say_that_it_continues(capsys):
    failures.report_end(signal.SIGINT, "serve", False)
    assert capsys.readouterr().err == "interrupted; the service has ended\n"


def test_an_interrupt_as_a_command_begins_to_listen_for_it_prints_no_trace(monkeypatch, capfd):
    def interrupted(last_words: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "end_at_signals", interrupted)
    with pytest.raises((SystemExit, KeyboardInterrupt)) as ended:
        cli.main(["settings"])
    assert ended.value.args == (130,)
    assert capfd.readouterr().err.startswith("interrupted; ")


def test_an_interrupted_submitter_takes_its_stage_with_it(tmp_path):
    """SIGINT to the submitting process: the child that it started is gone."""
    marker = tmp_path / "child.pid"
    child = f"import os, time; open({str(marker)!r}, 'w').write(str(os.getpid())); time.sleep(3600)"
    fake = tmp_path / "python"
    fake.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{child}"\n')
    fake.chmod(0o755)
    code = (
        f"import signal, sys; sys.executable = {str(fake)!r}\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background jobs do without
        "from clicktower.flows.submit import run_stage_command\nrun_stage_command('verify', {'folder': 'x'})"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    wait_until(lambda: marker.exists() and marker.read_text(), "the stage to begin")
    pid = int(marker.read_text())
    parent.send_signal(signal.SIGINT)
    parent.wait(SECONDS)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
