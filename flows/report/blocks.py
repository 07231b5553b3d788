"""What a person sees: a result becomes blocks once, and renderers.py shows them as HTML, as Markdown and in a terminal.
Any text may be foreign (a title, a query): the renderers ensure that it stays text.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup


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


def finding_rows(lead: Sequence[Cell | str], text: Cell | str, fix: str) -> list[list[Cell | str]]:
    """The rows of a finding: what is wrong, and below it what to do, if anything."""
    rows: list[list[Cell | str]] = [[*lead, text]]
    return [*rows, [*[""] * len(lead), f"→ {fix}"]] if fix else rows


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
    has_colour = grade is not None and grade in GRADES
    return Cell(text="–" if grade is None else str(grade), tone=f"grade g{grade}" if has_colour else "grade gx")


def grade_legend(click_derived: bool) -> Text:
    """What the grades of rankings mean."""
    names = ", ".join(f"{grade} {GRADES[grade]}" for grade in sorted(GRADES, reverse=True))
    by = "derived from clicks" if click_derived else "by judges"
    return Text(text=f"Grades {by}: {names}, – not judged.", tone="quiet")


def record(settings: Mapping[str, Any], software: Mapping[str, str], outputs: Sequence[Sequence[str]] = ()) -> Section:
    """Which output was made from which, for the record."""
    tables: list[tuple[str, Sequence[str], list[list[Any]]]] = [
        ("Outputs", ("Stage", "Digest", "Path"), [list(row) for row in outputs]),
        (
            "Settings",
            ("Name", "Value"),
            [[name, "—" if value is None else str(value)] for name, value in settings.items()],
        ),
        ("Versions", ("Name", "Value"), [[*row] for row in software.items()]),
    ]
    return Section(
        title="For the record",
        blocks=[
            Section(title=name, folded=True, blocks=[Table(caption=name, header=header, rows=rows, left=range(3))])
            for name, header, rows in tables
            if rows
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
