"""Where each word of a text stands in the text as it was typed, and each letter of the word.

The text contract changes a text before it cuts it into words: `ﬁ` becomes two letters, e and a combining accent one,
`İ` two. So the text is taken cluster by cluster: the smallest pieces whose forms, side by side, are the form of the
whole. A letter then stands where its cluster stands, and letters of one cluster stand at one place.

Places are (start, end) in code points of the text as typed: Python's and Go's rune indices. JavaScript counts UTF-16
units; `Array.from(text)` counts code points there.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from schemas.words import UNSPACED_RANGES

Place = tuple[int, int]

_SPACED = re.compile(r"\S+")
_UNSPACED = re.compile("[" + "".join(f"{chr(a)}-{chr(b)}" for a, b in UNSPACED_RANGES) + "]+")


@dataclass(frozen=True, slots=True)
class PlacedWord:
    """A word of the text contract and the place of each of its letters in the text as typed."""

    word: str
    letters: tuple[Place, ...]

    @property
    def start(self) -> int:
        return self.letters[0][0]

    @property
    def end(self) -> int:
        return max(end for _, end in self.letters)


def placed_words(text: str) -> Iterator[PlacedWord]:
    """The words of a text, as `schemas.words.words` cuts it, with their places. Lazy: a long text costs what is read.

    The pairs of an unspaced script overlap, in the text as among the words.
    """
    for spaced in _SPACED.finditer(text):
        letters = _placed_letters(spaced.group(), spaced.start())
        form = "".join(letter for letter, _ in letters)
        for start, end in _bounds(form):
            yield PlacedWord(form[start:end], tuple(place for _, place in letters[start:end]))


def _placed_letters(typed: str, start: int) -> list[tuple[str, Place]]:
    """Each character of the normalised form of a text without white space, and where it comes from."""
    if typed.isascii():
        return [(letter, (at, at + 1)) for at, letter in enumerate(typed.lower(), start)]
    form = _folded(typed)
    letters = [
        (letter, (start + first, start + end))
        for first, end in _clusters(typed)
        for letter in _folded(typed[first:end])
    ]
    # A capital sigma is lowered by what stands around it, so a form may differ from that of its cluster, not in length.
    if len(letters) == len(form):
        return [(letter, place) for letter, (_, place) in zip(form, letters, strict=True)]
    return [(letter, (start, start + len(typed))) for letter in form]  # never wrong, if not exact


def _clusters(typed: str) -> Iterator[Place]:
    """The pieces of a text whose forms, side by side, are the form of the whole."""
    first = 0
    for at in range(1, len(typed)):
        if unicodedata.combining(unicodedata.normalize("NFKD", typed[at])[0]):
            continue  # a mark belongs to what it follows
        whole, parts = _folded(typed[first : at + 1]), _folded(typed[first:at]) + _folded(typed[at])
        if whole.replace("ς", "σ") == parts.replace("ς", "σ"):
            yield first, at
            first = at
    if typed:
        yield first, len(typed)


def _folded(text: str) -> str:
    """`normalise`, with the white space kept that a character may turn into."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).lower())


def _bounds(form: str) -> Iterator[Place]:
    """Where the words of a normalised text begin and end in it."""
    for spaced in _SPACED.finditer(form):
        here, end = spaced.span()
        for run in _UNSPACED.finditer(form, here, end):
            first, after = run.span()
            if here < first:
                yield here, first
            if after - first == 1:
                yield first, after
            for at in range(first, after - 1):
                yield at, at + 2
            here = after
        if here < end:
            yield here, end
