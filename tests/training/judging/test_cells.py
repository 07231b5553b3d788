import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.evaluation.judged_pool import check, guarded, unguarded


@pytest.mark.parametrize(
    "text",
    [
        "=HYPERLINK(1)", "+1", "-5", "@SUM(A1)", "＝1", "'quoted", "007", "3/4", "1-1/2", "12E4", "1.5e-3", "2.50",
        "$5", "10:30", "12 am", "may 12", "3 March", "1-Jan-2020", "TRUE", "50%", "1,000",
    ],
)  # fmt: skip
def test_what_a_spreadsheet_takes_for_something_else_is_guarded(text):
    assert guarded(text) == "'" + text
    assert unguarded(guarded(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "angle bracket",
        "2x4",
        "d10",
        "P100001",
        "marble tile",
        "decking",
        "may",
        "3/4 in. pipe",
        "50 ft hose",
        "漢字",
        "a=b",
    ],
)
def test_other_text_stays_as_it_is(text):
    assert guarded(text) == text


def test_tabs_and_line_ends_cannot_make_other_cells():
    assert guarded("a\tb\r\nc") == "a b c"
    assert guarded("\t=1") == "'=1"


@given(st.text(max_size=20))
def test_no_cell_begins_as_a_formula_and_the_text_comes_back(text):
    cell = guarded(text)
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    assert unguarded(cell) == " ".join(text.split())


def test_a_check_holds_both_ids_and_both_texts_and_forgives_their_spelling():
    given_cells = ("q1", 'pipe 3/4"', "d1", "Copper Pipe")
    letters = check(*given_cells)
    assert len(letters) == 12
    assert check("q1", "pipe  3/4\u201d", "d1", "copper pipe ") == letters  # a spreadsheet's typography
    for place, other in enumerate(("q2", "pipe 3/5", "D1", "Copper Pipes")):
        changed = [*given_cells]
        changed[place] = other
        assert check(*changed) != letters
