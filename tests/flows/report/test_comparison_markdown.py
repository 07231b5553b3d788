"""compare.md: its figures are those of the value, every row has its place, and no title can break it."""

import re

import pytest

from clicktower.flows.commands.compare import as_markdown as page
from clicktower.flows.report.blocks import Table
from clicktower.flows.report.comparison_page import comparison_blocks
from clicktower.flows.report.markdown import escaped
from tests.training.evaluation.sample_comparison import NASTY, UNSEEN, sample_comparison, without


@pytest.fixture(scope="module")
def whole() -> str:
    return page(sample_comparison())


def lines_of(text: str, title: str) -> list[list[str]]:
    """The cells of a title's lines, in the order of the sections."""
    lines = [line for line in text.splitlines() if line.startswith(f"| {title} |")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_answer_comes_first(whole):
    heading, _, _, _, answer = whole.splitlines()[:5]
    assert heading == "# 18 rows on 1,229 judged queries"
    assert answer.startswith("**Highest NDCG@10: Hybrid: LSTM, 96 cells, n = 4 with BM25, 0.868")


def test_a_row_has_its_figures_in_every_table(whole):
    judged, collection, *beside, length, cost = lines_of(whole, "LSTM, 96 cells, n = 4")
    # 0.664 + 1.8 · 0.007 = 0.6766, 0.696 + 0.0126 = 0.7086, 0.851 + 0.007 = 0.858; ± 0.024, 0.024, 0.012
    assert judged[1:] == [
        r"0.677 \*\*\* (0.653–0.701)", r"0.709 \*\*\* (0.685–0.733)", r"0.858 \*\*\* (0.846–0.870)",
        r"+0.007 \*\*\* (+0.003 to +0.011)"]  # fmt: skip
    assert [cell[:5] for cell in collection[1:]] == ["0.315", "0.624", "0.567", "0.384"]
    # Table IV: 33.1, 36.5, 43.6, and BM25's 30.5, 32.8, 38.8
    assert [cells[1:] for cells in beside] == [
        ["0.331", "", "0.677", "+0.026", "", "+0.013"], ["0.365", "", "0.709", "+0.037", "", "+0.013"],
        ["0.436", "", "0.858", "+0.048", "", "+0.007"]]  # fmt: skip
    assert cost[1:] == ["0.858", "19,000,000", "96", "4 min 55 s", "160,000"]
    # of one word: 0.851 + 0.0035, ± 0.3 / √58 = 0.0394
    assert length[1] == "0.854 (0.815–0.894)"


def test_rows_stand_in_the_order_of_the_value(whole):
    titles = [re.split(r"(?<!\\)\|", line)[1].strip() for line in whole.splitlines() if line.startswith("| ")]
    titles = [title.removesuffix(" (chosen)") for title in titles]
    assert titles[1:19] == [escaped(row["title"]) for row in sample_comparison()["rows"]]


def test_rows_without_figures_stay_and_say_why(whole):
    assert lines_of(whole, "Skip-Thought")[0][1:] == ["empty", "", "", ""]
    assert lines_of(whole, "PLSA, 500 topics")[0][1] == "failed"
    assert "- Skip-Thought is empty: no run of its vectors was given (--run skip-thought=FILE)." in whole
    assert "- PLSA, 500 topics failed: MemoryError" in whole
    # What the paper has of them stands beside the others: 40.2 - 38.8.
    assert lines_of(whole, "PLSA, 500 topics")[-1][1:] == ["0.402", "", "", "+0.014", "", ""]


def test_the_highest_of_a_column_is_bold(whole):
    [bold] = [line for line in whole.splitlines() if "**0.868**" in line]
    assert bold.startswith("| Hybrid")
    assert len(re.findall(r"\| \*\*0\.\d{3}\*\*", whole.split("## The whole")[0])) == 3


def test_parts_of_slices_say_how_many_queries_they_have(whole):
    for part in ("1 word (n = 58)", "misspelled", "yes (n = 96)", "tail (n = 817)"):
        assert part in whole


def test_both_rankings_stand_side_by_side(whole):
    section = whole.split("### couch beige linen")[1].split("###")[0]
    assert "Gained: Hybrid: LSTM, 96 cells, n = 4 with BM25 0.940, BM25 0.310" in section
    assert "| 3 | Arkin Beige Linen Sofa, 72 in. |" in section
    assert "| 2 | أريكة من الكتان البيج |" in section
    assert "no result" in whole.split("Lost: ")[1]  # the other found nothing


def test_foreign_texts_keep_to_their_cell(whole):
    assert "<script" not in whole
    assert all(char.isprintable() for line in whole.splitlines() for char in line)
    assert escaped(NASTY) in whole
    assert escaped(UNSEEN) == "half �\\[31minch� pipe"
    assert escaped("a\nb\r\n# c | d") == "a b \\# c \\| d"
    tables = re.findall(r"(?:^\|.*\n)+", whole, re.MULTILINE)
    for table in tables:
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(widths) == 1, table


def test_one_row_has_a_page_without_marks():
    text = page(sample_comparison("bm25"))
    assert text.startswith("# 1 row on 1,229 judged queries")
    assert "Holm" not in text.split("## How")[0]
    assert "≈" not in text


@pytest.mark.parametrize("names", [("skip-thought", "plsa-500"), ("skip-thought",)])
def test_without_a_row_that_is_done_there_are_no_tables_of_figures(names):
    text = page(sample_comparison(*names) | {"difference": None, "slices": {}, "measures": []})
    assert "No row could be measured" in text
    assert "## The judged documents" not in text
    assert "no run of its vectors" in text


def test_a_chosen_row_that_failed_takes_the_tests_with_it():
    text = page(without(sample_comparison("bm25", "lstm-96"), "bm25") | {"difference": None})
    assert "- BM25 failed: the disk is full." in text
    assert "NDCG@10 − BM25 |" not in text.split("## Beside")[0]
    assert "Queries that gained" not in text


@pytest.mark.parametrize("key", ["difference", "slices_of_rows", "notes", "paper", "cost", "collection"])
def test_what_is_optional_may_be_missing(key):
    comparison = sample_comparison()
    if key == "difference":
        del comparison["difference"]
    elif key == "collection":
        comparison["measures"] = comparison["measures"][:3]
    for row in comparison["rows"]:
        if key == "slices_of_rows":
            row["slices"] = {}
        if key == "notes":
            row["notes"] = []
        if key == "paper":
            row |= {"paper": None, "paper_to_bm25": None}
        if key == "cost":
            row |= dict.fromkeys(("parameters", "dimensions", "train_seconds", "texts_per_second"))
    gone = {
        "difference": "## Queries that gained",
        "slices_of_rows": "## For which queries",
        "notes": "the weight 0.35",
        "paper": "## Beside the paper",
        "cost": "## What it costs",
        "collection": "## The whole collection",
    }[key]
    assert gone in page(sample_comparison())
    assert gone not in page(comparison)


def tables(comparison) -> dict[str, Table]:
    """The tables by the titles of their sections."""
    sections = comparison_blocks(comparison)
    return {section.title: block for section in sections for block in section.blocks if isinstance(block, Table)}


def test_tables_have_a_cell_for_every_name_of_their_header():
    for title, table in tables(sample_comparison()).items():
        assert all(len(row) == len(table.header) for row in table.rows), title
        assert sum(columns for _, columns in table.groups) in (0, len(table.header)), title


def test_parts_of_few_queries_and_slices_of_one_part_are_left_out():
    comparison = sample_comparison("bm25", "lstm-96")
    for row in comparison["rows"]:
        del row["slices"]["seen in training"]["seen"]
        row["slices"]["misspelled"]["yes"]["n"] = 19
        row["slices"]["frequency"]["tail"]["n"] = 19
    groups = tables(comparison)["For which queries"].groups
    assert groups == [("", 1), ("query length", 4), ("frequency", 2)]


def test_bm25_has_no_difference_to_itself():
    [bm25] = lines_of(page(sample_comparison("bm25", "lstm-96")).split("## Beside the paper")[1], "BM25 (chosen)")[:1]
    assert bm25[1:] == ["0.305", "0.664", "0.664", "", "", ""]


def test_a_row_as_printed_and_the_same_row_tuned_share_a_line_beside_the_paper():
    comparison = sample_comparison("bm25", "lstm-32", "lstm-96")
    comparison["rows"][1] |= {"table": "as printed", "paper_row": "LSTM", "title": "LSTM, as printed"}
    comparison["rows"][2] |= {"paper_row": "LSTM", "title": "LSTM, tuned"}
    at_1, _, at_10 = lines_of(page(comparison), "LSTM")
    # the paper's LSTM with 32 cells: 31.9 and 42.7, 1.4 and 3.9 above BM25; here 0.004 and 0.007 above 0.851
    assert at_10[1:] == ["0.427", "0.855", "0.858", "+0.039", "+0.004", "+0.007"]
    assert at_1[1:] == ["0.319", "0.671", "0.677", "+0.014", "+0.007", "+0.013"]


def test_the_order_of_rows_stands_beside_its_intervals_and_is_not_put_in_words(whole):
    [order] = lines_of(whole, "tuned")
    # of four rows a random order has the standard deviation √(2 · 13 / (9 · 4 · 3))
    assert order[1:] == ["4", "+0.33 (+0.00 to +0.67)", "+0.67 (-0.33 to +1.00)", "+1.00 (+0.33 to +1.00)", "0 ± 0.49"]
    assert "Kendall" not in page(sample_comparison("bm25"))
