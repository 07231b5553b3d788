"""Texts as words and words as letter trigrams, in flat arrays. Free of torch, like everything that a search needs.

TextTable    distinct texts and distinct words, in ragged lists
WordRows     which rows of the table W a word's input is the sum of
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from clicktower.schemas.text_contract import trigram_ids

CONTRACT_VERSION = "1.0"  # of the mapping of words with rows of their own, besides that of trigrams


@dataclass(frozen=True, slots=True)
class Ragged:
    """Lists in two flat arrays, as in Arrow: list i is values[offsets[i]:offsets[i + 1]]."""

    offsets: np.ndarray  # int64 [lists + 1]
    values: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    def take(self, index: np.ndarray) -> "Ragged":
        """The lists at `index`, in that order."""
        lengths = self.offsets[index + 1] - self.offsets[index]
        offsets = list_offsets(lengths)
        at = np.repeat(self.offsets[index] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return Ragged(offsets, self.values[at])


def list_offsets(lengths: np.ndarray) -> np.ndarray:
    """Where concatenated lists of these lengths begin, and where the last one ends: int64 [lists + 1]."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def concatenate(parts: Sequence[Ragged]) -> Ragged:
    return Ragged(
        list_offsets(np.concatenate([part.lengths for part in parts])), np.concatenate([part.values for part in parts])
    )


def grouped_order(ids: np.ndarray) -> np.ndarray:
    """The order that sorts ids (below 2^31) and keeps equal ones in place.

    One sort of 64-bit numbers that hold id and place: several times faster here than a stable argsort.
    """
    keys = (ids.astype(np.int64) << 32) | np.arange(len(ids))
    keys.sort()
    return keys & 0xFFFFFFFF


def from_arrow(column: pa.ChunkedArray) -> Ragged:
    """A list column's own memory if it is one chunk, otherwise a copy."""
    lists = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return Ragged(lists.offsets.to_numpy().astype(np.int64), lists.values.to_numpy())


@dataclass(frozen=True)
class WordRows:
    """Words -> rows of the table W, the same in training and encoding: those of a word's letter trigrams.

    A model with word vectors (model.word_vectors) has some words as wholes: `words`, normalised, of which word k has
    one row, trigram_rows + k, and no others.
    """

    trigram_rows: int
    words: tuple[str, ...] = ()

    @property
    def num_rows(self) -> int:
        return self.trigram_rows + len(self.words)

    def of(self, words: Sequence[str]) -> Ragged:
        """The rows of each word. Raises ValueError for a table without room for hashed trigrams."""
        return self.known(words, Ragged(*trigram_ids(words, self.trigram_rows)))

    def known(self, words: Sequence[str], trigrams: Ragged) -> Ragged:
        """The rows of each word, given the trigrams of words without a row of their own."""
        if not self.words:
            return trigrams
        rows = np.fromiter((self.row_of.get(word, -1) for word in words), np.int64, len(words))
        is_whole = rows >= 0
        lengths = np.where(is_whole, 1, trigrams.lengths)
        offsets = list_offsets(lengths)
        values = np.empty(offsets[-1], np.uint32)
        values[offsets[:-1][is_whole]] = rows[is_whole]
        values[np.repeat(~is_whole, lengths)] = trigrams.take(np.flatnonzero(~is_whole)).values
        return Ragged(offsets, values)

    @cached_property
    def row_of(self) -> Mapping[str, int]:
        return {word: self.trigram_rows + at for at, word in enumerate(self.words)}

    def text_contract(self) -> dict[str, Any]:
        """The entries it adds to a model's text contract: none if no word has its own row."""
        if not self.words:
            return {}
        digest = hashlib.sha256("\n".join(self.words).encode()).hexdigest()  # no word has white space
        return {"words": {"version": CONTRACT_VERSION, "number": len(self.words), "sha256": digest}}


@dataclass(frozen=True, slots=True)
class TextTable:
    """Distinct texts as words, and distinct words as trigram ids: a shard's two tables as flat arrays."""

    words: Ragged  # of each text: rows of `trigrams`
    trigrams: Ragged  # of each word: rows of the trigram table, repeated as often as they occur

    def __len__(self) -> int:
        return len(self.words)

    def limited(self, max_words: int, overflow: str) -> "TextTable":
        """These texts with at most `max_words` words (0: no limit).

        `overflow` truncate drops the rest; merge makes one bag of trigrams of all words from the last position on
        (docs/model.md section 1, rule 5).
        """
        lengths = self.words.lengths
        long = np.flatnonzero(lengths > max_words)
        if not max_words or not len(long):
            return self
        kept = np.minimum(lengths, max_words)
        offsets = list_offsets(kept)
        at = np.repeat(self.words.offsets[:-1] - offsets[:-1], kept) + np.arange(offsets[-1])
        words = self.words.values[at]
        if overflow == "truncate":
            return replace(self, words=Ragged(offsets, words))
        bags = []
        for text in long:
            tail = self.words.values[self.words.offsets[text] + max_words - 1 : self.words.offsets[text + 1]]
            bags.append(self.trigrams.take(tail).values)
        words[offsets[long + 1] - 1] = len(self.trigrams) + np.arange(len(long))
        merged = Ragged(list_offsets(np.array([len(bag) for bag in bags])), np.concatenate(bags))
        return TextTable(Ragged(offsets, words), concatenate([self.trigrams, merged]))
