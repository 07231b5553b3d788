"""The mean input gate at keywords beside that at other words: overall, and by the position at which a word is read."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from flows.report.svg import scale, svg, ticks_around

LEFT, TOP, HEIGHT, STEP, FIRST = 46, 14, 210, 46, 96
KINDS = (("keywords", "keywords", -7), ("others", "other words", 7))


def gate_chart(found: Mapping[str, Any]) -> Markup:
    """The picture of `attenuation.as_json`; empty where one of the kinds has no word."""
    if not (found["keywords"]["n"] and found["others"]["n"]):
        return Markup("")
    places: list[tuple[float, str, Mapping[str, Any]]] = [(LEFT + FIRST / 2, "", found)]
    start = LEFT + FIRST + 24
    places += [(start + STEP * (n + 0.5), f"{at['position']}", at) for n, at in enumerate(found["by_position"])]
    width = (start + STEP * len(found["by_position"]) if found["by_position"] else LEFT + FIRST) + 12
    edges = [edge for _, _, at in places for kind, _, _ in KINDS for edge in _interval(at[kind])]
    ticks = ticks_around(min(edges), max(edges))
    y_of = scale(ticks[0], ticks[-1], TOP + HEIGHT, TOP)
    marks = [
        f'<line class="grid" x1="{LEFT}" x2="{width - 12}" y1="{y_of(t):.1f}" y2="{y_of(t):.1f}"/>'
        f'<text class="tick" x="{LEFT - 8}" y="{y_of(t) + 4:.1f}" text-anchor="end">{t:g}</text>'
        for t in ticks
    ]
    for x, name, at in places:
        marks.append(f'<text class="tick" x="{x:.1f}" y="{TOP + HEIGHT + 18}" text-anchor="middle">{name}</text>')
        for kind, _, aside in KINDS:
            low, high = _interval(at[kind])
            marks.append(
                f'<g class="{kind}"><path class="whisker" d="M{x + aside:.1f} {y_of(low):.1f}V{y_of(high):.1f}"/>'
                f'<circle class="mean" cx="{x + aside:.1f}" cy="{y_of(at[kind]["mean"]):.1f}" r="4.5"/></g>'
            )
    below = TOP + HEIGHT + 36
    marks.append(f'<text class="tick" x="{LEFT + FIRST / 2}" y="{below}" text-anchor="middle">all positions</text>')
    if found["by_position"]:
        middle = start + STEP * len(found["by_position"]) / 2
        marks.append(
            f'<text class="tick" x="{middle}" y="{below}" text-anchor="middle">position, in reading order</text>'
        )
    told = "; ".join(f"{name} {found[kind]['mean']:.3f}" for kind, name, _ in KINDS)
    return svg("gates", width, below + 8, f"Mean input gate: {told}", marks, fixed=True)


def _interval(spread: Mapping[str, Any]) -> Sequence[float]:
    """Mean ± 1.96 standard errors; of a single word only the mean."""
    error = 1.96 * (spread["sd"] or 0) / spread["n"] ** 0.5
    return spread["mean"] - error, spread["mean"] + error
