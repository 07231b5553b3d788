"""Blocks in a terminal."""

from collections.abc import Sequence
from textwrap import wrap

from rich.table import Table as Grid
from rich.text import Text as Line

from flows.report.blocks import (
    Beside,
    Block,
    Cell,
    Code,
    Figures,
    Heading,
    Items,
    Section,
    Table,
    Text,
    Words,
    cell,
    shown,
)
from flows.show import console
from training.wording import visible

STYLES = {
    "quiet": "dim", "better": "bold green", "worse": "bold red", "open": "bold yellow", "unknown": "bold",
    "alarm": "yellow", "above": "green", "below": "red", "alike": "dim", "failed": "red",
    "empty": "dim", "kept": "green", "dropped": "yellow", "unreadable": "red", "warn": "bold yellow", "strong": "bold",
}  # fmt: skip
GROUNDS = ("", "black on #d5ecea", "black on #9fd6d1", "black on #5cb8b0", "#ffffff on #258b84", "#ffffff on #0b5f5a")
BAR = 12  # characters of a whole bar
WORDS = 400  # of a text that are shown


def show(blocks: Sequence[Block]) -> None:
    """Print the blocks on stdout."""
    for block in shown(blocks, "terminal"):
        _show(block)


def _show(block: Block) -> None:
    out = console.output.print
    match block:
        case Section():
            out(Line(f"\n{plain(block.title)}", "bold"))
            show(block.blocks)
        case Beside():
            show(block.blocks)
        case Heading():
            out(Line(plain(block.text), "bold"))
        case Text():
            out(Line(plain(block.text), STYLES.get(block.tone, "")))
        case Items():
            for item in block.items:
                out(Line(plain(item), STYLES.get(block.tone, "")))
        case Code():
            out(Line(f"  {plain(block.text)}"), soft_wrap=True)
        case Figures():
            for name, value, remark in block.figures:
                out(Line.assemble(f"{plain(name)} ", (plain(value), "bold"), (f"  {plain(remark)}", "dim")))
        case Words():
            out(_words(block))
        case Table():
            out(_table(block))


def plain(text: str) -> str:
    """Foreign text on one line, without what is not seen and does something."""
    return visible(" ".join(text.split()))


def _words(block: Words) -> Line:
    line = Line("  ")
    for word, shade, marked, _ in block.words[:WORDS]:
        line.append(f" {plain(word)} ", f"{GROUNDS[shade]} bold underline" if marked else GROUNDS[shade])
    left_out = len(block.words) - WORDS
    return line.append(f" … and {left_out:,} words more", "dim") if left_out > 0 else line


def _table(table: Table) -> Grid:
    title = Line(plain(table.caption), "italic") if table.caption else None
    grid = Grid(
        title=title, title_justify="left", box=None, header_style="dim", pad_edge=False,
        show_header=bool(table.header), min_width=min(len(table.caption), console.output.width),
    )  # fmt: skip
    cells = [[cell(value) for value in row] for row in table.rows]
    groups = [name for name, columns in table.groups for _ in range(columns)]
    width = max(map(len, cells), default=0)
    for at in range(width):
        name = " ".join(filter(None, [groups[at] if groups else "", "".join(table.header[at : at + 1])]))
        text = at in table.left or not table.header
        longest = max((len(plain(row[at].text)) + len(row[at].mark) + 1 for row in cells if at < len(row)), default=0)
        # On a narrow terminal texts and the names of columns give way: rich would cut figures too.
        name = plain(name) if text else "\n".join(wrap(plain(name), max(longest, 9)))
        grid.add_column(Line(name), justify="left" if text else "right", overflow="fold", no_wrap=not text)
    beside = sum(max((_length(row[at]) for row in cells if at < len(row)), default=0) + 1 for at in range(width))
    for number, row in enumerate(cells):
        style = "bold" if number in table.strong else ""
        grid.add_row(*(_cell(one, " " if beside <= console.output.width else "\n") for one in row), style=style)
    return grid


def _length(one: Cell) -> int:
    return sum(len(part) + 1 for part in (one.text, one.mark, one.aside) if part) + BAR * (one.share is not None)


def _cell(one: Cell, between: str) -> Line:
    style = STYLES.get(one.tone, "")
    line = Line(plain(one.text), "bold green" if one.strong else "" if one.mark else style)
    if one.shade > 0 and one.text:
        line.stylize(GROUNDS[-(-int(100 * one.shade) // 20) if one.shade < 1 else 5])
    if one.mark:
        line.append(f" {one.mark}", style)
    if one.aside:
        line.append(between + plain(one.aside), "dim")
    if one.share is not None:
        line.append((" " if one.text else "") + ("█" * round(one.share * BAR) or "▏"), style)
    return line
