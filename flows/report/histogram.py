"""How a value lies in each class: outlines of the shares of each class over the same bins, with the thresholds."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

from flows.report.svg import scale, svg, ticks_around

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 520, 250, 52, 14, 14, 46
LINE = 17  # from one threshold's name to the next
SERIES = 3  # classes that the style sheet has colours for


def histogram(found: Mapping[str, Any], classes: Sequence[tuple[int, str]], label: str) -> Markup:
    """The picture. found: one of labelled_measures; classes: (place, name) of SERIES at most."""
    edges, base = found["edges"], HEIGHT - BOTTOM
    cuts = [cut for cut in found["cuts"] if edges[0] <= cut <= edges[-1]]
    top = TOP + LINE * len(cuts)  # room for the thresholds' names
    shares = [[n / (sum(found["counts"][k]) or 1) for n in found["counts"][k]] for k, _ in classes]
    x_of = scale(edges[0], edges[-1], LEFT, WIDTH - RIGHT)
    upward = ticks_around(0, max((share for of_class in shares for share in of_class), default=0) or 1)
    y_of = scale(0, upward[-1], base, top)
    marks = [
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y_of(t):.1f}" y2="{y_of(t):.1f}"/>'
        f'<text class="tick" x="{LEFT - 8}" y="{y_of(t) + 4:.1f}" text-anchor="end">{100 * t:g}%</text>'
        for t in upward
    ]
    marks += [
        f'<text class="tick" x="{x_of(t):.1f}" y="{base + 18}" text-anchor="middle">{t:g}</text>'
        for t in ticks_around(edges[0], edges[-1])
        if edges[0] <= t <= edges[-1]
    ]
    middle = (LEFT + WIDTH - RIGHT) / 2
    marks.append(f'<text class="tick" x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{escape(label)}</text>')
    for number, of_class in enumerate(shares):
        path = f"M{x_of(edges[0]):.1f} {base}"
        for share, end in zip(of_class, edges[1:], strict=True):
            path += f"V{y_of(share):.1f}H{x_of(end):.1f}"
        marks.append(f'<path class="band series{number}" d="{path}V{base}z"/>')
        marks.append(f'<path class="line series{number}" d="{path}V{base}"/>')
    for number, cut in enumerate(cuts):
        x, y = x_of(cut), TOP + LINE * number
        beside = f'x="{x + 5:.1f}"' if x < middle else f'x="{x - 5:.1f}" text-anchor="end"'
        marks.append(
            f'<line class="level" x1="{x:.1f}" x2="{x:.1f}" y1="{y - 9}" y2="{base}"/>'
            f'<text class="tick" {beside} y="{y}">threshold {cut:.3g}</text>'
        )
    names = ", ".join(f"class {name}: {sum(found['counts'][k]):,} rows" for k, name in classes)
    chosen = "".join(f", threshold {cut:.3g}" for cut in found["cuts"])
    told = f"{label} from {edges[0]:.3g} to {edges[-1]:.3g}; {names}{chosen}"
    return svg("curves histogram", WIDTH, HEIGHT, told, marks)
