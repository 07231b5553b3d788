"""The last lines of a run in a terminal: is the release live and why, and what is unusual."""

import pytest

from clicktower.flows.report.run_blocks import headline
from clicktower.flows.show.present import outcome_lines

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
