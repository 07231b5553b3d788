"""compare.html: whole in itself, true to the comparison, safe against foreign titles, complete without its parts."""

import re
from collections import Counter
from itertools import pairwise

import pytest

from clicktower.flows.report.blocks import html as render
from clicktower.flows.report.blocks import write_page
from clicktower.flows.report.comparison_page import comparison_page
from clicktower.flows.report.run_blocks import run_page
from tests.flows.report.sample_run import RESULTS, sample_run
from tests.flows.report.test_report import Page, loads_nothing
from tests.training.evaluation.sample_comparison import NASTY, sample_comparison, sample_result, without


def html_of(comparison: dict) -> str:
    return render(comparison_page(sample_result(comparison)))


@pytest.fixture(scope="module")
def html() -> str:
    return html_of(sample_comparison())


@pytest.fixture(scope="module")
def page(html) -> Page:
    return Page(html)


def test_every_element_is_closed_where_it_should_be(page):
    assert page.open == []
    assert page.words.startswith("18 rows on 1,229 judged queries clicktower · comparison 18 rows on 1,229")


def test_nothing_is_loaded_and_nothing_runs(html):
    loads_nothing(html)


def test_foreign_titles_are_text_and_their_controls_are_gone(html, page):
    assert "<script" not in html.lower()
    assert NASTY in page.words
    assert "half �[31minch� pipe" in page.words
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", html)


def test_a_title_that_turns_the_direction_of_writing_is_kept_apart(html):
    assert "<td>أريكة من الكتان البيج</td>" in html  # a cell, like every block, is isolated from what is beside it


def test_numbers_of_every_part_are_those_of_the_value(page):
    for text in (
        "LSTM, 96 cells, n = 4 0.677 *** 0.653–0.701 0.709 *** 0.685–0.733 0.858 *** 0.846–0.870 +0.007 *** +0.003 to",
        "BM25 chosen 0.302 0.278–0.326 0.611 0.587–0.635",
        "LSTM, 96 cells, n = 4 0.365 0.709 +0.037 +0.013",  # 36.5 - 32.8 = 3.7
        "LSTM, 96 cells, n = 4 0.858 19,000,000 96 4 min 55 s 160,000",
        "Skip-Thought empty",
        "Skip-Thought is empty: no run of its vectors was given",
        "PLSA, 500 topics failed: MemoryError",
        "Gained: Hybrid: LSTM, 96 cells, n = 4 with BM25 0.940, BM25 0.310",
        "Ties: as trec_eval",
        "the weight 0.35 was chosen on dev",
        "p after Holm's correction",
    ):
        assert text in page.words, text


def test_pictures_and_tables_can_be_told_without_seeing_them(page):
    assert all(svg.get("role") == "img" and svg.get("aria-label") for svg in page.all("svg"))
    assert len(page.all("caption")) == len(page.all("table")) > 4
    levels = [int(name[1]) for name, _ in page.elements if re.fullmatch(r"h[1-6]", name)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {section["aria-labelledby"] for section in page.all("section")} <= set(ids)


def test_every_part_has_its_picture(page):
    """NDCG@10, and beside the paper."""
    assert [svg["class"] for svg in page.all("svg")] == ["whiskers"] * 2


def test_colours_follow_what_was_tested(html):
    """At NDCG@10: six above, two below, seven not significant, the chosen one: a dot and two ends of each."""
    picture = html[html.index('<svg class="whiskers"') :].split("</svg>")[0]
    dots = re.findall(r'<use [^>]*style="fill: var\(--(\w+)\); stroke: var\(--(\w+)\); stroke-width: 1.6"', picture)
    assert Counter(dots) == {
        ("ours", "ours"): 18, ("unreadable", "unreadable"): 6, ("card", "quiet"): 7, ("quiet", "quiet"): 14,
        ("ink", "ink"): 3,
    }  # fmt: skip


@pytest.mark.parametrize("comparison", [
    sample_comparison("bm25") | {"difference": None},
    sample_comparison("skip-thought", "plsa-500") | {"difference": None, "measures": []},
    sample_comparison("skip-thought", "plsa-500"),
    without(sample_comparison("bm25", "lstm-96"), "bm25") | {"against": None, "difference": None},
    sample_comparison("lstm-96-gated", "random") | {"slices": {}, "difference": None},
    sample_comparison("bm25", "lstm-96", "hybrid") | {"against": "lstm-96"},
    sample_comparison("bm25", "lstm-96") | {"measures": ["ndcg@1", "ndcg@3", "ndcg@10"]},
])  # fmt: skip
def test_a_comparison_with_little_in_it_has_a_page(comparison):
    page = Page(html_of(comparison))
    assert page.open == []
    assert all(row["title"] in page.words for row in comparison["rows"])
    assert "nan" not in page.words.lower().split()


def test_judgments_from_clicks_are_not_called_those_of_judges(page):
    by_clicks = Page(html_of(sample_comparison() | {"judgments": "click-derived"}))
    assert "Judged by clicks." in by_clicks.words
    assert "Grades derived from clicks" in by_clicks.words
    assert "Judged by clicks." not in page.words
    assert "Grades by judges" in page.words


@pytest.mark.slow
def test_a_run_with_a_comparison_shows_it_among_its_own_parts():
    results = {**RESULTS, "compare": sample_result()}
    run = Page(render(run_page(**sample_run() | {"results": results})))
    assert run.open == []
    for text in ("clicktower · report of a run", "Highest NDCG@10: Hybrid", "What became of every line", "Ranking"):
        assert text in run.words
    ids = [attributes["id"] for _, attributes in run.elements if "id" in attributes]
    assert len(ids) == len(set(ids))


@pytest.mark.slow
def test_the_page_replaces_an_older_one(tmp_path):
    path = tmp_path / "below" / "compare.html"
    write_page(str(path), comparison_page(sample_result(sample_comparison("bm25"))))
    write_page(str(path), comparison_page(sample_result()))
    assert path.read_text(encoding="utf-8") == html_of(sample_comparison())
