"""What a person sees: a result becomes blocks once, which are shown as HTML, in a terminal and as Markdown (markdown).

Any text may be foreign (a title, a query): it stays text, and cannot break out of any of them.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from textwrap import wrap
from typing import Any

from markupsafe import Markup
from rich.table import Table as Grid
from rich.text import Text as Line

from clicktower.schemas import storage


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One cell of a table.

    aside: in small type below or beside it, such as an interval. mark: a sign after it, coloured by `tone`. tone: a
    class of page.css, with the same colour in a terminal. strong: for example the best of its column. share: from 0 to
    1, as a bar. shade: from -1 to 1, the background. tip: an aside that a page shows when the pointer is on the cell.
    """

    text: str = ""
    aside: str = ""
    mark: str = ""
    tone: str = ""
    strong: bool = False
    share: float | None = None
    shade: float = 0.0
    tip: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """only: page (HTML and Markdown) or terminal; empty: everywhere."""

    only: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Text(Block):
    """tone: quiet, or that of an outcome: better, worse, open, unknown."""

    text: str
    tone: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Heading(Block):
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Items(Block):
    """Sentences, one per line. tone: as of a Text, or alarm."""

    items: Sequence[str]
    tone: str = "quiet"


@dataclass(frozen=True, kw_only=True, slots=True)
class Code(Block):
    """A command to type."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Words(Block):
    """A text, word by word: (word, shade from 0 to 5, whether it is marked, tooltip)."""

    words: Sequence[tuple[str, int, bool, str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture(Block):
    """A figure, in HTML only: a table has its numbers too. It is drawn when a page is rendered, and left out if there
    is nothing to draw. legend: (tone, words).
    """

    title: str = ""
    picture: Callable[[], Markup]
    remark: str = ""
    legend: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Beside(Block):
    """Blocks side by side if there is room; natural: each with its own width, otherwise two columns."""

    blocks: Sequence[Block]
    natural: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Table(Block):
    """caption: its title. header: one name per column, none for a table of names and values. groups: of columns, (name,
    how many columns). left: text columns; the others hold numbers. strong: rows to look at first.
    """

    caption: str
    header: Sequence[str] = ()
    rows: Sequence[Sequence[Cell | str]]
    groups: Sequence[tuple[str, int]] = ()
    left: Collection[int] = (0,)
    strong: Collection[int] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Section(Block):
    """folded: closed on a page until the reader opens it."""

    title: str
    blocks: Sequence[Block]
    folded: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """banners: statements about the whole page, (in bold, the rest)."""

    kind: str
    title: str
    lead: str = ""
    banners: Sequence[tuple[str, str]] = ()
    blocks: Sequence[Block]


BY_CLICKS = (
    "Judged by clicks.",
    "The grades below were derived from clicks, corrected for where documents were shown. No judge gave them, and where"
    " clicks are few they lean to the logged order.",
)
SIMULATED = (
    "Simulated.",
    "This log was made by a program. No figure below says anything about real people, products or search engines.",
)
GAINS = {"exponential": "2^grade - 1", "linear": "the grade"}
GRADES = {0: "Bad", 1: "Fair", 2: "Good", 3: "Excellent"}


def ranking_table(name: str, documents: Sequence[Mapping[str, Any]]) -> Table:
    """A ranking, best first: {"title", "score", "grade"} of each document; the grade is None without a judgment."""
    if not documents:
        return Table(caption=name, rows=[["no result"]])
    rows = [
        [grade_cell(document.get("grade")), document["title"], Cell(text=f"{document['score']:.3f}", tone="quiet")]
        for document in documents
    ]
    return Table(caption=name, header=("Grade", "Title", "Score"), rows=rows, left=(0, 1))


def grade_cell(grade: int | None) -> Cell:
    """A grade in its colour; – for a document without a judgment."""
    return Cell(text="–" if grade is None else str(grade), tone=f"grade g{grade}" if grade in GRADES else "grade gx")


def grade_legend(click_derived: bool) -> Text:
    """What the grades of rankings mean."""
    names = ", ".join(f"{grade} {GRADES[grade]}" for grade in sorted(GRADES, reverse=True))
    by = "derived from clicks" if click_derived else "by judges"
    return Text(text=f"Grades {by}: {names}, – not judged.", tone="quiet")


def measurement_blocks(metrics: Mapping[str, Any]) -> list[Block]:
    """How a comparison or an evaluation was measured."""
    uniform = metrics["n"] - metrics["n_informative"]
    facts = [
        f"{quantity(metrics['n'], 'query')}"
        + (f", of which {uniform:,} cannot tell rankings apart: their documents have one grade." if uniform else "."),
        f"Gain: {GAINS[metrics['gain']]}. Intervals: {metrics['confidence']:.0%}.",
    ]
    rules = [sentence(f"{name.replace('_', ' ')}: {rule}") for name, rule in metrics["rules"].items()]
    return [Items(items=facts), Items(items=rules, only="page")]


def num_compared(rows: Sequence[Mapping[str, Any]]) -> int:
    """The number of watched figures that have a usual value, from earlier runs."""
    return sum(row["usual"] != "—" for row in rows)


def record(settings: Mapping[str, Any], software: Mapping[str, str], outputs: Sequence[Sequence[str]] = ()) -> Section:
    """Which output was made from which, for the record."""
    tables: dict[str, tuple[Sequence[str], Iterable[Iterable[str]]]] = {
        "Outputs": (("Stage", "Digest", "Path"), outputs),
        "Settings": (("Name", "Value"), [(name, "—" if v is None else str(v)) for name, v in settings.items()]),
        "Versions": (("Name", "Value"), software.items()),
    }
    return Section(
        title="For the record",
        blocks=[
            Section(title=name, folded=True, blocks=[Table(caption=name, header=header, rows=rows, left=range(3))])
            for name, (header, values) in tables.items()
            if (rows := [[*row] for row in values])
        ],
    )


def quantity(count: int, thing: str) -> str:
    """1 row, 2 rows, 3 queries."""
    many = f"{thing[:-1]}ies" if thing.endswith("y") else f"{thing}s"
    return f"{count:,} {thing if count == 1 else many}"


def capital(text: str) -> str:
    """The text with a capital letter, unless it starts with the name of a quantity: p."""
    return text if text[1:2] in ("", ":") else text[0].upper() + text[1:]


def sentence(text: str) -> str:
    """The text with a capital letter and a full stop."""
    return capital(text) + ("" if text.endswith((".", "!", "?")) else ".")


def duration(seconds: float | None) -> str:
    """A duration as people say it: 0.4 s, 12 s, 3 min 05 s, 2 h 10 min."""
    if seconds is None:
        return "—"
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, remainder = divmod(round(seconds), 60)
    if not minutes:
        return f"{remainder} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {remainder:02d} s"


def visible(text: str) -> str:
    """Foreign text without invisible characters that have effects: control characters, and marks that change the
    direction of writing. Joiners stay: scripts and emoji need them.
    """
    return "".join(char if char.isprintable() or char in "\u200c\u200d" else "�" for char in text)


def shown(blocks: Sequence[Block], where: str) -> list[Block]:
    """The blocks of a page or of a terminal."""
    return [block for block in blocks if block.only in ("", where)]


def cell(value: Cell | str) -> Cell:
    """A cell as plain text."""
    return value if isinstance(value, Cell) else Cell(text=value)


def html(page: Page) -> str:
    """The page: one file that contains its style and figures, loads nothing and runs nothing."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

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
