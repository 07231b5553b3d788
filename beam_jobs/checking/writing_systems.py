"""The writing systems of queries, by the names that Unicode gives to their letters."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from schemas.words import UNSPACED_RANGES

NO_LETTERS = "no letters"
_UNSPACED = re.compile("[" + "".join(f"{chr(a)}-{chr(b)}" for a, b in UNSPACED_RANGES) + "]")
_NAMES = {"CJK": "Han", "KANGXI": "Han", "IDEOGRAPHIC": "Han", "KATAKANA-HIRAGANA": "Katakana", "FULLWIDTH": "Latin"}


def writing_systems(queries: Iterable[str], weights: Iterable[int]) -> tuple[Counter[str], int]:
    """(weight by the writing system that most letters of a query are of, weight with any unspaced script)."""
    found: Counter[str] = Counter()
    unspaced = 0
    for query, weight in zip(queries, weights, strict=True):
        found[_of(query)] += weight
        if not query.isascii() and _UNSPACED.search(query):
            unspaced += weight
    return found, unspaced


def _of(query: str) -> str:
    if query.isascii():
        return "Latin" if any(map(str.isalpha, query)) else NO_LETTERS
    letters = Counter(_of_letter(letter) for letter in query if letter.isalpha())
    return letters.most_common(1)[0][0] if letters else NO_LETTERS


@lru_cache(maxsize=1 << 16)
def _of_letter(letter: str) -> str:
    first = unicodedata.name(letter, "unnamed").split(" ", 1)[0]
    return _NAMES.get(first, first.capitalize())
