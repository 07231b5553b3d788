"""Each block says the same in HTML, Markdown and a terminal, and no foreign text becomes markup in any of them."""

import io
import re

import pytest
from markupsafe import Markup
from rich.console import Console

from clicktower.flows.report.blocks import (
    Beside,
    Block,
    Cell,
    Code,
    Heading,
    Items,
    Page,
    Picture,
    Section,
    Table,
    Text,
    Words,
    html,
    ranking_table,
)
from clicktower.flows.report.markdown import markdown
from clicktower.flows.show import console
from tests.flows.report.test_report import Page as Seen
from tests.flows.report.test_report import loads_nothing

NASTY = "<script>[bold]|*x*\x1b[2J\u202e"
SEEN = "<script>[bold]|*x*�[2J�"  # what is left of it as text

BLOCKS: list[tuple[Block, list[str]]] = [
    (Text(text="a sentence", tone="better"), ["a sentence"]),
    (Heading(text="a heading"), ["a heading"]),
    (Items(items=["one", "two"], tone="alarm"), ["one", "two"]),
    (Code(text="clicktower verify store"), ["clicktower verify store"]),
    (Words(words=[("angle", 0, False, ""), ("bracket", 5, True, "9 of 10")]), ["angle", "bracket"]),
    (Beside(blocks=[Text(text="left"), Text(text="right")]), ["left", "right"]),
    (Section(title="Folded", folded=True, blocks=[Text(text="inside")]), ["Folded", "inside"]),
    (
        ranking_table("Ours", [{"grade": 3, "title": "angle bracket", "score": 0.9}, {"title": "hose", "score": 0.1}]),
        ["Ours", "3", "angle bracket", "0.900", "–"],
    ),
    (ranking_table("Ours", []), ["Ours", "no result"]),
    (
        Table(
            caption="Means", header=("Row", "NDCG"), groups=[("", 1), ("Here", 1)], strong=[0],
            rows=[["BM25", Cell(text="0.5", aside="0.4–0.6", mark="**", tone="above", share=0.5, shade=0.2)], ["none"]],
        ),
        ["Means", "Row", "NDCG", "Here", "BM25", "0.5", "0.4–0.6", "**", "none"],
    ),
]  # fmt: skip


def page_of(*blocks: Block) -> Page:
    return Page(kind="test", title="A title", blocks=[Section(title="A section", blocks=blocks)])


def in_terminal(monkeypatch, *blocks: Block, width: int = 80) -> str:
    stream = io.StringIO()
    monkeypatch.setattr(console, "output", Console(file=stream, highlight=False, width=width, color_system=None))
    console.show(blocks)
    return stream.getvalue()


@pytest.mark.parametrize(("block", "words"), BLOCKS, ids=lambda value: type(value).__name__)
def test_a_block_says_the_same_everywhere(block, words, monkeypatch):
    page = html(page_of(block))
    loads_nothing(page)
    as_markdown = re.sub(r"\\(.)", r"\1", markdown([block]))
    for word in words:
        assert word in Seen(page).words
        assert word in as_markdown
        assert word in in_terminal(monkeypatch, block)


def test_foreign_texts_stay_texts_everywhere(monkeypatch):
    table = Table(caption=NASTY, header=(NASTY,), rows=[[Cell(text=NASTY, aside=NASTY, tip=NASTY)]])
    words = Words(words=[(NASTY, 1, True, NASTY)])
    blocks = [Text(text=NASTY), table, Items(items=[NASTY]), words, Heading(text=NASTY)]
    page = html(page_of(*blocks))
    loads_nothing(page)
    assert Seen(page).words.count(SEEN) == 8
    output = markdown(blocks)
    assert "<script" not in output
    assert all(char.isprintable() or char == "\n" for char in output)
    shown = in_terminal(monkeypatch, *blocks, width=200)
    assert shown.count(SEEN) == 8
    assert "\x1b" not in shown


def test_a_block_of_one_place_is_shown_there_alone(monkeypatch):
    blocks = [Text(text="for paper", only="page"), Text(text="for screens", only="terminal")]
    page, output = Seen(html(page_of(*blocks))).words, in_terminal(monkeypatch, *blocks)
    assert ("for paper" in page, "for screens" in page) == (True, False)
    assert ("for paper" in output, "for screens" in output) == (False, True)
    assert markdown(blocks) == "for paper"


def test_a_picture_of_which_nothing_came_leaves_no_trace():
    page = html(page_of(Beside(blocks=[Picture(title="Loss", picture=lambda: Markup(""))])))
    assert "Loss" not in page


def test_figures_are_whole_on_a_narrow_terminal(monkeypatch):
    table = Table(caption="c", header=("Row", "Mean"), rows=[["a title of many words", "0.123456789 ***"]])
    assert "0.123456789 ***" in in_terminal(monkeypatch, table, width=24)
