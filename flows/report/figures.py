"""Figures as inline SVG, drawn by matplotlib, which is loaded when the first one is drawn.

Colours are names of the style sheet, so a figure follows the page into dark mode; a table beside it has the numbers,
and each figure has a label that says what it shows. Equal values give equal bytes.
"""

from __future__ import annotations

import hashlib
import io
import math
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from markupsafe import Markup, escape

from clicktower.flows.report.blocks import Picture, visible

WIDE, HALF = 920, 520  # pixels of a single figure and of one of two
SERIES = ("ours", "dropped", "other")
NAMES = ("ink", "quiet", "grid", "line", "plain", "card", "unreadable", "kept", *SERIES)
COLOUR = {name: f"#fe{number:02x}01" for number, name in enumerate(NAMES)}  # placeholders that matplotlib accepts
KINDS = {  # of a dot: (colour, whether it is full)
    "": ("quiet", True), "ours": ("ours", True), "above": ("ours", True), "below": ("unreadable", True),
    "alike": ("quiet", False), "chosen": ("ink", True), "as printed": ("ours", True), "tuned": ("dropped", True),
    "there": ("other", False), "first": ("ours", True), "others": ("dropped", True),
}  # fmt: skip


def new_figure(width: float, height: float, layout: str | None = "constrained") -> Any:
    """An empty figure of this size in pixels."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width / 72, height / 72), dpi=72, layout=layout)  # type: ignore[arg-type]


def figure_block(draw: Callable[[], Any], label: str, kind: str = "figure") -> Markup:
    """The figure that `draw` returns, as an element of a page."""
    import matplotlib

    style: Any = {
        "svg.fonttype": "none", "svg.hashsalt": "clicktower", "text.parse_math": False, "font.size": 12,
        "text.color": COLOUR["ink"], "axes.edgecolor": COLOUR["line"], "axes.labelcolor": COLOUR["quiet"],
        "xtick.color": COLOUR["quiet"], "ytick.color": COLOUR["quiet"], "grid.color": COLOUR["grid"],
        "axes.grid": True, "axes.axisbelow": True, "axes.facecolor": "none", "figure.facecolor": "none",
        "axes.spines.top": False, "axes.spines.right": False, "axes.spines.left": False, "axes.unicode_minus": True,
        "xtick.bottom": False, "ytick.left": False, "lines.linewidth": 2, "legend.frameon": False,
        "axes.formatter.useoffset": False,
    }  # fmt: skip
    file = io.StringIO()
    with matplotlib.rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # the browser has its own fonts
        figure = draw()
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    width, height = figure.get_size_inches() * 72
    marks = file.getvalue().partition("</defs>")[2].rpartition("</svg>")[0]  # without a style for the whole page
    for pattern, instead in (
        (r"\s+", " "), (r' id="(?![mp][0-9a-f]{10}")[^"]*"', ""), ("<g ?/>", ""), (r" ?(</?g>|/>) ?", r"\1"),
        (r"font-family: [^;\"]*; ", ""), (r' transform="rotate\(-0 [^"]*"', ""), ("xlink:href", "href"),
    ):  # fmt: skip
        marks = re.sub(pattern, instead, marks)
    marks = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\.\d\d)\d+", r"\1", tag[0]), marks)
    marks = re.sub(r"#fe(\w\w)01", lambda match: f"var(--{NAMES[int(match[1], 16)]})", marks)
    # A figure's definitions share the page's namespace.
    prefix = hashlib.sha256((label + marks).encode()).hexdigest()[:8]
    marks = re.sub(r'(id="|#)([mp][0-9a-f]{10})', rf"\g<1>f{prefix}\2", marks)
    head = f'<svg class="{kind}" viewBox="0 0 {width:.0f} {height:.0f}" style="width:{width:.0f}px"'
    return Markup(f'{head} role="img" aria-label="{escape(visible(label))}">{visible(marks)}</svg>')


# Lines over epochs: what was measured after each, and what every step did.


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A line through its points (epoch, value), in order; values that are None or not finite are left out.

    band: (epoch, low, high) around it. dots: marked points; the last of them, or of the line, is its end. aside: thin,
    without a dot or a name, one of many behind the others.
    """

    name: str
    points: Sequence[tuple[float, float | None]]
    band: Sequence[tuple[float, float, float]] = ()
    dots: Sequence[tuple[float, float | None]] = ()
    aside: bool = False

    @property
    def drawn(self) -> list[tuple[float, float]]:
        return _finite(self.points)

    @property
    def marked(self) -> list[tuple[float, float]]:
        return _finite(self.dots) or self.drawn[-1:]


