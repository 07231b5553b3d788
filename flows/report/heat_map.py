"""Gates and states of a tower as heat maps: a column for each word, a row for each cell (Fig. 4, 5, 9, 10) or hop.

The most active cells stand on top, each with its number, below them all others in the order of their numbers. Colours
are 17 steps, so that a picture is 17 shapes and not one for each cell and word; style sheets name them s-8 to s8.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup, escape

from flows.report.svg import WordColumns, label_marks, svg, word_columns
from training.analysis.attention import overall, overlap

STEPS = 8
LEFT, TOP, GAP, ACTIVE_ROW, REST_HEIGHT = 30, 22, 7, 12, 190


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """What the colours mean: `low` and `high` are the ends. A scale around zero has -high for its low."""

    low: float
    high: float

    @property
    def around_zero(self) -> bool:
        return self.low < 0

    def steps(self, values: np.ndarray) -> np.ndarray:
        """The step of each value, int [...]: -8 to 8 around zero, otherwise 0 to 8; beyond an end, the end's."""
        span = self.high if self.around_zero else self.high - self.low
        shares = (values - (0 if self.around_zero else self.low)) / (span or 1)
        return np.clip(np.rint(shares * STEPS), -STEPS if self.around_zero else 0, STEPS).astype(np.int64)


def own_scale(values: np.ndarray) -> Scale:
    """The scale that a panel's values fill: around zero where some are below it."""
    low, high = float(values.min()), float(values.max())
    return Scale(low=-max(-low, high), high=max(-low, high)) if low < 0 else Scale(low=low, high=high)


def heat_map(
    values: np.ndarray,
    columns: WordColumns,
    active: Sequence[int],
    scale: Scale,
    title: str,
    *,
    symbol: str = "",
    rows: str = "cells",
    first: int | None = 0,
) -> Markup:
    """One panel. values: [words, cells] in the order in which the words stand; active: the cells on top.

    `rows`: what the rows are, if not cells; `first`: the number of the first of them, None for none.
    """
    shown = scale.steps(columns.means(values)).T  # [cells, columns]
    num_cells, num_columns = shown.shape
    rest = [cell for cell in range(num_cells) if cell not in set(active)]
    width = max(9, min(30, 640 // num_columns))
    height = max(1, min(ACTIVE_ROW, REST_HEIGHT // len(rest))) if rest else 0
    below = TOP + ACTIVE_ROW * len(active)
    places = [(cell, TOP + ACTIVE_ROW * row, ACTIVE_ROW) for row, cell in enumerate(active)]
    places += [(cell, below + GAP + height * row, height) for row, cell in enumerate(rest)]
    bottom = below + (GAP + height * len(rest) if rest else 0)
    marks = [
        f'<text class="panel" x="{LEFT}" y="14">{escape(title)} <tspan class="symbol">{escape(symbol)}</tspan></text>'
    ]
    marks += _shapes(shown, places, width)
    numbered = places[: len(active)] if first is not None else []
    marks += [
        f'<text class="tick narrow" x="{LEFT - 5}" y="{top + ACTIVE_ROW - 2.5:.1f}" text-anchor="end">'
        f"{cell + (first or 0)}</text>"
        for cell, top, _ in numbered
    ]
    if rest:
        middle = (below + GAP + bottom) / 2
        marks.append(
            f'<text class="tick narrow" x="{LEFT - 8}" y="{middle:.1f}" text-anchor="middle"'
            f' transform="rotate(-90 {LEFT - 8} {middle:.1f})">{len(rest)} others</text>'
        )
    labels, room = label_marks(columns, [LEFT + width * (k + 0.5) for k in range(num_columns)], bottom)
    name = f"{title} {symbol}".rstrip()
    total = max(LEFT + width * num_columns + 6, LEFT + 8 * len(name))
    told = f"{name}: {values.min():.2f} to {values.max():.2f} over {len(values):,} words and {num_cells} {rows}"
    return svg("heat", total, bottom + room, told, marks + labels, fixed=True)


def legend(scale: Scale, *, size: float = 14) -> Markup:
    """The colours, each `size` wide, with what they mean at both ends and, around zero, in the middle."""
    steps, left = range(-STEPS if scale.around_zero else 0, STEPS + 1), 44
    end, height = left + size * len(steps), 30 if scale.around_zero else 17
    marks = [
        f'<rect class="s{step}" x="{left + size * at}" y="2" width="{size}" height="12"/>'
        for at, step in enumerate(steps)
    ]
    marks.append(f'<text class="tick" x="{left - 6}" y="12" text-anchor="end">{scale.low:.2g}</text>')
    marks.append(f'<text class="tick" x="{end + 6}" y="12">{scale.high:.2g}</text>')
    if scale.around_zero:
        marks.append(f'<text class="tick" x="{(left + end) / 2}" y="27" text-anchor="middle">0</text>')
    told = f"Colours from {scale.low:.2g} to {scale.high:.2g}"
    return svg("key-colours", end + 50, height, told, marks, fixed=True)


def _shapes(shown: np.ndarray, places: Sequence[tuple[int, float, float]], width: float) -> list[str]:
    """One path for each step: a rectangle for every run of columns that have it, row by row."""
    runs: dict[int, list[str]] = {}
    for cell, top, height in places:
        row = shown[cell]
        starts = np.flatnonzero(np.concatenate([[True], row[1:] != row[:-1]]))
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(row)], strict=True):
            wide = width * (end - start)
            runs.setdefault(int(row[start]), []).append(f"M{LEFT + width * start} {top}h{wide}v{height}h-{wide}z")
    return [f'<path class="s{step}" d="{"".join(d)}"/>' for step, d in sorted(runs.items())]


# Where the hops of a self-attentive tower look in a text, as heat maps.


def attention_pictures(weights_rT: np.ndarray, words: Sequence[str]) -> dict[str, Any]:
    """A row for each hop, and below one for all of them: the colours of each picture go from 0 to its largest."""
    columns = word_columns(words)
    shown: list[tuple[np.ndarray, str, str, int | None]] = [(weights_rT, "hops", "hops", 1)]
    if len(weights_rT) > 1:
        shown.append((overall(weights_rT)[None], "overall", "row", None))
    pictures = []
    for values, title, rows, first in shown:
        scale = Scale(low=0.0, high=float(values.max()))
        picture = heat_map(values.T, columns, range(len(values)), scale, title, rows=rows, first=first)
        pictures.append({"picture": picture, "legend": legend(scale, size=7)})
    return {"pictures": pictures, "num_hops": len(weights_rT), "overlap": overlap(weights_rT)}
