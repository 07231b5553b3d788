"""Texts as words, words as letter trigrams, and batches of texts for a tower.

    TextTable    distinct texts and distinct words, in ragged lists
    WordRows     which rows of the table W a word's input is the sum of
    TextBatch    some texts: each distinct word once, each distinct trigram once, every time step contiguous

A batch's texts are sorted by length, longest first, and aligned to their last words: at step s (of L, the longest
length) the texts with at least L - s words are active, and they are a prefix of the sorted texts. A step therefore
works on contiguous rows, padding does not exist, all embeddings are complete at the last step, and truncation after T
steps is the same cut for every text.

"Packed" rows are the words of all texts in that arrangement, step after step: step s has rows
step_offsets[s] to step_offsets[s + 1], text i of the sorted texts in row step_offsets[s] + i.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import pyarrow as pa
import torch

from schemas.text_contract import trigram_ids

CONTRACT_VERSION = "1.0"  # of the mapping of words with rows of their own, besides that of trigrams


@dataclass(frozen=True, slots=True)
class Ragged:
    """Lists in two flat arrays, as Arrow stores them: list i is values[offsets[i]:offsets[i + 1]]."""

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
        offsets = starts(lengths)
        at = np.repeat(self.offsets[index] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return Ragged(offsets, self.values[at])


def starts(lengths: np.ndarray) -> np.ndarray:
    """Where lists of these lengths begin when laid end to end, and where the last one ends: int64 [lists + 1]."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def concatenate(parts: Sequence[Ragged]) -> Ragged:
    return Ragged(
        starts(np.concatenate([part.lengths for part in parts])), np.concatenate([part.values for part in parts])
    )


def invert(ids: np.ndarray, num_ids: int) -> Ragged:
    """For each id its places, ascending: the transpose of a gather, which turns a scatter into a gather."""
    places = grouped_order(ids)
    return Ragged(starts(np.bincount(ids, minlength=num_ids)), places)


