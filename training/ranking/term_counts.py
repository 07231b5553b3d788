"""How often each word occurs in each title, sparse: one entry for each title and distinct word of it.

Words are the terms of the lexical contract in a language or, without a language, the words of the text contract. A
column of titles is cut as a whole, a million titles in seconds.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from clicktower.schemas.languages import Language
from clicktower.schemas.lexical_contract import Analyser
from clicktower.schemas.text_contract import CONTRACT_VERSION, normalise_column, words, words_of_column

Titles: TypeAlias = Sequence[str] | pa.Array | pa.ChunkedArray
_CHUNK_TITLES = 1 << 20  # cut into words at once
_FREQUENT_TERMS = 16_384  # whose numbers are kept


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TermCounts:
    """Entries in the order of the words, within a word by title; word w has the entries starts[w]:starts[w + 1]."""

    vocabulary: Mapping[str, int]  # in order of first appearance
    starts: np.ndarray  # int64 [words + 1]
    title_of: np.ndarray  # int32 [entries]
    counts: np.ndarray  # int64 [entries]: at least 1
    lengths: np.ndarray  # int64 [titles]: words, repeated ones as often as they occur

    @property
    def titles_with(self) -> np.ndarray:
        """The number of titles that have each word, int64 [words]."""
        return np.diff(self.starts)

    @property
    def word_of(self) -> np.ndarray:
        """The word of each entry, int64 [entries]; ascending."""
        return np.repeat(np.arange(len(self.vocabulary)), self.titles_with)

    @property
    def of_words(self) -> np.ndarray:
        """The occurrences of each word in all titles, int64 [words]."""
        return np.bincount(self.word_of, self.counts, len(self.vocabulary)).astype(np.int64)


class SortedTerms:
    """The terms of a file in the order of their UTF-8 bytes: term i is characters[bounds[i]:bounds[i + 1]].

    Only those that a term is compared with are read.
    """

    def __init__(self, bounds: Any, characters: Any) -> None:
        """Both are bytes-like: arrays, or buffers of Arrow; bounds: int64."""
        self._bounds, self._characters = memoryview(bounds).cast("B").cast("q"), memoryview(characters).cast("B")
        self._frequent = lru_cache(_FREQUENT_TERMS)(self._find)  # queries share most of their words

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def number(self, term: str) -> int | None:
        """The number of a term, None for an unknown one."""
        try:
            return self._frequent(term)
        except KeyError:  # is not kept: anyone may ask for any word
            return None

    def _find(self, term: str) -> int:
        encoded = term.encode("utf-8", "surrogatepass")
        number = bisect_left(range(len(self)), encoded, key=self._encoded)
        if number == len(self) or self._encoded(number) != encoded:
            raise KeyError(term)
        return number

    def _encoded(self, number: int) -> bytes:
        return self._characters[self._bounds[number] : self._bounds[number + 1]].tobytes()


def count_terms(titles: Titles, language: Language | None) -> TermCounts:
    """The counts of the titles' words."""
    analyser = Analyser(language) if language else None
    vocabulary: dict[str, int] = {}
    lengths, numbers_of_chunks = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for start in range(0, len(titles), _CHUNK_TITLES):
        part = titles[start : start + _CHUNK_TITLES]
        column = part if isinstance(part, pa.Array | pa.ChunkedArray) else pa.array(part)
        column = column.cast(pa.string())
        offsets, of_chunk = analyser.terms_of_column(column) if analyser else words_of_column(normalise_column(column))
        lengths.append(np.diff(offsets))
        numbers = [vocabulary.setdefault(word, len(vocabulary)) for word in of_chunk.dictionary.to_pylist()]
        numbers_of_chunks.append(np.array(numbers, np.int64)[of_chunk.indices.to_numpy()])
    lengths_N = np.concatenate(lengths)
    # Word and title as one number with the same order, in place: there are many.
    keys = np.concatenate(numbers_of_chunks)
    del numbers_of_chunks
    keys *= len(titles)
    keys += np.repeat(np.arange(len(titles)), lengths_N)
    keys.sort()
    firsts = np.flatnonzero(np.diff(keys, prepend=-1))
    counts = np.diff(firsts, append=len(keys))
    word_of, title_of = np.divmod(keys[firsts], max(1, len(titles)))
    starts = np.concatenate([[0], np.cumsum(np.bincount(word_of, minlength=len(vocabulary)))])
    return TermCounts(
        vocabulary=vocabulary, starts=starts, title_of=title_of.astype(np.int32), counts=counts, lengths=lengths_N
    )


def terms_of(text: str, language: Language | None) -> list[str]:
    """The words of a text, as `count_terms` counts them, in reading order and with repeats."""
    return Analyser(language).terms(text) if language else words(text)


def contract(language: Language | None) -> dict[str, str]:
    """What a reader of saved words must have, to look them up."""
    return Analyser(language).contract if language else {"trigrams": CONTRACT_VERSION}


def known_words(query: str, vocabulary: Mapping[str, int], language: Language | None) -> list[int]:
    """The numbers of the known words of a query, in order and with repeats."""
    return [vocabulary[word] for word in terms_of(query, language) if word in vocabulary]


def idf(num_titles: int, having: int) -> float:
    """The rarity of a word by the number of titles that have it, in Lucene's form: never negative."""
    return math.log(1 + (num_titles - having + 0.5) / (having + 0.5))
