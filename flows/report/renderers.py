"""Blocks as a page of HTML and in a terminal (markdown: as Markdown). Foreign texts cannot break out of any of them."""

from collections.abc import Iterator, Sequence
from importlib import resources
from textwrap import wrap

from rich.table import Table as Grid
from rich.text import Text as Line

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
    visible,
)
from clicktower.schemas import storage


def shown(blocks: Sequence[Block], where: str) -> list[Block]:
    """The blocks of a page or of a terminal."""
    return [block for block in blocks if block.only in ("", where)]


def cell(value: Cell | str) -> Cell:
    """A cell as plain text."""
    return value if isinstance(value, Cell) else Cell(text=value)


def html(page: Page) -> str:
    """The page: one file that contains its style and figures, loads nothing and runs nothing."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    def harmless(value: object) -> object:
        return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    pages = Environment(
        loader=PackageLoader("clicktower.flows", "report"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, finalize=harmless,
    )  # fmt: skip
    pages.filters["cell"] = cell
    pages.filters["of_page"] = lambda blocks: shown(blocks, "page")
    style = Markup((resources.files("clicktower.flows.report") / "page.css").read_text(encoding="utf-8"))
    return pages.get_template("page.html").render(page=page, style=style)


def write_page(path: str, page: Page) -> None:
    """Write the page, replacing an older one completely. Raises OSError if it cannot be written."""
    storage.write_atomic(path, html(page).encode("utf-8"))


def one_line(text: str) -> str:
    """Foreign text on one line, without invisible characters that have effects."""
    return visible(" ".join(text.split()))


def column_names(table: Table, width: int) -> list[tuple[str, str]]:
    """(group, name) of each column; both may be empty."""
    groups = [name for name, columns in table.groups for _ in range(columns)]
    return list(zip(groups or [""] * width, table.header or [""] * width, strict=True))


STYLES = {
    "quiet": "dim", "better": "bold green", "worse": "bold red", "open": "bold yellow", "unknown": "bold",
    "alarm": "yellow", "above": "green", "below": "red", "alike": "dim", "failed": "red", "empty": "dim",
    "kept": "green", "dropped": "yellow", "unreadable": "red", "warn": "bold yellow", "strong": "bold",
}  # fmt: skip
GROUNDS = ("", "black on #d5ecea", "black on #9fd6d1", "black on #5cb8b0", "#ffffff on #258b84", "#ffffff on #0b5f5a")
BAR = 12  # characters of a whole bar
WORDS = 400  # shown words of a text


def terminal(blocks: Sequence[Block], width: int) -> Iterator[Line | Grid]:
    """What to print for the blocks in a terminal of this width."""
    for block in shown(blocks, "terminal"):
        match block:
            case Section():
                yield Line(f"\n{one_line(block.title)}", "bold")
                yield from terminal(block.blocks, width)
            case Beside():
                yield from terminal(block.blocks, width)
            case Heading():
                yield Line(one_line(block.text), "bold")
            case Text():
                yield Line(one_line(block.text), STYLES.get(block.tone, ""))
            case Items():
                yield from (Line(one_line(item), STYLES.get(block.tone, "")) for item in block.items)
            case Code():
                yield Line(f"  {one_line(block.text)}", no_wrap=True, overflow="ignore")
            case Words():
                yield _words(block)
            case Table():
                yield _grid(block, width)


def _words(block: Words) -> Line:
    line = Line("  ")
    for word, shade, marked, _ in block.words[:WORDS]:
        line.append(f" {one_line(word)} ", f"{GROUNDS[shade]} bold underline" if marked else GROUNDS[shade])
    left_out = len(block.words) - WORDS
    return line.append(f" … and {left_out:,} words more", "dim") if left_out > 0 else line


def _grid(table: Table, width: int) -> Grid:
    title = Line(one_line(table.caption), "italic") if table.caption else None
    grid = Grid(
        title=title, title_justify="left", box=None, header_style="dim", pad_edge=False,
        show_header=bool(table.header), min_width=min(len(table.caption), width),
    )  # fmt: skip
    rows = [[cell(value) for value in row] for row in table.rows]
    columns = max(map(len, [table.header, *rows]))
    needed = 0
    for at, pair in enumerate(column_names(table, columns)):
        name, column = one_line(" ".join(filter(None, pair))), [row[at] for row in rows if at < len(row)]
        text = at in table.left or not table.header
        # On a narrow terminal texts and column names shrink: rich would shrink figures too.
        longest = max((len(one_line(entry.text)) + len(entry.mark) + 1 for entry in column), default=0)
        name = name if text else "\n".join(wrap(name, max(longest, 9)))
        grid.add_column(Line(name), justify="left" if text else "right", overflow="fold", no_wrap=not text)
        needed += max(map(_length, column), default=0) + 1
    for number, row in enumerate(rows):
        style = "bold" if number in table.strong else ""
        grid.add_row(*(_line(entry, " " if needed <= width else "\n") for entry in row), style=style)
    return grid


def _length(cell: Cell) -> int:
    return sum(len(part) + 1 for part in (cell.text, cell.mark, cell.aside) if part) + BAR * (cell.share is not None)


def _line(cell: Cell, between: str) -> Line:
    style = STYLES.get(cell.tone, "")
    line = Line(one_line(cell.text), "bold green" if cell.strong else "" if cell.mark else style)
    if cell.shade > 0 and cell.text:
        line.stylize(GROUNDS[min(5, -(-int(100 * cell.shade) // 20))])
    if cell.mark:
        line.append(f" {cell.mark}", style)
    if cell.aside:
        line.append(between + one_line(cell.aside), "dim")
    if cell.share is not None:
        line.append((" " if cell.text else "") + ("█" * round(cell.share * BAR) or "▏"), style)
    return line