def distinct(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(the distinct ids, ascending; the place among them of each): np.unique with its inverse, for ids below 2^31."""
    order = grouped_order(ids)
    grouped = ids[order]
    begins = np.ones(len(ids), bool)
    np.not_equal(grouped[1:], grouped[:-1], out=begins[1:])
    places = np.empty(len(ids), np.int64)
    places[order] = np.cumsum(begins) - 1
    return grouped[begins], places


def grouped_order(ids: np.ndarray) -> np.ndarray:
    """The order that sorts ids (below 2^31) and keeps equal ones in place.

    One sort of 64-bit numbers that hold id and place: several times faster here than a stable argsort.
    """
    keys = (ids.astype(np.int64) << 32) | np.arange(len(ids))
    keys.sort()
    return keys & 0xFFFFFFFF


def from_arrow(column: pa.ChunkedArray) -> Ragged:
    """A list column's own memory where it is one chunk, else a copy."""
    lists = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return Ragged(lists.offsets.to_numpy().astype(np.int64), lists.values.to_numpy())


@dataclass(frozen=True)
class WordRows:
    """Words -> rows of the table W, the same in training and encoding: those of a word's letter trigrams.

    A model that was given word vectors knows some words by themselves (given_vectors): `words`, normalised, of which
    word k has one row, trigram_rows + k, and no others.
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
        offsets = starts(kept)
        at = np.repeat(self.words.offsets[:-1] - offsets[:-1], kept) + np.arange(offsets[-1])
        words = self.words.values[at]
        if overflow == "truncate":
            return replace(self, words=Ragged(offsets, words))
        bags = []
        for text in long:
            rest = self.words.values[self.words.offsets[text] + max_words - 1 : self.words.offsets[text + 1]]
            bags.append(self.trigrams.take(rest).values)
        words[offsets[long + 1] - 1] = len(self.trigrams) + np.arange(len(long))
        merged = Ragged(starts(np.array([len(bag) for bag in bags])), np.concatenate(bags))
        return TextTable(Ragged(offsets, words), concatenate([self.trigrams, merged]))


@dataclass(frozen=True, kw_only=True, slots=True)
class TextBatch:
    """A batch of texts as index arrays, independent of parameters, so that it can be prepared ahead of time."""

    order: torch.Tensor  # [texts] sorted text i is text order[i] of the caller
    step_offsets: tuple[int, ...]  # [steps + 1] packed rows of each step
    packed_words: torch.Tensor  # [packed] the distinct word in each packed row
    word_trigrams: torch.Tensor  # the trigrams of all distinct words, as indices into rows
    word_offsets: torch.Tensor  # [words] where each word's trigrams begin
    rows: torch.Tensor  # [rows] the distinct trigram ids, ascending
    # The same two relations the other way round, for the gradient:
    words_packed: torch.Tensor  # the packed rows of all distinct words
    words_packed_offsets: torch.Tensor  # [words]
    trigram_words: torch.Tensor  # the distinct words of all rows
    trigram_offsets: torch.Tensor  # [rows]

    @property
    def num_steps(self) -> int:
        return len(self.step_offsets) - 1

    def active(self, step: int) -> int:
        """The number of sorted texts that have a word at this step; the others have not begun."""
        return self.step_offsets[step + 1] - self.step_offsets[step]

    def to(self, device: torch.device) -> "TextBatch":
        """This batch, from the CPU, on a device. To a GPU all arrays go in one asynchronous copy."""
        if device.type == "cpu":
            return self
        arrays: dict[str, Any] = {
            field.name: value for field in fields(self) if isinstance(value := getattr(self, field.name), torch.Tensor)
        }
        moved = copied(torch.cat(list(arrays.values())), device).split([len(array) for array in arrays.values()])
        return replace(self, **dict(zip(arrays, moved, strict=True)))


class OnDevice:
    """A micro-batch of tensors and of other batches, as a dataclass."""

    __slots__ = ()

    def to(self, device: torch.device) -> Self:
        """This batch, from the CPU, on a device."""
        made: Any = self
        return replace(made, **{field.name: _moved(getattr(self, field.name), device) for field in fields(made)})


def _moved(value: Any, device: torch.device) -> Any:
    match value:
        case torch.Tensor():
            return copied(value, device)
        case TextBatch() | OnDevice():
            return value.to(device)
        case tuple():
            moved = [_moved(part, device) for part in value]
            return type(value)(*moved) if hasattr(value, "_fields") else tuple(moved)
    return value


def copied(array: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A CPU tensor on a device. To a GPU it is copied asynchronously from pinned memory."""
    return array if device.type == "cpu" else array.pin_memory().to(device, non_blocking=True)


def text_batch(parts: Sequence[tuple[TextTable, np.ndarray]]) -> TextBatch:
    """The batch of the texts `index` of each table, one part after the other.

    Raises ValueError for a text without words, which has no embedding.
    """
    words_of_texts, word_base = [], 0
    for table, index in parts:
        taken = table.words.take(index)
        words_of_texts.append(Ragged(taken.offsets, taken.values + np.int64(word_base)))
        word_base += len(table.trigrams)
    texts = concatenate(words_of_texts)
    lengths = texts.lengths
    if not len(lengths) or lengths.min() == 0:
        raise ValueError("every text of a batch needs at least one word")

    words, local = distinct(texts.values)
    order, step_offsets, packed_from = _pack(lengths, texts.offsets)
    packed_words = local[packed_from]

    trigrams = _trigrams(parts, words)
    rows, word_trigrams = distinct(trigrams.values)
    words_packed = invert(packed_words, len(words))
    trigram_words = invert(word_trigrams, len(rows))
    word_of_place = np.repeat(np.arange(len(words)), trigrams.lengths)
    return TextBatch(
        order=torch.from_numpy(order),
        step_offsets=tuple(step_offsets.tolist()),
        packed_words=torch.from_numpy(packed_words),
        word_trigrams=torch.from_numpy(word_trigrams),
        word_offsets=torch.from_numpy(trigrams.offsets[:-1]),
        rows=torch.from_numpy(rows.astype(np.int64)),
        words_packed=torch.from_numpy(words_packed.values),
        words_packed_offsets=torch.from_numpy(words_packed.offsets[:-1]),
        trigram_words=torch.from_numpy(word_of_place[trigram_words.values]),
        trigram_offsets=torch.from_numpy(trigram_words.offsets[:-1]),
    )


def _pack(lengths: np.ndarray, text_offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(order of texts, offsets of steps, for each packed row where its word stands among the words of all texts)."""
    longest = int(lengths.max())
    order = grouped_order(longest - lengths)
    lengths = lengths[order]
    at_least = np.cumsum(np.bincount(lengths, minlength=longest + 1)[::-1])[:longest]  # texts of >= L - s words
    step_offsets = starts(at_least)
    text = np.repeat(np.arange(len(lengths)), lengths)
    word = np.arange(len(text)) - np.repeat(starts(lengths)[:-1], lengths)
    packed_from = np.empty(len(text), np.int64)
    packed_from[step_offsets[longest - lengths[text] + word] + text] = text_offsets[order][text] + word
    return order, step_offsets, packed_from


def _trigrams(parts: Sequence[tuple[TextTable, np.ndarray]], words: np.ndarray) -> Ragged:
    """The trigram ids of distinct words, ascending, which are numbered through the tables."""
    found, base = [], 0
    for table, _ in parts:
        mine = words[np.searchsorted(words, base) : np.searchsorted(words, base + len(table.trigrams))] - base
        found.append(table.trigrams.take(mine))
        base += len(table.trigrams)
    return concatenate(found)
