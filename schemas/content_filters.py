"""Which queries are excluded by their content: empty, adult, spam. A normalised query always has the same verdict.

The lists of terms are files: one term per line, `#` begins a comment, the first line is `# version: N`. A list's digest
is part of every request that uses it.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.text_contract import normalise
from clicktower.schemas.text_file import lines, read_text

BOT_USER_AGENTS = "bot_user_agents.txt"
ADULT_ENGLISH = "adult_en.txt"


@dataclass(frozen=True, kw_only=True, slots=True)
class TermList:
    terms: tuple[str, ...]
    digest: str  # of the terms, not of comments


@lru_cache(maxsize=8)
def shipped_list(name: str) -> TermList:
    """A built-in list, from schemas/content_lists."""
    return _parse(files("clicktower.schemas").joinpath("content_lists", name).read_text("utf-8"), name)


def read_list(uri: str) -> TermList:
    """A user's own list. Raises UsageError or StageError."""
    try:
        return _parse(read_text(uri), uri)
    except FileNotFoundError:
        raise UsageError(f"There is no list of terms at {uri}.", "Check the path.") from None
    except OSError as error:
        raise StageError(
            f"The list of terms {uri} cannot be read ({type(error).__name__}).",
            "Give a text file with one term per line.",
        ) from None


def adult_list(uri: str | None) -> TermList:
    """The list of adult terms: a user's own file, or the built-in one."""
    return read_list(uri) if uri else shipped_list(ADULT_ENGLISH)


def _parse(text: str, name: str) -> TermList:
    terms = tuple(line.strip() for _, line in lines(text) if not line.startswith("#"))
    if not terms:
        raise StageError(
            f"The list of terms {name} has no term: nothing would be filtered.", "Give a file with one term per line."
        )
    return TermList(terms=terms, digest=sha256("\n".join(terms).encode()).hexdigest()[:16])


# Word characters for the adult list: a term must not begin or end inside a word.
_NOT_INSIDE_WORD = (r"(?<![^\W_])", r"(?![^\W_])")

# Spam rules: what no searcher types. In doubt they keep a query: a number such as 000-767-8116 may be a part number,
# `2100000` too, and an address without a scheme is often pasted from the shop itself.
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
# A word in any match of _SPAM contains one of these, or two consecutive words of the query are equal.
_SPAM_WORD = re.compile(r"://|www\.|[<\[@+(]|8(?:00|33|44|55|66|77|88)|([^\W_])\1{9}")
_RUN = re.compile(r"[^\W_]+")
CONTENT_FATES = ("query_empty", "query_adult", "query_spam")
MAX_CHARACTERS = 500
MAX_WORDS = 64


def is_wordless(query: str) -> bool:
    """Whether a normalised query has no letter, digit or pictograph: no list or setting changes its verdict."""
    if query[:1].isalnum():  # most queries
        return False
    return not any(character.isalnum() or unicodedata.category(character) == "So" for character in query)


def content_fate(query: str, adult: Mapping[str, Sequence[str]]) -> str | None:
    """The fate of a normalised query's lines by its content, or None if it is acceptable.

    `query_empty`: no letter, digit or pictograph; `query_adult`: a term of the list, as whole words; `query_spam`: an
    address, a telephone number, endless repetition, or longer than any query. The first that applies, in this order.
    `adult`: terms `by_first_run`.
    """
    if is_wordless(query):
        return "query_empty"
    if any(_pattern(term).search(query) for run in {"", *_RUN.findall(query)} for term in adult.get(run, ())):
        return "query_adult"
    if len(query) > MAX_CHARACTERS or query.count(" ") >= MAX_WORDS or _SPAM.search(query):
        return "query_spam"
    return None


def content_fates(queries: Iterable[str], adult_terms: tuple[str, ...] | None = None) -> list[str | None]:
    """`content_fate` of each normalised query. `adult_terms` replace the built-in list."""
    texts = pa.array(queries, pa.string())
    adult = by_first_run(adult_terms or shipped_list(ADULT_ENGLISH).terms)
    fates = np.full(len(texts), None)
    suspects = np.flatnonzero(_may_have_fate(texts, adult))
    fates[suspects] = [content_fate(query, adult) for query in texts.take(suspects).to_pylist()]
    return fates.tolist()


def _may_have_fate(texts: pa.Array, adult: Mapping[str, Sequence[str]]) -> np.ndarray:
    """Whether `content_fate` has to check a query, bool [queries]: true for all with a fate, and for few others.

    The words of a query show that nearly all queries are plain, and each distinct word is checked once.
    """
    words = pc.split_pattern(texts, " ")
    encoded = words.flatten().dictionary_encode()
    distinct, word = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
    num_words = words.value_lengths().to_numpy()
    of_query = np.repeat(np.arange(len(texts)), num_words)

    def any_of_query(is_such: np.ndarray) -> np.ndarray:
        return np.bincount(of_query[is_such], minlength=len(texts)) > 0

    is_suspect = [not adult.keys().isdisjoint(_RUN.findall(text)) or bool(_SPAM_WORD.search(text)) for text in distinct]
    says_something = [not is_wordless(text) for text in distinct]
    is_again = np.zeros(len(word), bool)
    is_again[1:] = (word[1:] == word[:-1]) & (of_query[1:] == of_query[:-1])
    is_long = (num_words > MAX_WORDS) | (pc.utf8_length(texts).to_numpy() > MAX_CHARACTERS)
    is_plain = any_of_query(np.array(says_something, bool)[word]) & ~any_of_query(np.array(is_suspect, bool)[word])
    return ~is_plain | any_of_query(is_again) | is_long | ("" in adult)


@lru_cache(maxsize=8)
def by_first_run(terms: tuple[str, ...]) -> dict[str, list[str]]:
    """The terms by their first run of letters and digits, or "": that run stands alone wherever the term occurs."""
    terms_of_run: dict[str, list[str]] = {}
    for term in map(normalise, terms):
        run = _RUN.search(term)
        terms_of_run.setdefault(run[0] if run else "", []).append(term)
    return terms_of_run


@lru_cache(maxsize=4096)
def _pattern(term: str) -> re.Pattern[str]:
    """A pattern for a term as whole words; between two words any characters but letters and digits may stand."""
    before, after = _NOT_INSIDE_WORD
    return re.compile(before + r"[\W_]+".join(map(re.escape, term.split())) + after)
