"""What the docs tell a reader to type is typed, in the order of the pages, in one folder, on a small simulated shop.

Every command of these pages either runs here or is named below with the reason why not; test_docs.py has those of all
other pages parsed.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from clicktower.flows import cli
from tests.documented import ROOT, Step, commands, steps

PAGES = [ROOT / page for page in ("docs/start.md", "docs/data.md", "docs/running.md", "README.md")]

# A part of a command, and why it is not run here. The first that is found in a command counts.
NOT_RUN = {
    "--runner=PrismRunner": "tests/beam_jobs/engine/test_same_result.py runs Prism",
    "--runner=FlinkRunner": "tests/beam_jobs/engine/test_same_result.py and test_standalone_flink.py run Flink",
    "--direct_running_mode=multi_processing": "tests/beam_jobs/engine/test_local_workers.py runs processes",
    "s3://lake/": "tests/beam_jobs/sources/test_lake_tables.py reads tables",
    "--workers 2": "tests/training/trainer/test_ray_training.py runs Ray",
    "--device cuda": "tests/training/trainer/test_on_gpu.py, where there is a GPU",
    "build --days store --from": "another window of a longer log: tests/beam_jobs/ingest/test_days.py",
    "build --days store --to": "another window of a longer log: tests/beam_jobs/ingest/test_days.py",
    "clicktower erase": "tests/flows/commands/test_erase_command.py",
    "--if-better": "tests/flows/guards/test_promote.py",
    "--release DIGEST": "tests/flows/releases/test_rollback.py",
    "--recipe rnn-288": "the command above it with another recipe; tests/training/trainer/test_train.py trains it",
    "clicktower backfill": "a run for each date: tests/flows and tests/end_to_end have it",
    "clicktower serve": "it answers until it is ended: tests/flows/serve/test_live.py",
    "clicktower compare": "minutes, with every row: tests/flows/commands/test_compare_command.py runs some",
    "clicktower sweep": "minutes: tests/flows/commands/test_sweep_command.py",
    "clicktower run pipeline.toml": "tests/end_to_end/test_run.py; start.md's `run` is run here",
}
# Where another exit code than 0 is what the page says, too.
EXIT = {
    "clicktower doctor": {0, 1},  # 1: something is in the way of a run on this machine
    "clicktower check ubi.ndjson": {0, 1},  # 1: nothing of so small a log is left behind the privacy gate
    "clicktower check clicks.csv": {0, 1},
    "clicktower rollback": {2},  # with one release only there is none before it
}
SMALLER = {"clicktower demo --work first-look": ["--searches", "2500"]}
IN_A_PROCESS = ("demo", "run")  # Prefect starts a server and keeps it until its process ends


def reason(command: str) -> str | None:
    return next((why for part, why in NOT_RUN.items() if part in command), None)


def run(command: str, cwd: Path) -> int:
    """The exit code of a documented command; DIGEST becomes the newest folder that is there."""
    command = re.sub(r"(\S+)/DIGEST", lambda match: _newest(cwd / match[1], match[1]), command)
    words = [*shlex.split(command, comments=True)[1:], *SMALLER.get(command, [])]
    if words[0] in IN_A_PROCESS:
        environment = os.environ | {"PREFECT_HOME": str(cwd / "prefect")}
        done = subprocess.run([_clicktower(), *words], cwd=cwd, env=environment, capture_output=True, check=False)
        return done.returncode
    return cli.run(words)


def _newest(folder: Path, name: str) -> str:
    return f"{name}/{max(folder.iterdir(), key=lambda one: one.stat().st_mtime).name}"


def _clicktower() -> str:
    return str(Path(sys.executable).with_name("clicktower"))


def _shop(folder: Path) -> None:
    """The reader's own files, as running.md and the README name them: those of the demonstration."""
    data = folder / "first-look" / "data"
    (folder / "logs").symlink_to(data / "log")
    shutil.copy(data / "documents.tsv", folder / "documents.tsv")
    shutil.copy(data / "judgments/queries.dev.tsv", folder / "queries.tsv")
    shutil.copy(data / "judgments/qrels.dev.txt", folder / "qrels.txt")
    shutil.rmtree(folder / "store")  # of data.md: another log


def _do(step: Step, folder: Path) -> None:
    if step.kind == "file":
        (folder / step.name).write_text(step.text, encoding="utf-8")
    elif step.kind == "python":
        exec(step.text, {})
    elif step.text.startswith("clicktower ") and not reason(step.text):
        expected = next((codes for part, codes in EXIT.items() if step.text.startswith(part)), {0})
        assert run(step.text, folder) in expected, step.text


@pytest.mark.rehearsal
@pytest.mark.engine
def test_the_commands_of_the_pages_work_as_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for page in PAGES:
        if page.name == "running.md":
            _shop(tmp_path)
        for step in steps(page):
            _do(step, tmp_path)
    for made in ("first-look/report.html", "release/pointer.json"):
        assert (tmp_path / made).exists(), made


def test_every_reason_belongs_to_a_command_and_no_page_is_left_out_whole():
    all_commands = [command for page in PAGES for command in commands(page)]
    for part in [*NOT_RUN, *EXIT, *SMALLER]:
        assert any(part in command for command in all_commands), f"no page says {part!r} any more"
    for page in PAGES:
        assert any(reason(command) is None for command in commands(page)), page.name


def test_files_and_commands_are_found_in_the_order_of_a_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "`a.csv`:\n\n```text\nx\n```\n\n```console\nclicktower check \\\n  a.csv\n# no\nmake demo\n```\n\n"
        "```python\n1\n```\n"
    )
    assert [(step.kind, step.name, step.text) for step in steps(page)] == [
        ("file", "a.csv", "x\n"),
        ("line", "", "clicktower check    a.csv"),
        ("line", "", "make demo"),
        ("python", "", "1\n"),
    ]
    assert commands(page) == ["clicktower check    a.csv"]
