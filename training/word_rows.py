"""Words -> rows of the table W, whose sum a tower reads: the one place that decides it, for training and for encoding.

A word's rows are those of its letter trigrams (schemas.trigrams). A model that was given word vectors knows some words
by themselves: such a word has one row, behind all trigrams' (training.word_vectors says which words, in which order).
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from schemas.trigrams import trigram_ids
from training.ragged import Ragged, starts

CONTRACT_VERSION = "1.0"  # of what is said above, beside that of trigrams


@dataclass(frozen=True)
class WordRows:
    """`words`, normalised: word k has the row trigram_rows + k."""

    trigram_rows: int
    words: tuple[str, ...] = ()

    @property
    def num_rows(self) -> int:
        return self.trigram_rows + len(self.words)

    def of(self, words: Sequence[str]) -> Ragged:
        """The rows of each word. Raises ValueError for a table without room for hashed trigrams."""
        return self.known(words, Ragged(*trigram_ids(words, self.trigram_rows)))

    def known(self, words: Sequence[str], trigrams: Ragged) -> Ragged:
        """The rows of each word, given its trigrams' for the case that it has none of its own."""
        if not self.words:
            return trigrams
        rows = np.fromiter((self.row_of.get(word, -1) for word in words), np.int64, len(words))
        has_own = rows >= 0
        lengths = np.where(has_own, 1, trigrams.lengths)
        offsets = starts(lengths)
        values = np.empty(offsets[-1], np.uint32)
        values[offsets[:-1][has_own]] = rows[has_own]
        values[np.repeat(~has_own, lengths)] = trigrams.take(np.flatnonzero(~has_own)).values
        return Ragged(offsets, values)

    @cached_property
    def row_of(self) -> Mapping[str, int]:
        return {word: self.trigram_rows + at for at, word in enumerate(self.words)}

    def text_contract(self) -> dict[str, Any]:
        """What it adds to a model's text contract: nothing where no word has a row of its own."""
        if not self.words:
            return {}
        digest = hashlib.sha256("\n".join(self.words).encode()).hexdigest()  # no word has white space
        return {"words": {"version": CONTRACT_VERSION, "number": len(self.words), "sha256": digest}}
