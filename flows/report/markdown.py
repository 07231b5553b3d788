"""Blocks as Markdown: the pages of a comparison and a sweep, and those of a run in Prefect."""

import re
from collections.abc import Sequence

from clicktower.flows.report.blocks import (
    Beside,
    Block,
    Cell,
    Code,
    Heading,
    Items,
    Page,
    Section,
    Table,
    Text,
    Words,
    cell,
    column_names,
    one_line,
    shown,
    visible,
)


def markdown_page(page: Page) -> str:
    """A whole page in Markdown."""
    parts = [f"# {escaped(page.title)}", escaped(page.lead)]
    parts += [f"**{escaped(bold)}** {escaped(text)}" for bold, text in page.banners]
    return "\n\n".join(filter(None, [*parts, markdown(page.blocks)])) + "\n"


def markdown(blocks: Sequence[Block], depth: int = 2) -> str:
    """The blocks, a heading for each section, without figures, since tables have their numbers."""
    return "\n\n".join(filter(None, (_markdown(block, depth) for block in shown(blocks, "page"))))


def escaped(text: str) -> str:
    """Text that Markdown shows literally: on one line, without markup of its own."""
    html = one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|~#])", r"\\\1", html)


def _markdown(block: Block, depth: int) -> str:
    match block:
        case Section():
            return f"{'#' * depth} {escaped(block.title)}\n\n{markdown(block.blocks, depth + 1)}"
        case Beside():
            return markdown(block.blocks, depth)
        case Heading():
            return f"{'#' * depth} {escaped(block.text)}"
        case Text():
            return f"**{escaped(block.text)}**" if block.tone not in ("", "quiet") else escaped(block.text)
        case Items():
            sign = "⚠ " if block.tone == "alarm" else ""
            return "\n".join(f"- {sign}{escaped(item)}" for item in block.items)
        case Code():
            return f"    {visible(block.text)}"
        case Words():
            return " ".join(f"**{escaped(word)}**" if marked else escaped(word) for word, _, marked, _ in block.words)
        case Table():
            return _markdown_table(block)
    return ""


def _markdown_table(table: Table) -> str:
    width = max(map(len, [table.header, *table.rows]))
    header = [": ".join(filter(None, pair)) for pair in column_names(table, width)]
    left = table.left if table.header else range(width)
    lines = [escaped(table.caption), "", f"| {' | '.join(map(escaped, header))} |"]
    lines += [f"|{'|'.join('---' if at in left else '---:' for at in range(width))}|"]
    for row in table.rows:
        cells = [_markdown_cell(cell(value)) for value in row]
        lines.append(f"| {' | '.join([*cells, *[''] * (width - len(cells))])} |")
    return "\n".join(lines)


def _markdown_cell(cell: Cell) -> str:
    text, aside = escaped(cell.text), cell.aside or cell.tip
    text = f"**{text}**" if cell.strong else text
    return " ".join(filter(None, [text, escaped(cell.mark), f"({escaped(aside)})" if aside else ""]))