def line_chart(
    lines: Sequence[Line],
    label: str,
    *,
    log: bool = False,
    most: float = math.inf,
    level: tuple[str, float] | None = None,
    show: Callable[[float], str] = "{:.3f}".format,
    along: str = "epoch",
) -> Markup:
    """The figure, with each line's name and end above it; empty if there is nothing to draw.

    log: a logarithmic scale, if all values allow it. most: an upper bound of all values. level: a name and a value to
    compare the lines with. show: formats a value beside the name of its line.
    """
    lines = [line for line in lines if line.drawn]
    if not lines:
        return Markup("")
    named = [line for line in lines if not line.aside]

    def draw() -> Any:
        from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

        figure = new_figure(HALF, 290)
        axes = figure.add_subplot()
        if log and min(value for line in lines for _, value in [*line.drawn, *line.marked]) > 0:
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=8))
            axes.yaxis.set_minor_locator(NullLocator())
        for line in lines:
            if line.aside:
                axes.plot(*zip(*line.drawn, strict=True), color=COLOUR["plain"], lw=1, alpha=0.7)
        for line, name in zip(named, SERIES, strict=False):
            colour = COLOUR[name]
            if line.band:
                axes.fill_between(*zip(*line.band, strict=True), color=colour, alpha=0.16, lw=0)
            axes.plot(*zip(*line.drawn, strict=True), color=colour, label=f"{line.name} {show(line.marked[-1][1])}")
            size = 6 if len(line.marked) <= 30 else 4
            axes.plot(*zip(*line.marked, strict=True), "o", color=colour, ms=size, mec="none")
        if level:
            axes.axhline(level[1], color=COLOUR["quiet"], ls=":", lw=1.4, label=f"{level[0]} {show(level[1])}")
        axes.margins(x=0.02)
        axes.set_xlabel(along)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=along == "epoch"))
        if math.isfinite(most):
            axes.set_yticks([tick for tick in axes.get_yticks() if tick <= most], minor=False)
            low, high = axes.get_ylim()
            axes.set_ylim(low, min(high, most + 0.02 * (high - low)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
        if named or level:
            figure.legend(loc="outside upper left", ncols=len(named) + bool(level), handlelength=1.4, columnspacing=1.4)
        return figure

    text = "; ".join(f"{line.name} from {show(line.drawn[0][1])} to {show(line.marked[-1][1])}" for line in named)
    return figure_block(draw, f"{label}: {text}", "curves")


def _finite(points: Iterable[tuple[float, float | None]]) -> list[tuple[float, float]]:
    return [(epoch, value) for epoch, value in points if value is not None and math.isfinite(value)]


# Rows by their names, each with dots on one scale, and intervals as whiskers: means, differences, parts of queries.


STRETCH = 2.0  # the factor by which aloof rows may lengthen the scale
APART = 9.0  # pixels between the dots of one row, if they are on separate lines


@dataclass(frozen=True, kw_only=True, slots=True)
class Dot:
    """low, high: the ends of its whisker, if it has one. kind: one of KINDS."""

    value: float
    low: float | None = None
    high: float | None = None
    kind: str = ""

    @property
    def ends(self) -> tuple[float, float]:
        return (self.value if self.low is None else self.low, self.value if self.high is None else self.high)


@dataclass(frozen=True, kw_only=True, slots=True)
class ChartRow:
    """remark: text at its right. ours: the row to look at first. aloof: it may stretch the scale to at most twice its
    length, so that the others are not compressed; values off the scale are arrows at its edge.
    """

    name: str
    dots: Sequence[Dot]
    remark: str = ""
    ours: bool = False
    aloof: bool = False


def dot_of(value: Mapping[str, float], kind: str = "") -> Dot:
    """A dot of {"mean", "low", "high"}, or of one whose mean is called "value"."""
    return Dot(value=value["mean" if "mean" in value else "value"], low=value["low"], high=value["high"], kind=kind)


def row_chart(
    rows: Sequence[ChartRow], label: str, *, width: float = HALF, level: float | None = None, joined: bool = False
) -> Markup:
    """The figure; empty without a dot.

    level: a value to compare all with, as a vertical line. joined: the dots of a row lie on one line, joined by a
    stroke; otherwise one below the other.
    """
    rows = [row for row in rows if row.dots]
    if not rows:
        return Markup("")
    low, high = scale_of(rows, level)
    row_height = 26 if joined else 17 + APART * max(len(row.dots) for row in rows)

    def draw() -> Any:
        figure = new_figure(width, row_height * len(rows) + 34)
        axes = figure.add_subplot()
        axes.set_xlim(low, high)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.grid(False, axis="y")
        names = [shorten(row.name, 36 if width == WIDE else 26) for row in rows]
        for tick, row in zip(axes.set_yticks(range(len(rows)), names), rows, strict=True):
            tick.label1.set(color=COLOUR["ink"], fontweight="bold" if row.ours else "normal")
        if level is not None:
            axes.axvline(level, color=COLOUR["quiet"], ls=":", lw=1.4)
        for place, row in enumerate(rows):
            axes.text(1.02, place, row.remark, transform=axes.get_yaxis_transform(), va="center",
                      fontweight="bold" if row.ours else "normal")  # fmt: skip
            inside = [dot for dot in row.dots if low <= dot.value <= high]
            if joined and len(inside) > 1:
                axes.hlines(place, min(d.value for d in inside), max(d.value for d in inside), COLOUR["plain"])
            for number, dot in enumerate(row.dots):
                at = place if joined else place + APART / row_height * (number - (len(row.dots) - 1) / 2)
                _dot(axes, dot, at, (low, high), "ours" if row.ours and not dot.kind else dot.kind)
        return figure

    text = ", ".join(f"{row.name} {row.remark}".rstrip() for row in rows)
    return figure_block(draw, f"{label}: {text}", "whiskers")


def scale_of(rows: Sequence[ChartRow], level: float | None = None) -> tuple[float, float]:
    """The ends of the scale: of all rows, or without the aloof ones if they would stretch it, plus some margin."""
    near = [end for row in rows if not row.aloof for dot in row.dots for end in dot.ends]
    every = [end for row in rows for dot in row.dots for end in dot.ends]
    edges = every if not near or max(every) - min(every) <= STRETCH * (max(near) - min(near)) else near
    edges = edges if level is None else [*edges, level]
    low, high = min(edges), max(edges)
    room = 0.04 * (high - low) or 0.5 * (abs(high) or 1)
    return low - room, high + room


def _dot(axes: Any, dot: Dot, at: float, scale: tuple[float, float], kind: str) -> None:
    """A dot with its whisker, or an arrow at the edge of the scale."""
    (low, high), (name, full) = scale, KINDS[kind]
    if not low <= dot.value <= high:
        edge, arrow = (low, "<") if dot.value < low else (high, ">")
        axes.plot([edge], [at], arrow, color=COLOUR[name], ms=7, mec="none", clip_on=False)
        return
    start, end = (min(max(edge, low), high) for edge in dot.ends)
    ends = [[dot.value - start], [end - dot.value]] if start != end else None
    axes.errorbar([dot.value], [at], xerr=ends, fmt="o", ms=8, capsize=4, elinewidth=2, color=COLOUR[name],
                  mfc=COLOUR[name if full else "card"], mec=COLOUR[name], mew=1.6)  # fmt: skip


def interval_pictures(
    systems: Mapping[str, Mapping[str, Mapping[str, float]]],
    names: Mapping[str, str],
    titles: Mapping[str, str],
    *,
    ours: Collection[str] = ("model",),
    remark: str = "",
    level_of: str = "",
) -> list[Picture]:
    """A picture for each measure of `titles`, a row for each system. level_of: the system whose value is the line."""
    pictures = []
    for measure, title in titles.items():
        values = {system: dot_of(measures[measure]) for system, measures in systems.items() if measure in measures}
        rows = [
            ChartRow(name=names[system], dots=[dot], remark=f"{dot.value:.3f}", ours=system in ours)
            for system, dot in values.items()
        ]
        level = values[level_of].value if level_of in values else None
        pictures.append(Picture(title=title, remark=remark, picture=partial(row_chart, rows, title, level=level)))
    return pictures


def shorten(name: str, chars: int = 15) -> str:
    """Foreign text as a name in a figure, cut to at most `chars` characters."""
    name = visible(name)
    return name if len(name) <= chars else f"{name[: chars - 1].rstrip()}…"
