"""Whether a classifier's probabilities hold: what it said against how often it was right, a dot for each bin."""

from collections.abc import Mapping
from math import sqrt
from typing import Any

from markupsafe import Markup

from flows.report.svg import scale, svg, ticks_around

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 520, 330, 52, 30, 16, 46
SMALLEST, LARGEST = 3.0, 12.0  # radius of a dot, whose area goes with its rows


def reliability_chart(found: Mapping[str, Any]) -> Markup:
    """The picture. found: labelled_measures.reliability."""
    bins = [one for one in found["bins"] if one["n"]]
    x_of = scale(found["bins"][0]["low"], 1, LEFT, WIDTH - RIGHT)
    y_of = scale(0, 1, HEIGHT - BOTTOM, TOP)
    marks = [
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y_of(t):.1f}" y2="{y_of(t):.1f}"/>'
        f'<text class="tick" x="{LEFT - 8}" y="{y_of(t) + 4:.1f}" text-anchor="end">{100 * t:g}%</text>'
        for t in (0, 0.25, 0.5, 0.75, 1)
    ]
    low = found["bins"][0]["low"]
    marks += [
        f'<text class="tick" x="{x_of(t):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{100 * t:g}%</text>'
        for t in ticks_around(low, 1)
        if low <= t <= 1
    ]
    marks.append(
        f'<text class="tick" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle">'
        "probability of what was said</text>"
        f'<line class="level" x1="{x_of(low):.1f}" y1="{y_of(low):.1f}" x2="{x_of(1):.1f}" y2="{y_of(1):.1f}"/>'
    )
    line = " ".join(f"{x_of(one['said']):.1f},{y_of(one['right']):.1f}" for one in bins)
    marks.append(f'<polyline class="line series0" points="{line}"/>')
    most = max(one["n"] for one in bins)
    marks += [
        f'<circle class="dot series0" cx="{x_of(one["said"]):.1f}" cy="{y_of(one["right"]):.1f}"'
        f' r="{SMALLEST + (LARGEST - SMALLEST) * sqrt(one["n"] / most):.1f}"/>'
        for one in bins
    ]
    told = "; ".join(f"said {one['said']:.2f}, right {one['right']:.2f} of {one['n']:,}" for one in bins)
    return svg("curves reliability", WIDTH, HEIGHT, f"Right against said: {told}", marks)
