from dataclasses import asdict

import pytest

from clicktower.schemas.errors import StageError
from clicktower.schemas.ledger import Ledger, continue_with, merge_ledgers


def test_fates_that_add_up_pass_and_others_do_not():
    assert Ledger(total=5, lines={"repeat": 2, "day_click": 3}).check().of_kind("dropped") == 2
    for total in 4, 6:  # a line counted twice, a line lost
        with pytest.raises(StageError, match=f"5 of {total} lines"):
            Ledger(total=total, lines={"repeat": 2, "day_click": 3}).check()


def test_a_merged_ledger_has_the_sum_of_each_fate():
    merged = merge_ledgers([Ledger(total=count, lines={"repeat": count}) for count in (3, 5, 6)])
    assert merged == Ledger(total=14, lines={"repeat": 14})


def test_a_fate_without_a_name_is_refused():
    with pytest.raises(ValueError, match="vanished"):
        Ledger(total=1, lines={"vanished": 1})


def test_build_brings_every_line_of_the_days_to_an_end():
    days = merge_ledgers(
        [Ledger(total=5, lines={"repeat": 2, "day_click": 3}), Ledger(total=2, lines={"day_search": 2})]
    )
    whole = continue_with(days, {"click_train": 2, "query_below_k": 1, "search": 2})
    assert whole == Ledger(total=7, lines={"repeat": 2, "click_train": 2, "query_below_k": 1, "search": 2})
    with pytest.raises(StageError):
        continue_with(days, {"click_train": 2, "search": 2})  # one click was lost on the way


def test_fates_have_their_order_and_those_without_a_line_are_left_out():
    ledger = Ledger(total=3, lines={"search": 1, "blank_line": 0, "repeat": 2})
    assert list(ledger.lines.items()) == [("repeat", 2), ("search", 1)]
    assert Ledger(**asdict(ledger)) == ledger
