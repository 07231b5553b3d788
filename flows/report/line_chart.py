"""Lines over epochs: what was measured after each, and what every step did, as a picture."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from flows.report.svg import scale, spread, svg, ticks_around

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 520, 268, 54, 132, 14, 46


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A line by its points (epoch, value), in order; values that are None or not finite are left out.

    band: (epoch, low, high) around it. dots: points to be marked on it; the last of them, or of the line, is its end.
    aside: thin, without a dot or a name, one of many behind the others.
    """

    name: str
    points: Sequence[tuple[float, float | None]]
    band: Sequence[tuple[float, float, float]] = ()
    dots: Sequence[tuple[float, float | None]] = ()
    aside: bool = False

    @property
    def known(self) -> list[tuple[float, float]]:
        return _known(self.points)

    @property
    def marked(self) -> list[tuple[float, float]]:
        return _known(self.dots) or self.known[-1:]


def line_chart(
    lines: Sequence[Line],
    label: str,
    *,
    log: bool = False,
    from_zero: bool = False,
    most: float = math.inf,
    first: float | None = None,
    level: tuple[str, float] | None = None,
    show: Callable[[float], str] = "{:.3f}".format,
) -> Markup:
    """The picture; empty where nothing is known.

    log: a logarithmic scale, if all values allow it. most: what no value can be above. first: the epoch at the left
    edge, if not that of the first point. level: a name and a value that the lines are to be seen against. show: a value
    as it stands beside the end of its line.
    """
    lines = [line for line in lines if line.known]
    values = [value for line in lines for _, value in line.known + line.marked]
    values += [edge for line in lines for _, low, high in line.band for edge in (low, high)]
    if not values:
        return Markup("")
    values += ([level[1]] if level else []) + ([0.0] if from_zero else [])
    epochs = [epoch for line in lines for epoch, _ in line.known] + ([] if first is None else [first])
    x_of = scale(min(epochs), max(epochs), LEFT, WIDTH - RIGHT)
    y_of, ticks = _upward(min(values), max(values), most, log and min(values) > 0)
    marks = [
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y_of(t):.1f}" y2="{y_of(t):.1f}"/>'
        f'<text class="tick" x="{LEFT - 8}" y="{y_of(t) + 4:.1f}" text-anchor="end">{_tick(t)}</text>'
        for t in ticks
    ]
    marks += [
        f'<text class="tick" x="{x_of(t):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{t:g}</text>'
        for t in _epoch_ticks(min(epochs), max(epochs))
    ]
    marks.append(
        f'<text class="tick" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle">epoch</text>'
    )
    if level:
        name, value = level
        marks.append(
            f'<line class="level" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y_of(value):.1f}" y2="{y_of(value):.1f}"/>'
            f'<text class="tick" x="{WIDTH - RIGHT}" y="{y_of(value) - 5:.1f}" text-anchor="end">'
            f"{escape(name)} {escape(show(value))}</text>"
        )
    marks += [
        f'<polyline class="line aside" points="{_path(line.known, x_of, y_of)}"/>' for line in lines if line.aside
    ]
    named = [line for line in lines if not line.aside]
    ends = spread([(y_of(line.marked[-1][1]), line.name) for line in named], least=17, lowest=HEIGHT - BOTTOM)
    for number, line in enumerate(named):
        marks += _line(line, number, x_of, y_of, ends[line.name], show)
    told = "; ".join(f"{line.name} from {show(line.known[0][1])} to {show(line.marked[-1][1])}" for line in named)
    return svg("curves", WIDTH, HEIGHT, f"{label}: {told}", marks)


def _line(
    line: Line,
    number: int,
    x_of: Callable[[float], float],
    y_of: Callable[[float], float],
    end: float,
    show: Callable[[float], str],
) -> list[str]:
    marks = []
    if line.band:
        around = [(x, high) for x, _, high in line.band] + [(x, low) for x, low, _ in reversed(line.band)]
        marks.append(f'<polygon class="band series{number}" points="{_path(around, x_of, y_of)}"/>')
    marks.append(f'<polyline class="line series{number}" points="{_path(line.known, x_of, y_of)}"/>')
    marks += [
        f'<circle class="dot series{number}" cx="{x_of(x):.1f}" cy="{y_of(y):.1f}" r="{3.5 if few else 2}"/>'
        for few in [len(line.marked) <= 30]
        for x, y in line.marked
    ]
    marks.append(
        f'<text class="end series{number}" x="{WIDTH - RIGHT + 9}" y="{end + 4:.1f}">'
        f"{escape(line.name)} {escape(show(line.marked[-1][1]))}</text>"
    )
    return marks


def _path(points: Iterable[tuple[float, float]], x_of: Callable[[float], float], y_of: Callable[[float], float]) -> str:
    return " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in points)


def _known(points: Iterable[tuple[float, float | None]]) -> list[tuple[float, float]]:
    return [(epoch, value) for epoch, value in points if value is not None and math.isfinite(value)]


def _upward(low: float, high: float, most: float, log: bool) -> tuple[Callable[[float], float], list[float]]:
    """Where a value stands, and the round values to mark."""
    if log:
        ticks = _log_ticks(low, high)
        on = scale(math.log(min(low, ticks[0])), math.log(max(high, ticks[-1])), HEIGHT - BOTTOM, TOP)
        return lambda value: on(math.log(value)), ticks
    ticks = [tick for tick in ticks_around(low, high) if tick <= most]
    return scale(min(ticks[0], low), max(ticks[-1], high), HEIGHT - BOTTOM, TOP), ticks


def _log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten around a range of positive values, with 2 and 5 between where those are few."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1,), (1, 3), (1, 2, 5)):
        marks = [digit * 10.0**power for power in powers for digit in digits]
        inside = [mark for mark in marks if low <= mark <= high]
        if len(inside) >= 3:
            return inside
    return inside or [low]


def _epoch_ticks(first: float, last: float) -> list[float]:
    """At most six whole epochs, the last one among them."""
    first, last = math.ceil(first), math.floor(last)
    every = next(e for e in (1, 2, 5, 10, 20, 25, 50, 100, 200, 500, 10**9) if (last - first) / e <= 5)
    ticks = [epoch for epoch in range(first, last + 1) if epoch % every == 0 and last - epoch >= every / 2]
    return [*ticks, last]


def _tick(value: float) -> str:
    return f"{value:g}" if abs(value) < 10_000 else f"{value / 1000:g}k"
