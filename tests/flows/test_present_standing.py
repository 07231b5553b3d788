"""The last lines of a run in a terminal: is the release live and why, and what is unusual."""

import pytest

from flows.show.present import headline, standing

KEPT = {"promote": False, "reason": "It is worse.", "figures": {}}
USUAL = {"alarm": "", "usual": "10"}


def told(decision: dict | None, live: bool, *rows: dict) -> list[str]:
    metrics = {"decision": decision, "live": live}
    return [line.plain for line in standing({"publish": {"metrics": metrics}, "drift": list(rows)})]


def test_a_kept_candidate_and_a_promoted_release_say_why():
    assert told(KEPT, False) == ["candidate It is worse."]
    assert told({"promote": True, "reason": "It is better.", "figures": {}}, True) == ["live      It is better."]
    assert told(None, True) == []


@pytest.mark.parametrize(
    ("rows", "lines"),
    [
        ([USUAL, {"alarm": "half", "usual": "20"}], ["unusual   half"]),
        ([USUAL, {"alarm": "", "usual": "—"}], ["unusual   nothing, of 1 that could be compared"]),
        ([{"alarm": "", "usual": "—"}], ["unusual   there are too few earlier runs to say"]),
        ([], []),
    ],
)
def test_what_is_unusual_is_said_or_that_nothing_is(rows, lines):
    assert told(None, True, *rows) == lines


def test_the_line_of_a_stage_says_whether_its_release_is_live():
    metrics = {"num_documents": 7, "recall": 1.0, "live": False, "decision": KEPT}
    assert headline({"stage": "publish", "reused": False, "metrics": metrics}).endswith("kept as a candidate")
