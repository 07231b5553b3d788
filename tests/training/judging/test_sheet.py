"""A sheet written, filled in as people and spreadsheets do, and read."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import StageError, UsageError
from training.evaluation.judged_pool import Item, read_sheet, sheet_bytes

ITEMS = [
    Item(query_id="q1", query="angle bracket", document_id="d1", title='Steel bracket, 3/4" wide; black'),
    Item(query_id="q1", query="angle bracket", document_id="007", title="=HYPERLINK(1)"),
    Item(query_id="q2", query="3/4", document_id="12E4", title="ørn 漢字 😀"),
]


def rows_of(content: bytes, delimiter: str = ",") -> list[list[str]]:
    return list(csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), delimiter=delimiter))


def filled(*grades: str, items=ITEMS) -> list[list[str]]:
    """The rows of a sheet with grades written into it."""
    header, *rows = rows_of(sheet_bytes(items, "sheet.csv"))
    return [header, *([*row[:4], grade, row[5]] for row, grade in zip(rows, grades, strict=True))]


def saved(folder, rows, *, delimiter=",", encoding="utf-8-sig", end="\r\n", quoting=csv.QUOTE_MINIMAL) -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator=end, quoting=quoting).writerows(rows)
    path = folder / "filled.csv"
    path.write_bytes(text.getvalue().encode(encoding))
    return str(path)


@pytest.mark.parametrize(("name", "delimiter"), [("sheet.csv", ","), ("Sheet.TSV", "\t")])
def test_a_sheet_opens_as_text_with_the_words_of_the_grades(name, delimiter):
    content = sheet_bytes(ITEMS, name)
    header, *rows = rows_of(content, delimiter)
    assert content.startswith(b"\xef\xbb\xbf")
    assert header[:4] == ["query_id", "query", "document_id", "title"]
    for grade in ("0 Bad", "1 Fair", "2 Good", "3 Excellent"):
        assert grade in header[4]
    assert [row[4] for row in rows] == ["", "", ""]
    assert [row[2] for row in rows] == ["d1", "'007", "'12E4"]
    assert rows[1][3] == "'=HYPERLINK(1)"


def test_another_ending_is_wrong_usage():
    with pytest.raises(UsageError, match=r"\.csv or \.tsv"):
        sheet_bytes(ITEMS, "sheet.xlsx")


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"delimiter": ";"},
        {"delimiter": "\t", "encoding": "utf-16"},
        {"encoding": "utf-8", "end": "\n", "quoting": csv.QUOTE_ALL},
    ],
)
def test_what_spreadsheets_save_is_read(tmp_path, form):
    rows = filled("3", " Good ", "0.0")
    sheet = read_sheet(saved(tmp_path, [*rows[:1], *rows[:0:-1], [""] * 6, []], **form))  # sorted the other way round
    assert sheet.grades == {("q1", "d1"): 3, ("q1", "007"): 2, ("q2", "12E4"): 0}
    assert sheet.rows == {("q2", "12E4"): 2, ("q1", "007"): 3, ("q1", "d1"): 4}
    assert sheet.queries == {"q1": "angle bracket", "q2": "3/4"}
    assert sheet.num_written == 3


def test_moved_and_added_columns_and_apostrophes_that_a_spreadsheet_took_away_do_no_harm(tmp_path):
    rows = [[row[4], row[5], "remark", *(cell.removeprefix("'") for cell in row[:4])] for row in filled("1", "2", "3")]
    assert sorted(read_sheet(saved(tmp_path, rows)).grades.values()) == [1, 2, 3]


def test_empty_cells_are_no_grades(tmp_path):
    sheet = read_sheet(saved(tmp_path, filled("1", "", "  ")))
    assert sheet.grades == {("q1", "d1"): 1}
    assert len(sheet.rows) == 3


def changed(row: int, column: int, value: str) -> list[list[str]]:
    rows = filled("1", "2", "3")
    rows[row - 1][column] = value
    return rows


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        (changed(3, 4, "4"), "Row 3: the grade is none"),
        (changed(2, 4, "-1"), "Row 2: the grade is none"),
        (changed(2, 4, "1.5"), "Row 2: the grade is none"),
        (changed(3, 2, "7"), "of row 3 are not those that were written"),  # a spreadsheet made a number of '007
        (changed(4, 1, "04. Mar"), "of row 4 are not those"),
        (changed(2, 5, ""), "of row 2 are not those"),
        ([*changed(2, 4, "1"), [*filled("3", "", "")[1]]], "twice with two grades: rows 2 and 5"),
        (changed(1, 4, "mark"), "0 columns begin with the word grade"),
        (changed(1, 0, "id"), "does not name the columns"),
        (filled("1", "2", "3")[:1], "holds no row"),
    ],
)
def test_what_is_wrong_is_named_by_its_row(tmp_path, rows, found):
    with pytest.raises(StageError, match=found):
        read_sheet(saved(tmp_path, rows))


def test_a_column_that_was_sorted_without_the_others_is_noticed(tmp_path):
    header, *rows = filled("1", "2", "3")
    titles = sorted(row[3] for row in rows)
    apart = [[*row[:3], title, *row[4:]] for row, title in zip(rows, titles, strict=True)]
    assert titles != [row[3] for row in rows]
    with pytest.raises(StageError, match=r"not those that were written together.*a column was sorted without"):
        read_sheet(saved(tmp_path, [header, *apart]))


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"PK\x03\x04rest", r"spreadsheet's own form"),
        ("query_id,query,document_id,title,grade,check\nq,\xfcber,d,t,1,x\n".encode("latin-1"), "Byte 47 is not UTF-8"),
        (b"", "does not name the columns"),
        (b'query_id,query,document_id,title,grade,check\n"q"1,a,b,c,1,x\n', "quotes do not match"),
    ],
)
def test_another_kind_of_file_is_told(tmp_path, content, found):
    path = tmp_path / "sheet.csv"
    path.write_bytes(content)
    with pytest.raises(StageError, match=found):
        read_sheet(str(path))
    with pytest.raises(UsageError, match="no such file"):
        read_sheet(str(tmp_path / "nothing.csv"))


cells = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
ids = st.text(st.characters(exclude_categories=["Cs", "Z", "Cc"]), min_size=1, max_size=6)


@given(
    st.lists(st.tuples(ids, cells, ids, cells, st.integers(0, 3)), min_size=1, unique_by=lambda row: (row[0], row[2]))
)
def test_any_text_comes_back_with_its_grade(tmp_path_factory, drawn):
    items = [Item(query_id=q, query=query, document_id=d, title=title) for q, query, d, title, _ in drawn]
    rows = filled(*(str(grade) for *_, grade in drawn), items=items)
    sheet = read_sheet(saved(tmp_path_factory.mktemp("sheet"), rows, delimiter=";"))
    assert sheet.grades == {(q, d): grade for q, _, d, _, grade in drawn}
