"""Pictures as inline SVG. Colours come from the page's style sheet.

Each picture has a role and a label that says what it shows; the numbers stand in a table beside it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
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


# The words of a text as columns of a picture: one each, or, of a long text, equal runs of words, each as its mean.


MOST = 80  # columns whose labels can still be read side by side
LONGEST = 15  # characters of a label


@dataclass(frozen=True, kw_only=True, slots=True)
class WordColumns:
    """`labels` stand below the columns; column k holds the words from starts[k] up to the next start."""

    labels: tuple[str, ...]
    starts: tuple[int, ...]
    words_each: int

    def means(self, rows: np.ndarray) -> np.ndarray:
        """Rows of words [words, ...] as rows of columns, float64 [columns, ...]."""
        sums = np.add.reduceat(rows.astype(np.float64), self.starts, axis=0)
        sizes = np.diff([*self.starts, len(rows)])
        return sums / sizes.reshape(-1, *[1] * (rows.ndim - 1))


def word_columns(words: Sequence[str]) -> WordColumns:
    """The columns of a text: its words, or runs of so many words that there are at most MOST."""
    each = -(-len(words) // MOST)
    starts = tuple(range(0, len(words), each))
    if each == 1:
        labels = tuple(shortened(word) for word in words)
    else:
        labels = tuple(f"{start + 1:,}–{min(start + each, len(words)):,}" for start in starts)
    return WordColumns(labels=labels, starts=starts, words_each=each)


def shortened(word: str, longest: int = LONGEST) -> str:
    """A word as a label can show it: what cannot be printed as a mark, what is too long cut."""
    shown = printable(word)
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def printable(text: str) -> str:
    """Foreign text without characters that a page or a terminal would act on."""
    return "".join(char if char.isprintable() else "�" for char in text)


def label_marks(columns: WordColumns, centres: Sequence[float], top: float) -> tuple[list[str], float]:
    """(the labels below their columns, how much room they need): level if they fit, slanted, or upright.

    Of runs of words every fifth column has a label.
    """
    gap = centres[1] - centres[0] if len(centres) > 1 else 60.0
    widths = [sum(12 if ord(char) > 0x2E7F else 6.6 for char in label) for label in columns.labels]
    angle = 0 if max(widths) < gap - 4 else -50 if gap >= 14 else -90
    room = {0: 18.0, -50: 16 + max(widths) * 0.77, -90: 10 + max(widths)}[angle]
    marks = []
    labelled = list(zip(centres, columns.labels, strict=True))[:: 5 if columns.words_each > 1 else 1]
    for x, label in labelled:
        if angle == 0:
            marks.append(
                f'<text class="tick" x="{x:.1f}" y="{top + 14:.1f}" text-anchor="middle">{escape(label)}</text>'
            )
            continue
        x, y = (x + 4, top + 10) if angle == -50 else (x + 3.5, top + 5)
        size = " narrow" if gap < 11 else ""
        marks.append(
            f'<text class="tick{size}" x="{x:.1f}" y="{y:.1f}" text-anchor="end"'
            f' transform="rotate({angle} {x:.1f} {y:.1f})">{escape(label)}</text>'
        )
    return marks, room
