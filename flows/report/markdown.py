"""Blocks as Markdown. Titles, queries and reasons are foreign text and cannot break it."""

import re
from collections.abc import Sequence

from flows.report.blocks import (
    Beside,
    Block,
    Cell,
    Code,
    Figures,
    Heading,
    Items,
    Page,
    Section,
    Table,
    Text,
    Words,
    cell,
    shown,
)
from training.wording import visible


def render(blocks: Sequence[Block], depth: int = 2) -> str:
    """The blocks, a heading for each section; figures are left out, since their numbers stand in tables."""
    return "\n\n".join(filter(None, (_block(block, depth) for block in shown(blocks, "page"))))


def page(shown_page: Page) -> str:
    """A whole page."""
    parts = [f"# {escaped(shown_page.title)}", escaped(shown_page.lead)]
    parts += [f"**{escaped(bold)}** {escaped(text)}" for bold, text in shown_page.banners]
    return "\n\n".join(filter(None, [*parts, render(shown_page.blocks)])) + "\n"


def escaped(text: str) -> str:
    """Text that Markdown shows as it is: on one line, without markup of its own."""
    one_line = visible(" ".join(text.split()))
    html = one_line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|~#])", r"\\\1", html)


def _block(block: Block, depth: int) -> str:
    match block:
        case Section():
            return f"{'#' * depth} {escaped(block.title)}\n\n{render(block.blocks, depth + 1)}"
        case Beside():
            return render(block.blocks, depth)
        case Heading():
            return f"{'#' * depth} {escaped(block.text)}"
        case Text():
            return f"**{escaped(block.text)}**" if block.tone not in ("", "quiet") else escaped(block.text)
        case Items():
            sign = "⚠ " if block.tone == "alarm" else ""
            return "\n".join(f"- {sign}{escaped(item)}" for item in block.items)
        case Code():
            return f"    {visible(block.text)}"
        case Figures():
            return "\n".join(f"- {escaped(f'{name}: {value}, {remark}')}" for name, value, remark in block.figures)
        case Words():
            return " ".join(f"**{escaped(word)}**" if marked else escaped(word) for word, _, marked, _ in block.words)
        case Table():
            return _table(block)
    return ""


def _table(table: Table) -> str:
    """Groups of columns stand before the names of their columns."""
    groups = [name for name, columns in table.groups for _ in range(columns)]
    header = list(table.header) or [""] * max(len(row) for row in table.rows)
    header = [": ".join(filter(None, pair)) for pair in zip(groups or [""] * len(header), header, strict=True)]
    left = range(len(header)) if not table.header else table.left
    lines = [escaped(table.caption), "", f"| {' | '.join(map(escaped, header))} |"]
    lines += [f"|{'|'.join('---' if at in left else '---:' for at in range(len(header)))}|"]
    for row in table.rows:
        cells = [_cell(cell(value)) for value in row]
        lines.append(f"| {' | '.join([*cells, *[''] * (len(header) - len(cells))])} |")
    return "\n".join(lines)


def _cell(one: Cell) -> str:
    text, aside = escaped(one.text), one.aside or one.tip
    text = f"**{text}**" if one.strong else text
    return " ".join(filter(None, [text, escaped(one.mark), f"({escaped(aside)})" if aside else ""]))
