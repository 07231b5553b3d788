"""Which queries are left out for what they say: empty, adult, spam. A normalised query always has the same verdict."""

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

from beam_jobs.content_lists import ADULT_ENGLISH, shipped_list
from schemas.words import normalise

# Word characters for the adult list: a term must not begin or end inside a word.
_NOT_INSIDE_WORD = (r"(?<![^\W_])", r"(?![^\W_])")

# Spam rules: what no one types who looks for something in the collection. They err on keeping: a number such as
# 000-767-8116 may be a part number, `2100000` too, and an address without a scheme is often pasted from the shop
# itself.
_SPAM = re.compile(
    "|".join(
        (
            r"\b(?:https?|ftp)://",
            r"\bwww\.[^\s.]+\.",
            r"<\s*/?\s*(?:a|script|img|iframe)\b",
            r"\[/?url\b",
            r"[\w.+-]+@[\w-]+\.[a-z]{2,}",  # an e-mail address
            r"\+\d[\d ().-]{8,}\d",  # +44 20 7946 0000
            r"\(\d{3}\) ?\d{3}[-. ]\d{4}\b",  # (555) 010-9999
            r"\b1[-. ]?8(?:00|33|44|55|66|77|88)[-. ]\d{3}[-. ]\d{4}\b",  # the toll-free numbers of support scams
            r"([^\W_])\1{9,}",  # one character ten times
            r"\b(\w+)(?: \2){4,}\b",  # one word five times
        )
    )
)
CONTENT_FATES = ("query_empty", "query_adult", "query_spam")
MAX_CHARACTERS = 500
MAX_WORDS = 64


def content_fate(query: str, adult_terms: tuple[str, ...] | None = None) -> str | None:
    """The fate that a normalised query's lines have for its content, or None where nothing is against it.

    `query_empty`: no letter, digit or pictograph; `query_adult`: a term of the list, as whole words; `query_spam`: an
    address, a telephone number, endless repetition, or longer than a query is. The first that holds, in this order.
    `adult_terms` stand in for the shipped list.
    """
    return content_fates([query], adult_terms)[0]


def says_nothing(query: str) -> bool:
    """Whether a normalised query holds no letter, digit or pictograph: no list and no setting makes anything of it."""
    return not any(map(_says_something, query))


def content_fates(queries: Iterable[str], adult_terms: tuple[str, ...] | None = None) -> list[str | None]:
    """`content_fate` of each normalised query."""
    adult = _adult_pattern(adult_terms or shipped_list(ADULT_ENGLISH).terms)
    return [_fate(query, adult) for query in queries]


def _fate(query: str, adult: re.Pattern[str]) -> str | None:
    if says_nothing(query):
        return "query_empty"
    if adult.search(query):
        return "query_adult"
    if len(query) > MAX_CHARACTERS or query.count(" ") >= MAX_WORDS or _SPAM.search(query):
        return "query_spam"
    return None


def _says_something(character: str) -> bool:
    return character.isalnum() or unicodedata.category(character) == "So"


@lru_cache(maxsize=8)
def _adult_pattern(terms: tuple[str, ...]) -> re.Pattern[str]:
    """One pattern for all terms; between the words of a term anything may stand that is no letter or digit."""
    phrases = (r"[\W_]+".join(map(re.escape, normalise(term).split())) for term in terms)
    before, after = _NOT_INSIDE_WORD
    return re.compile(f"{before}(?:{'|'.join(sorted(phrases, key=len, reverse=True))}){after}")
