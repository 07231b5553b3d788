"""A comparison in a terminal: the answer, a table that 80 columns hold, rows as they end, and no foreign controls."""

import io
from types import SimpleNamespace as Namespace
from typing import Any

import pytest
from rich.console import Console

from clicktower.flows.commands import compare
from clicktower.flows.commands.compare import row_line, show
from clicktower.flows.report.comparison_page import comparison_blocks
from clicktower.flows.show import console as shown
from clicktower.flows.show import present
from tests.training.evaluation.sample_comparison import sample_comparison, sample_result, without


def show_comparison(comparison: dict[str, Any]) -> None:
    shown.show(comparison_blocks(comparison))


@pytest.fixture(params=[80, 100])
def told(monkeypatch, request):
    """What is printed on a terminal of 80 and of 100 columns, stderr and stdout together."""
    return _caught(monkeypatch, request.param)


def _caught(monkeypatch, width: int) -> io.StringIO:
    stream = io.StringIO()
    console = Console(file=stream, highlight=False, width=width, color_system=None)
    monkeypatch.setattr(shown, "errors", console)
    monkeypatch.setattr(present, "errors", console)
    for module in (present, compare, shown):
        monkeypatch.setattr(module, "output", console)
    return stream


def ended(name: str, state: str, ndcg: float | None = None, reused: bool = False, **more) -> Any:
    """What `row_line` reads of an ended row."""
    metrics = {} if ndcg is None else {"ndcg@10": ndcg}
    more = {"seconds": 0.0, "why": None} | more
    return Namespace(row=Namespace(name=name), state=state, metrics=metrics, result=Namespace(reused=reused), **more)


def lines_of(told: io.StringIO) -> list[str]:
    return [line.rstrip() for line in told.getvalue().splitlines()]


def test_the_answer_stands_above_the_table(told):
    show(sample_result())
    words = " ".join(told.getvalue().split())
    assert words.startswith("✓ compare 4210.0 s 16 of 18 rows; highest NDCG@10 0.868 (Hybrid: LSTM")
    assert words.index("Highest NDCG@10: Hybrid") < words.index("NDCG@1 NDCG@3 NDCG@10")
    assert words.endswith("/tmp/store/compare/0f3a9c")


def test_a_row_keeps_its_figures_whole(told):
    show(sample_result())
    lines = [line.split()[6:] for line in lines_of(told) if line.startswith("LSTM, 96 cells, n = 4 ")]
    # 0.664 + 1.8 · 0.007, 0.696 + 0.0126, 0.851 + 0.007; the paper's 43.6 - 38.8
    assert lines == [
        ["0.677", "***", "0.709", "***", "0.858", "***", "+0.007", "***"], ["0.436", "0.858", "+0.048", "+0.007"]
    ]  # fmt: skip
    assert "0.846–0.870" in told.getvalue()
    width = shown.output.width
    assert all(len(line) <= width for line in lines_of(told)[1:-1])  # of stderr, and the path, are not wrapped


def test_on_a_narrow_terminal_titles_give_way_and_figures_do_not(monkeypatch):
    told = _caught(monkeypatch, 64)
    show_comparison(sample_comparison())
    for figure in ("0.677 ***", "0.709 ***", "0.858 ***", "+0.007 ***", "0.846–0.870"):
        assert figure in told.getvalue()


def test_rows_without_figures_stand_in_their_place_and_say_why(told):
    show_comparison(sample_comparison())
    text = told.getvalue()
    assert text.rindex("Skip-Thought  ") > text.index("NDCG@1")
    assert "Skip-Thought is empty: no run of its vectors was given" in " ".join(text.split())
    assert "PLSA, 500 topics failed: MemoryError" in " ".join(text.split())


def test_foreign_texts_reach_the_terminal_without_their_controls(told):
    show(sample_result())
    row_line(ended("row \x1b[2J[bold]name", "failed", seconds=1.0, why="it\nbroke \x07"), 1, 2)
    text = told.getvalue()
    assert all(char.isprintable() or char == "\n" for char in text)
    assert "half �[31minch� pipe" in text
    assert "row �[2J[bold]name: failed: it broke �" in text  # neither markup nor a line of its own


def test_another_chosen_row_has_a_column_beside_bm25(told):
    show_comparison(sample_comparison("bm25", "lstm-96", "hybrid") | {"against": "lstm-96", "difference": None})
    assert "− BM25" in told.getvalue()
    assert "NDCG@10 −" in told.getvalue()
    assert "chosen" in told.getvalue()


@pytest.mark.parametrize("comparison", [
    sample_comparison("bm25") | {"difference": None},
    sample_comparison("skip-thought", "plsa-500") | {"difference": None, "measures": []},
    without(sample_comparison("bm25", "lstm-96"), "bm25") | {"against": None, "difference": None},
    sample_comparison("lstm-96-gated", "random") | {"difference": None},
])  # fmt: skip
def test_a_comparison_with_little_in_it_is_shown_too(told, comparison):
    show(sample_result(comparison))
    rows = [row["title"][:8] for row in comparison["rows"]]
    assert all(title in told.getvalue() for title in rows)


def test_a_simulated_log_is_said_to_be_one(told):
    show(sample_result() | {"labels": {"simulated": True}})
    assert "All of this comes from a simulated log." in told.getvalue()


def test_queries_that_moved_most_are_told_with_both_values(told):
    show(sample_result())
    words = " ".join(told.getvalue().split())
    assert "couch beige linen Gained: Hybrid: LSTM, 96 cells, n = 4 with BM25 0.940, BM25 0.310." in words
    assert "Lost: Hybrid: LSTM, 96 cells, n = 4 with BM25 0.220, BM25 0.880." in words


def test_each_row_has_a_line_as_it_ends(told):
    row_line(ended("lstm-96", "done", ndcg=0.85811, seconds=295.0), 3, 18)
    row_line(ended("bm25", "done", ndcg=0.851, reused=True), 4, 18)
    row_line(ended("skip-thought", "empty", why="no weights"), 5, 18)
    row_line(ended("plsa", "failed", seconds=2.0), 6, 18)
    assert [line.split() for line in lines_of(told)] == [
        ["✓", "3/18", "4", "min", "55", "s", "lstm-96:", "NDCG@10", "0.8581"],
        ["✓", "4/18", "reused", "bm25:", "NDCG@10", "0.8510"],
        ["·", "5/18", "skip-thought:", "empty:", "no", "weights"],
        ["✗", "6/18", "2.0", "s", "plsa:", "failed"],
    ]
