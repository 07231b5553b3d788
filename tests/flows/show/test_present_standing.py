"""The last lines of a run in a terminal: is the release live and why, and what is unusual."""

import pytest

from clicktower.flows.report.run_blocks import headline, notes
from clicktower.flows.show.present import next_commands, outcome_lines, stage_result

KEPT = {"promote": False, "reason": "It is worse.", "figures": {}}
USUAL = {"alarm": "", "usual": "10", "words": "lines", "value": "1", "basis": ""}
UNKNOWN = USUAL | {"usual": "—"}


def told(decision: dict | None, live: bool, *rows: dict) -> list[str]:
    metrics = {"decision": decision, "live": live}
    results = {"publish": {"metrics": metrics}, "drift": list(rows), "evaluate": {"labels": {}}}
    return [line for block in outcome_lines(results) for line in getattr(block, "items", None) or [block.text]]  # type: ignore[attr-defined]


def test_a_kept_candidate_and_a_promoted_release_say_why():
    assert told(KEPT, False) == ["Kept as a candidate. It is worse."]
    assert told({"promote": True, "reason": "It is better.", "figures": {}}, True) == ["Live. It is better."]
    assert told(None, True) == []


@pytest.mark.parametrize(
    ("rows", "lines"),
    [
        ([USUAL, UNKNOWN | {"alarm": "half"}], ["half"]),
        ([USUAL, UNKNOWN], ["No figure is unusual, of 1 compared with earlier runs."]),
        ([UNKNOWN], []),
        ([], []),
    ],
)
def test_what_is_unusual_is_said_or_that_nothing_is(rows, lines):
    assert told(None, True, *rows) == lines


def test_the_line_of_a_stage_says_whether_its_release_is_live():
    metrics = {
        "num_documents": 7,
        "recall": 1.0,
        "encoded": {},
        "index": {"kind": "ivf", "recall_at": 10},
        "live": False,
        "decision": KEPT,
    }
    assert headline({"stage": "publish", "reused": False, "metrics": metrics}).endswith("kept as a candidate")


def test_the_command_that_makes_a_candidate_live_comes_first(capsys):
    metrics = {
        "num_documents": 7, "recall": 1.0, "encoded": {}, "index": {"kind": "ivf", "recall_at": 10}, "live": False,
        "release": "a release",
    }  # fmt: skip
    published = {"stage": "publish", "digest": "abc", "reused": False, "metrics": metrics | {"decision": KEPT}}
    command = "rollback --to 'a release' --release abc"
    tries = next_commands("a release", {"metrics": {}}, published)
    assert tries[0].endswith(f" {command}")
    assert next_commands("a release", {"metrics": {}}, {"metrics": metrics | {"live": True}}) == tries[1:]
    stage_result(published)
    assert f"to make it live: {tries[0]}" in capsys.readouterr().err


def test_a_window_that_begins_late_is_told_and_what_is_before_it_is_no_missing_day():
    window = {"from": "2026-08-01", "begins": "2026-08-10", "other_key": 9, "missing": ["2026-08-02", "2026-08-12"]}
    result = {"metrics": {"window": window}, "person_key": {"notice": "the key of people expires"}}
    assert notes(result) == [
        "the key of people expires",
        "the window from 2026-08-01 begins on 2026-08-10 and grows; 9 days before are under another key",
        "the store has nothing for 2026-08-12; built without",
    ]
