"""How often each word occurs in each title: what the language model and the topic model count on.

Words are those of the text contract. The counts are kept sparse, as one entry per title and distinct word of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from schemas.words import words


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TermCounts:
    """Entries in the order of the titles, within a title by word; title d has the entries starts[d]:starts[d + 1]."""

    vocabulary: Mapping[str, int]
    word_of: np.ndarray  # int32 [entries]
    counts: np.ndarray  # int64 [entries]: at least 1
    starts: np.ndarray  # int64 [titles + 1]

    @property
    def title_of(self) -> np.ndarray:
        """The title of each entry, int32 [entries]; ascending."""
        return np.repeat(np.arange(len(self.starts) - 1, dtype=np.int32), np.diff(self.starts))

    @property
    def lengths(self) -> np.ndarray:
        """The words of each title, repeated ones as often as they occur, int64 [titles]."""
        return np.diff(np.concatenate([[0], np.cumsum(self.counts)])[self.starts])

    @property
    def of_words(self) -> np.ndarray:
        """The occurrences of each word in all titles, int64 [words]."""
        return np.bincount(self.word_of, self.counts, len(self.vocabulary)).astype(np.int64)

    def by_word(self) -> tuple[np.ndarray, np.ndarray]:
        """(the entries ordered by word, then title, int64; where each word starts among them, int64 [words + 1])."""
        num_entries = np.bincount(self.word_of, minlength=len(self.vocabulary))
        return np.argsort(self.word_of, kind="stable"), np.concatenate([[0], np.cumsum(num_entries)])


def count_terms(titles: Sequence[str], vocabulary: Mapping[str, int] | None = None) -> TermCounts:
    """The counts of the titles' words; with a vocabulary, of its words alone (others are left out)."""
    cut = [words(title) for title in titles]
    found = list(chain.from_iterable(cut))
    if vocabulary is None:
        vocabulary = {word: place for place, word in enumerate(dict.fromkeys(found))}
    word_of = np.fromiter((vocabulary.get(word, -1) for word in found), np.int64, len(found))
    title_of = np.repeat(np.arange(len(cut)), [len(row) for row in cut])
    num_words = max(1, len(vocabulary))
    pairs, counts = np.unique((title_of * num_words + word_of)[word_of >= 0], return_counts=True)
    title_of, word_of = np.divmod(pairs, num_words)
    starts = np.searchsorted(title_of, np.arange(len(titles) + 1))
    return TermCounts(vocabulary=vocabulary, word_of=word_of.astype(np.int32), counts=counts, starts=starts)
