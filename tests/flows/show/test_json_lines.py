"""A run as JSON lines on stderr."""

import json
import sys
from datetime import datetime

import pytest

from clicktower.flows.commands import pipelines
from clicktower.flows.config.guard_rules import DriftRules
from clicktower.flows.show import console, present
from clicktower.flows.submit import send_progress
from clicktower.schemas.errors import StageError, UsageError

STAGE = {"stage": "ingest", "digest": "0" * 24, "duration_seconds": 1.5, "counts": {"queries": 3}, "reused": False,
         "ledger": {"total": 4, "lines": {"day_search": 4}}, "metrics": {"later_than_ingest_share": 0.5}}  # fmt: skip


def run_with(monkeypatch, run) -> None:
    monkeypatch.setattr(pipelines, "run_locally", run)
    monkeypatch.setattr(present, "run_results", lambda _: None)
    monkeypatch.setattr(present, "run_json", lambda command, results: {"stage": command})


def lines(capsys) -> list[dict]:
    found = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    for line in found:
        assert list(line)[:5] == ["time", "stage", "event", "seconds", "digest"]
        assert datetime.fromisoformat(line["time"]).utcoffset().total_seconds() == 0
    return found


def test_every_line_on_stderr_is_an_object_whatever_prints_it(monkeypatch, capsys):
    def run(config, date, **_):
        send_progress("ingest: reading (10 of 20)")
        sys.stderr.write("a library warns\n")
        present.stage_result(STAGE)
        present.stage_result({**STAGE, "reused": True, "metrics": {}})
        present.alarms(["lines of the log: far fewer"])
        return {"drift": [{"alarm": ""}]}

    run_with(monkeypatch, run)
    assert pipelines.run("pipeline.toml", json_logs=True) == 0
    found = lines(capsys)
    assert [(line["stage"], line["event"]) for line in found] == [
        ("run", "started"), ("ingest", "progress"), ("run", "output"), ("ingest", "done"), ("ingest", "note"),
        ("ingest", "reused"), ("run", "drift"), ("run", "done"),
    ]  # fmt: skip
    assert (found[3]["seconds"], found[3]["digest"]) == (1.5, "0" * 24)
    assert found[1]["text"] == "reading (10 of 20)"
    assert found[2]["text"] == "a library warns"
    console.errors.print("as before")
    assert capsys.readouterr().err == "as before\n"


@pytest.mark.parametrize(
    ("error", "code"), [(UsageError("It is wrong.", "Mend it."), 2), (StageError("It broke.", "Mend it."), 1)]
)
def test_a_failure_is_a_line_and_ends_the_process_with_its_code(monkeypatch, capsys, error, code):
    def run(config, date, **_):
        raise error

    run_with(monkeypatch, run)
    with pytest.raises(SystemExit) as ended:
        pipelines.run("pipeline.toml", json_logs=True)
    assert ended.value.code == code
    last = lines(capsys)[-1]
    assert (last["event"], last["problem"], last["fix"]) == ("failed", error.problem, "Mend it.")
    assert last["seconds"] >= 0


def test_an_interrupt_is_a_line_too(monkeypatch, capsys):
    def run(config, date, **_):
        raise KeyboardInterrupt

    run_with(monkeypatch, run)
    with pytest.raises(SystemExit) as ended:
        pipelines.run("pipeline.toml", json_logs=True)
    assert ended.value.code == 130
    assert lines(capsys)[-1]["event"] == "interrupted"


@pytest.mark.parametrize(("setting", "code"), [("", 0), ("[drift]\nexit_code = 9\n", 9)])
def test_an_alarm_ends_a_run_with_the_exit_code_of_the_settings(monkeypatch, tmp_path, setting, code):
    from tests.flows.test_chain import PIPELINE

    (tmp_path / "pipeline.toml").write_text(PIPELINE.format(train="") + setting)
    run_with(monkeypatch, lambda config, date, **_: {"drift": [{"alarm": "lines of the log: far fewer"}]})
    assert pipelines.run(str(tmp_path / "pipeline.toml"), json=True) == code
    run_with(monkeypatch, lambda config, date, **_: {"drift": [{"alarm": ""}]})
    assert pipelines.run(str(tmp_path / "pipeline.toml"), json=True) == 0


def test_the_exit_code_of_a_wrong_usage_is_no_alarm_s():
    with pytest.raises(ValueError, match="2 is that of a wrong usage"):
        DriftRules(exit_code=2)
