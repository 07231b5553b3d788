"""How often each word occurs in each title: what the language model and the topic model count on.

Words are those of the text contract. The counts are kept sparse, as one entry per title and distinct word of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
    known: Mapping[str, int]
    if vocabulary is None:
        known = grown = {}
        rows = [[grown.setdefault(word, len(grown)) for word in found] for found in cut]
    else:
        known = vocabulary
        rows = [[known[word] for word in found if word in known] for found in cut]
    title_of = np.repeat(np.arange(len(rows), dtype=np.int64), [len(row) for row in rows])
    word_of = np.array([word for row in rows for word in row], np.int64)
    pairs, counts = np.unique(title_of * max(1, len(known)) + word_of, return_counts=True)
    title_of, word_of = np.divmod(pairs, max(1, len(known)))
    starts = np.searchsorted(title_of, np.arange(len(titles) + 1))
    return TermCounts(vocabulary=known, word_of=word_of.astype(np.int32), counts=counts, starts=starts)
