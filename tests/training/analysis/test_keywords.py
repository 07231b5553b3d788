"""The counting rules on traces and counts worked by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clicktower.schemas.errors import UsageError
from clicktower.schemas.section import changed
from clicktower.training.analysis.keywords import CountingRule, by_counts, keywords, most_active
from clicktower.training.analysis.traces import Trace


def trace_of(y_rows, direction="left to right") -> Trace:
    """Rows are words in the order of the text, columns cells."""
    return Trace(direction=direction, states={"y": np.array(y_rows, np.float32)})


# Three cells over "cheap hotels in rome". Ranges with the start at 0 in them, and moves from word to word:
#   cell 0: 0.1  0.5  0.5  0.9   range 0.9 - 0 = 0.9      moves 0.4, 0, 0.4: 44%, 0%, 44%
#   cell 1: 0.0 -0.2 -0.3 -0.8   range 0 + 0.8 = 0.8      moves 0.2, 0.1, 0.5: 25%, 12.5%, 62.5%
#   cell 2: 0.4  0.3  0.4  0.1   range 0.4 - 0 = 0.4      moves 0.1, 0.1, 0.3: 25%, 25%, 75%
Y = [[0.1, 0.0, 0.4], [0.5, -0.2, 0.3], [0.5, -0.3, 0.4], [0.9, -0.8, 0.1]]


def test_cells_and_counts_worked_by_hand():
    (counted,) = keywords([trace_of(Y)], CountingRule(top_cells=2, threshold=0.3)).counted
    assert counted.cells == (0, 1)  # |y| of the last word: 0.9, 0.8, 0.1
    assert counted.counts == [None, 1, 0, 2]  # 30%: cell 0 at words 2 and 4, cell 1 at word 4
    assert counted.declared.tolist() == [[False, False], [True, False], [False, False], [True, True]]


def test_keywords_worked_by_hand():
    # All three cells at 20%: word 2 by 0, 1 and 2, word 3 by 2 (25%), word 4 by all. More than 40% of 3 is 2 or 3.
    found = keywords([trace_of(Y)], CountingRule(threshold=0.2))
    assert found.counted[0].cells == (0, 1, 2)  # fewer cells than 10: all of them
    assert found.counted[0].counts == [None, 3, 1, 3]
    assert found.keywords == (1, 3)
    assert found.most == [0, 3, 1, 3]


def test_a_trace_from_right_to_left_begins_at_the_last_word():
    # The same steps read the other way: the text's last word is read first, and the cells are those of the first word.
    found = keywords([trace_of(Y[::-1], "right to left")], CountingRule(threshold=0.2))
    assert found.counted[0].cells == (0, 1, 2)
    assert found.counted[0].counts == [3, 1, 3, None]
    assert found.keywords == (0, 2)


def test_both_directions_must_declare_a_word_that_has_a_count_in_both():
    right = trace_of(Y)  # counts –, 3, 1, 3
    left = trace_of([[0.9] * 3, [0.3] * 3, [0.3] * 3, [0.1] * 3], "right to left")
    # Read 4, 3, 2, 1: 0.1, 0.3, 0.3, 0.9, range 0.9: moves 22%, 0%, 67%: counts 3 (word 1), 0, 3, – .
    found = keywords([right, left], CountingRule(threshold=0.2))
    assert [one.counts for one in found.counted] == [[None, 3, 1, 3], [3, 0, 3, None]]
    assert found.keywords == (0, 3)  # each by the one direction that has a count; 2 and 3 lack one direction


@pytest.mark.parametrize(
    ("left_to_right", "right_to_left", "expected"),
    [
        # More than 40% of 10 cells is 5 or more: 4 are not enough.
        ([None, 4, 5, 10], [5, 5, 5, None], (0, 2, 3)),
        ([None, 0, 7], [6, 0, None], (0, 2)),
        ([None, 4, 8, 9], [4, 10, 4, None], (3,)),
        ([None], [None], ()),  # one word: no count at all
    ],
)
def test_the_rule_after_counting(left_to_right, right_to_left, expected):
    assert by_counts([left_to_right, right_to_left], [10, 10]) == expected


def test_one_direction_alone_decides_where_there_is_no_other():
    assert by_counts([[None, 4, 5]], [10]) == (2,)
    assert by_counts([[None, 1, 2]], [4]) == (2,)  # more than 1.6 of 4 cells


def test_a_text_of_one_word_has_no_counts():
    found = keywords([trace_of([[0.3, 0.2]])], CountingRule())
    assert found.counted[0].counts == [None]
    assert found.keywords == ()
    assert found.most == [0]


def test_a_cell_that_stands_still_declares_nothing():
    found = keywords([trace_of([[0.0, 0.2], [0.0, 0.2], [0.0, 0.2]])], CountingRule(threshold=0.01))
    assert found.counted[0].counts == [None, 0, 0]


def test_a_move_of_exactly_the_threshold_is_declared():
    # Range 1 - 0, moves 0.25 and 0.5, all exact in binary.
    y = trace_of([[0.25], [0.5], [1.0]])
    assert keywords([y], CountingRule(threshold=0.25)).counted[0].counts == [None, 1, 1]
    assert keywords([y], CountingRule(threshold=0.26)).counted[0].counts == [None, 0, 1]


@pytest.mark.parametrize("sign", [1, -1])
def test_the_start_at_zero_belongs_to_the_range(sign):
    # 0.8 -> 0.9 -> 0.4: range 0.9 with the start, moves 11% and 56%; without it the first would be 20% of 0.5.
    y = trace_of([[sign * 0.8], [sign * 0.9], [sign * 0.4]])
    assert keywords([y], CountingRule(threshold=0.15)).counted[0].counts == [None, 0, 1]


def test_ties_of_activity_go_to_the_lower_number():
    assert most_active(trace_of([[0.2, -0.5, 0.5, 0.5]]), 2) == (1, 2)


values = st.floats(-1, 1, width=32).map(lambda v: round(v, 3))
traces = st.integers(1, 6).flatmap(
    lambda cells: st.lists(st.lists(values, min_size=cells, max_size=cells), min_size=1, max_size=8)
)


@settings(max_examples=100, deadline=None)
@given(y=traces, threshold=st.sampled_from([0.05, 0.2, 0.5, 1.0]))
def test_the_two_directions_are_mirror_images_and_scale_does_not_matter(y, threshold):
    rule = CountingRule(threshold=threshold)
    right, left = keywords([trace_of(y)], rule), keywords([trace_of(y[::-1], "right to left")], rule)
    assert right.counted[0].counts == left.counted[0].counts[::-1]
    halves = keywords([trace_of(np.array(y) / 2)], rule)  # halving a float is exact
    assert halves.counted[0].counts == keywords([trace_of(np.array(y, np.float32))], rule).counted[0].counts
    assert halves.keywords == right.keywords


@pytest.mark.parametrize("field", [{"top_cells": 0}, {"threshold": 0.0}, {"threshold": 1.5}, {"share": 1.0}])
def test_a_rule_that_means_nothing_is_refused(field):
    with pytest.raises(UsageError, match=next(iter(field))):
        changed(CountingRule(), field)
