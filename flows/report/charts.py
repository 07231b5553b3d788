"""The pictures of a run: the DAG of its stages, means with whiskers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup, escape

from flows.report.summary import StageSummary
from flows.report.svg import scale, svg, ticks_around
from training.wording import duration, visible

EDGES = (
    ("ingest", "build"), ("build", "train"), ("train", "evaluate"), ("evaluate", "publish"), ("train", "publish"),
    ("build", "compare"),
)  # fmt: skip
_BOX_WIDTH, _BOX_HEIGHT, _GAP = 148, 78, 40


def dag(stages: Sequence[StageSummary], *, upright: bool) -> Markup:
    """The stages as boxes and what each takes from another as arrows; upright for narrow screens."""
    top = 8 if upright else 34
    at = {
        stage.name: (60, top + i * (_BOX_HEIGHT + _GAP)) if upright else (4 + i * (_BOX_WIDTH + _GAP), top)
        for i, stage in enumerate(stages)
    }
    edges = [edge for edge in EDGES if edge[0] in at and edge[1] in at]
    if not edges:
        edges = [(a.name, b.name) for a, b in pairwise(stages)]
    longest = max((stage.duration_seconds or 0 for stage in stages), default=0) or 1
    marks = [_arrow(at[a], at[b], upright) for a, b in edges]
    marks += [_stage_box(stage, *at[stage.name], longest) for stage in stages]
    width = 60 + _BOX_WIDTH + 12 if upright else len(stages) * (_BOX_WIDTH + _GAP) - _GAP + 8
    height = top + len(stages) * (_BOX_HEIGHT + _GAP) - _GAP + 8 if upright else top + _BOX_HEIGHT + 8
    told = ", then ".join(f"{s.name} ({'reused' if s.reused else duration(s.duration_seconds)})" for s in stages)
    return svg(f"dag {'upright' if upright else 'level'}", width, height, f"Stages in order: {told}", marks)


def _stage_box(stage: StageSummary, x: float, y: float, longest: float) -> str:
    share = (stage.duration_seconds or 0) / longest
    state = "reused" if stage.reused else "new"
    length = max(2, share * (_BOX_WIDTH - 28))
    bar = f'<rect class="time" x="{x + 14}" y="{y + 62}" width="{length:.1f}" height="5" rx="2.5"/>'
    return (
        f'<g class="{state}"><rect class="box" x="{x}" y="{y}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" rx="10"/>'
        f'<text class="name" x="{x + 14}" y="{y + 27}">{escape(stage.name)}</text>'
        f'<text class="state" x="{x + _BOX_WIDTH - 14}" y="{y + 50}" text-anchor="end">{state}</text>'
        f'<text class="seconds" x="{x + 14}" y="{y + 50}">{duration(stage.duration_seconds)}</text>'
        f"{bar if stage.duration_seconds else ''}</g>"
    )


def _arrow(start: tuple[float, float], end: tuple[float, float], upright: bool) -> str:
    """A straight arrow between neighbours, a bow past the boxes between others."""
    (x1, y1), (x2, y2) = start, end
    if upright:
        near = y2 - y1 <= _BOX_HEIGHT + _GAP
        if near:
            middle = x1 + _BOX_WIDTH / 2
            return _arrow_path(f"M{middle} {y1 + _BOX_HEIGHT} V{y2 - 7}", (middle, y2), "down")
        path = f"M{x1} {y1 + 50} C{x1 - 56} {y1 + 60} {x1 - 56} {y2 + 20} {x2 - 7} {y2 + 28}"
        return _arrow_path(path, (x2, y2 + 28), "right")
    if x2 - x1 <= _BOX_WIDTH + _GAP:
        middle = y1 + _BOX_HEIGHT / 2
        return _arrow_path(f"M{x1 + _BOX_WIDTH} {middle} H{x2 - 7}", (x2, middle), "right")
    begin, finish = x1 + _BOX_WIDTH * 0.7, x2 + _BOX_WIDTH * 0.3
    path = f"M{begin} {y1} C{begin + 30} {y1 - 34} {finish - 30} {y1 - 34} {finish} {y2 - 7}"
    return _arrow_path(path, (finish, y2), "down")


def _arrow_path(path: str, tip: tuple[float, float], towards: str) -> str:
    x, y = tip
    head = f"M{x} {y} l-8 -4.5 v9 z" if towards == "right" else f"M{x} {y} l-4.5 -8 h9 z"
    return f'<path class="edge" d="{path}"/><path class="head" d="{head}"/>'


def whiskers(systems: Sequence[tuple[str, str, Mapping[str, float]]], measure: str) -> Markup:
    """A dot at each mean with its interval. systems: (key, name, {"mean", "low", "high"}), top to bottom."""
    rows = [
        ChartRow(name=name, dots=[dot_of(value)], remark=f"{value['mean']:.3f}", ours=key == "model")
        for key, name, value in systems
    ]
    return row_chart(rows, measure)


# Rows by their names, each with dots on one scale, and intervals as whiskers: means, differences, parts of queries.


# The width of a picture, the room for names at its left, and the characters that fit into it.
WIDE, HALF = (920.0, 290.0, 32), (520.0, 196.0, 24)
NARROW = 340  # the width of a picture for a small screen, whose names stand above their dots
EDGE = 24.0  # beside the scale of a picture whose names stand above, for half of a number
STRETCH = 2.0  # by which aloof rows may make the scale longer
APART = 9.0  # between the dots of one row, where they do not share a line


@dataclass(frozen=True, kw_only=True, slots=True)
class Dot:
    """low, high: the ends of its whisker, if it has one. kind: a class of the style sheet."""

    value: float
    low: float | None = None
    high: float | None = None
    kind: str = ""

    @property
    def ends(self) -> tuple[float, float]:
        return (self.value if self.low is None else self.low, self.value if self.high is None else self.high)


@dataclass(frozen=True, kw_only=True, slots=True)
class ChartRow:
    """remark: what stands at its right. ours: the row to look at first. aloof: it does not make the scale more than
    twice as long, so that the others are not pressed together; what is off the scale is an arrow at its edge."""

    name: str
    dots: Sequence[Dot]
    remark: str = ""
    ours: bool = False
    aloof: bool = False


def dot_of(value: Mapping[str, float], kind: str = "") -> Dot:
    """A dot of {"mean", "low", "high"}, of which the ends may be missing."""
    return Dot(value=value["mean"], low=value.get("low"), high=value.get("high"), kind=kind)


def shortened(name: str, chars: int) -> str:
    """Foreign text as a name in a picture, with at most so many characters."""
    name = visible(name)
    return name if len(name) <= chars else f"{name[: chars - 1].rstrip()}…"


def row_chart(
    rows: Sequence[ChartRow],
    label: str,
    *,
    width: float = 520,
    left: float = 92,
    right: float = 66,
    row_height: float = 34,
    level: float | None = None,
    joined: bool = False,
    above: bool = False,
    around: Sequence[float] = (),
    kind: str = "",
) -> Markup:
    """The picture; empty without a dot.

    left, right: the room for names and remarks. level: a value that all are to be seen against, as a line from top to
    bottom. joined: the dots of a row lie on one line, with a stroke between them; otherwise one below the other.
    above: names and remarks stand above their dots. around: values that the scale holds too, so that several pictures
    can have one. kind: a class of the style sheet.
    """
    rows = [row for row in rows if row.dots]
    if not rows:
        return Markup("")
    edges = [*_edges(rows), *around, *([] if level is None else [level])]
    ticks = ticks_around(min(edges), max(edges))
    low, high = min(ticks[0], *edges), max(ticks[-1], *edges)
    start, end = (EDGE, width - EDGE) if above else (left, width - right)
    x_of = scale(low, high, start, end)
    height = row_height * len(rows) + 30
    marks = [
        f'<line class="grid" x1="{x_of(t):.1f}" x2="{x_of(t):.1f}" y1="4" y2="{height - 24:g}"/>'
        f'<text class="tick" x="{x_of(t):.1f}" y="{height - 6:g}" text-anchor="middle">{t:g}</text>'
        for t in ticks
    ]
    if level is not None:
        x = x_of(level)
        marks.append(f'<line class="level" x1="{x:.1f}" x2="{x:.1f}" y1="4" y2="{height - 24:g}"/>')
    for number, row in enumerate(rows):
        middle = number * row_height + row_height / 2 + 2
        y = middle + 9 if above else middle
        marks.append(f'<g class="system {"ours" if row.ours else "other"}">' + _names(row, middle, start, end, above))
        inside = [dot for dot in row.dots if low <= dot.value <= high]
        if joined and len(inside) > 1:
            first, last = min(dot.value for dot in inside), max(dot.value for dot in inside)
            marks.append(f'<path class="between" d="M{x_of(first):.1f} {y:g} H{x_of(last):.1f}"/>')
        for place, dot in enumerate(row.dots):
            at = y if joined else y + APART * (place - (len(row.dots) - 1) / 2)
            if dot in inside:
                marks.append(_dot(dot, at, [x_of(min(max(edge, low), high)) for edge in (dot.value, *dot.ends)]))
            else:
                marks.append(_beyond(dot, at, start if dot.value < low else end, 8 if dot.value < low else -8))
        marks.append("</g>")
    told = ", ".join(f"{row.name} {row.remark}".rstrip() for row in rows)
    return svg(f"whiskers {kind}".rstrip(), width, height, f"{label}: {told}", marks)


def _edges(rows: Sequence[ChartRow]) -> list[float]:
    """The ends of what the scale is to hold: of all rows, or without the aloof ones where these would stretch it."""
    near = [end for row in rows if not row.aloof for dot in row.dots for end in dot.ends]
    every = [end for row in rows for dot in row.dots for end in dot.ends]
    return every if not near or max(every) - min(every) <= STRETCH * (max(near) - min(near)) else near


def for_any_screen(
    rows: Sequence[ChartRow],
    label: str,
    *,
    width: float,
    left: float,
    right: float = 84,
    row_height: float = 26,
    level: float | None = None,
    joined: bool = False,
    around: Sequence[float] = (),
) -> Markup:
    """The picture twice, of which the style sheet shows the one that fits: names beside the dots, and above them."""
    beside = row_chart(
        rows,
        label,
        width=width,
        left=left,
        right=right,
        row_height=row_height,
        level=level,
        joined=joined,
        around=around,
        kind="wide" if width == WIDE[0] else "wide half",
    )
    above = row_chart(
        rows,
        label,
        width=NARROW,
        row_height=row_height + 18,
        level=level,
        joined=joined,
        above=True,
        around=around,
        kind="narrow",
    )
    return beside + above


def _names(row: ChartRow, y: float, start: float, end: float, above: bool) -> str:
    if above:
        places = ((start - EDGE + 4, y - 5, "start"), (end + EDGE - 4, y - 5, "end"))
    else:
        places = ((start - 14, y + 4, "end"), (end + 14, y + 4, "start"))
    texts = zip(("label", "value"), (row.name, row.remark), places, strict=True)
    return "".join(
        f'<text class="{kind}" x="{x:g}" y="{y:.1f}"{_anchored(anchor)}>{escape(text)}</text>'
        for kind, text, (x, y, anchor) in texts
    )


def _anchored(anchor: str) -> str:
    return "" if anchor == "start" else f' text-anchor="{anchor}"'


def _dot(dot: Dot, y: float, places: Sequence[float]) -> str:
    x, start, end = places
    kind = f" {dot.kind}" if dot.kind else ""
    whisker = (
        f'<path class="whisker{kind}" d="M{start:.1f} {y - 5:g} v10 M{start:.1f} {y:g} H{end:.1f}'
        f' M{end:.1f} {y - 5:g} v10"/>'
    )
    return f'{whisker if start != end else ""}<circle class="mean{kind}" cx="{x:.1f}" cy="{y:g}" r="5"/>'


def _beyond(dot: Dot, y: float, x: float, towards: float) -> str:
    """An arrow at the edge that the dot lies beyond."""
    return f'<path class="off {dot.kind}" d="M{x:g} {y:g} l{towards:g} -4.5 v9 z"/>'
