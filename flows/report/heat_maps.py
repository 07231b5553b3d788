"""Figures of texts and labels: heat maps of a text's words, and histograms of labelled rows (figures)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from clicktower.flows.report.figures import COLOUR, HALF, SERIES, figure_block, new_figure, shorten

# Labelled rows: the distribution of similarities in each class.


def histogram(values: Mapping[str, Any], classes: Sequence[tuple[int, str]], label: str) -> Markup:
    """Outlines of the shares of each class over the same bins, with the thresholds.

    values: a histogram of labelled_measures; classes: (index, name), at most as many as SERIES.
    """
    edges = values["edges"]

    def draw() -> Any:
        from matplotlib.ticker import PercentFormatter

        figure = new_figure(HALF, 270)
        axes = figure.add_subplot()
        for (k, _), name in zip(classes, SERIES, strict=False):
            counts = values["counts"][k]
            shares = [n / (sum(counts) or 1) for n in counts]
            axes.stairs(shares, edges, fill=True, color=COLOUR[name], alpha=0.16)
            axes.stairs(shares, edges, color=COLOUR[name], lw=2)
        for cut in filter(lambda cut: edges[0] <= cut <= edges[-1], values["cuts"]):
            axes.axvline(cut, color=COLOUR["quiet"], ls=":", lw=1.4)
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
        axes.set_xlabel(label)
        return figure

    names = ", ".join(f"class {name}: {sum(values['counts'][k]):,} rows" for k, name in classes)
    chosen = "".join(f", threshold {cut:.3g}" for cut in values["cuts"])
    return figure_block(draw, f"{label} from {edges[0]:.3g} to {edges[-1]:.3g}; {names}{chosen}", "curves histogram")


# A tower's input: the words of a text as columns, or, for a long text, runs of words, each as its mean.


MOST = 80  # columns whose labels are still readable


@dataclass(frozen=True, kw_only=True, slots=True)
class WordColumns:
    """`labels` are below the columns; column k holds the words from starts[k] up to the next start."""

    labels: tuple[str, ...]
    starts: tuple[int, ...]
    words_each: int

    def means(self, rows: np.ndarray) -> np.ndarray:
        """Rows of words [words, ...] as rows of columns, float64 [columns, ...]."""
        sums = np.add.reduceat(rows.astype(np.float64), self.starts, axis=0)
        sizes = np.diff([*self.starts, len(rows)])
        return sums / sizes.reshape(-1, *[1] * (rows.ndim - 1))

    def label(self, axes: Any, gap: float) -> float:
        """Name the columns of some axes, `gap` pixels apart; returns the room that the names need.

        Names are horizontal if they fit, otherwise slanted or vertical; with runs of words every fifth column has a
        label.
        """
        every = 5 if self.words_each > 1 else 1
        longest = 6.8 * max(sum(2 if ord(char) > 0x2E7F else 1 for char in label) for label in self.labels)
        angle = 0 if longest < gap - 4 else 50 if gap >= 14 else 90
        axes.set_xticks(
            range(0, len(self.labels), every), self.labels[::every], fontsize=11, rotation=angle,
            rotation_mode="anchor", ha="right" if angle else "center", va="center" if angle == 90 else "top",
        )  # fmt: skip
        return 22 + longest * math.sin(math.radians(angle))


def word_columns(words: Sequence[str]) -> WordColumns:
    """The columns of a text: its words, or equal runs of words, at most MOST."""
    each = -(-len(words) // MOST)
    starts = tuple(range(0, len(words), each))
    if each == 1:
        labels = tuple(shorten(word) for word in words)
    else:
        labels = tuple(f"{start + 1:,}–{min(start + each, len(words)):,}" for start in starts)
    return WordColumns(labels=labels, starts=starts, words_each=each)


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """The meaning of a heat map's colours: `low` and `high` are the ends; a scale around zero has -high as its low."""

    low: float
    high: float

    @property
    def around_zero(self) -> bool:
        return self.low < 0

    def colours(self, values: np.ndarray) -> np.ndarray:
        """uint8 [..., 4]: one colour, or around zero one for each sign, fuller with the distance from the page's
        own.
        """
        start = 0.0 if self.around_zero else self.low
        shares = np.clip((values - start) / ((self.high - start) or 1), -1, 1)
        tones = np.where(shares[..., None] < 0, np.array(BELOW), np.array(ABOVE))
        tones[..., 3] = np.rint(255 * np.abs(shares))
        return tones.astype(np.uint8)


ABOVE, BELOW = (16, 143, 134, 255), (217, 130, 43, 255)  # like the scales of page.css
ACTIVE_ROW, REST_HEIGHT = 12, 190


def panel_scale(values: np.ndarray) -> Scale:
    """The scale that fits a panel's values: around zero if some are negative."""
    low, high = float(values.min()), float(values.max())
    return Scale(low=-max(-low, high), high=max(-low, high)) if low < 0 else Scale(low=low, high=high)


def heat_map(
    values: np.ndarray, columns: WordColumns, active: Sequence[int], scale: Scale, title: str, names: Sequence[str] = ()
) -> Markup:
    """A column for each word, a row for each cell (Fig. 4 to 6, 9 to 12) or hop, with those of `active` at the top.

    values: [words, cells] in text order. names: of the active rows, by default their numbers.
    """
    shown = columns.means(values).T  # [cells, columns]
    quiet_cells = [cell for cell in range(len(shown)) if cell not in set(active)]
    gap = max(9, min(30, 640 // shown.shape[1]))
    heights = [ACTIVE_ROW * len(active)]
    heights += [len(quiet_cells) * max(1, min(ACTIVE_ROW, REST_HEIGHT // len(quiet_cells)))] if quiet_cells else []

    def draw() -> Any:
        labels = names or [str(cell) for cell in active]
        left, top, between = 20.0 + 6 * max(map(len, labels)), 24.0, 7.0
        wide = gap * shown.shape[1]
        width = max(left + wide + 10, left + 7.5 * len(title))
        room = columns.label(new_figure(9, 9).add_subplot(), gap)
        height = top + sum(heights) + between * (len(heights) - 1) + room
        figure = new_figure(width, height, layout=None)
        figure.text(left / width, 1 - 14 / height, title, fontsize=13, fontweight="bold")
        for cells, tall in zip((list(active), quiet_cells), heights, strict=False):
            box = (left / width, 1 - (top + tall) / height, wide / width, tall / height)
            axes = figure.add_axes(box)
            top += tall + between
            axes.imshow(scale.colours(shown[cells]), aspect="auto", interpolation="none")
            axes.grid(False)
            axes.spines[:].set_visible(False)
            axes.set_xticks([])
            axes.set_yticks(
                [] if cells is quiet_cells else range(len(cells)), [] if cells is quiet_cells else labels, size=9
            )
        if quiet_cells:
            axes.set_ylabel(f"{len(quiet_cells)} others", size=9)
        columns.label(axes, gap)
        return figure

    text = f"{title}: {values.min():.2f} to {values.max():.2f} over {len(values):,} words and {shown.shape[0]} rows"
    return figure_block(draw, text, "heat")
