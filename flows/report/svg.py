"""Pictures as inline SVG. Colours come from the page's style sheet.

Each picture has a role and a label that says what it shows; the numbers stand in a table beside it.
"""

import math
from collections.abc import Callable, Sequence

from markupsafe import Markup, escape


def svg(kind: str, width: float, height: float, label: str, marks: Sequence[str], *, fixed: bool = False) -> Markup:
    """The picture, as wide as its place; `fixed`: in its own size, and smaller only where there is no room."""
    size = f' width="{width:.0f}" height="{height:.0f}"' if fixed else ""
    head = f'<svg class="{kind}"{size} viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label)}">'
    return Markup(head + "".join(marks) + "</svg>")  # what is not a number was escaped above


def scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    span = (high - low) or 1
    return lambda value: start + (value - low) / span * (end - start)


def ticks_around(low: float, high: float) -> list[float]:
    """Four or so round numbers around a range."""
    if high - low < 1e-9:
        low, high = low - 0.5 * (abs(low) or 1), high + 0.5 * (abs(high) or 1)
    rough = (high - low) / 4
    unit = 10 ** math.floor(math.log10(rough))
    step = next(unit * m for m in (1, 2, 2.5, 5, 10) if unit * m >= rough)
    return [round(step * i, 12) for i in range(math.floor(low / step), math.ceil(high / step) + 1)]


def spread(places: Sequence[tuple[float, str]], least: float, lowest: float) -> dict[str, float]:
    """Places of labels moved down until no two are closer than `least`, then up until none is below `lowest`."""
    moved: dict[str, float] = {}
    last = -math.inf
    for y, key in sorted(places):
        last = max(y, last + least)
        moved[key] = last
    bound = lowest
    for key in reversed(moved):
        moved[key] = min(moved[key], bound)
        bound = moved[key] - least
    return moved
