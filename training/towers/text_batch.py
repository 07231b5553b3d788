"""Batches of texts for a tower: each distinct word once, each distinct trigram once, every time step contiguous.

A batch's texts are sorted by length, longest first, and aligned to their last words: at step s (of L, the longest
length) the texts with at least L - s words are active, and they are a prefix of the sorted texts. A step therefore
works on contiguous rows, padding does not exist, all embeddings are complete at the last step, and truncation after T
steps is the same cut for every text.

"Packed" rows are the words of all texts in that arrangement, step after step: step s has rows
step_offsets[s] to step_offsets[s + 1], text i of the sorted texts in row step_offsets[s] + i.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
import torch

from clicktower.training.towers.text_table import Ragged, TextTable, concatenate, grouped_order, list_offsets


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
        batch: Any = self
        return replace(batch, **{field.name: _to_device(getattr(self, field.name), device) for field in fields(batch)})


def _to_device(value: Any, device: torch.device) -> Any:
    match value:
        case torch.Tensor():
            return copied(value, device)
        case TextBatch() | OnDevice():
            return value.to(device)
        case tuple():
            moved = [_to_device(part, device) for part in value]
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
    step_offsets = list_offsets(at_least)
    text = np.repeat(np.arange(len(lengths)), lengths)
    word = np.arange(len(text)) - np.repeat(list_offsets(lengths)[:-1], lengths)
    packed_from = np.empty(len(text), np.int64)
    packed_from[step_offsets[longest - lengths[text] + word] + text] = text_offsets[order][text] + word
    return order, step_offsets, packed_from


def _trigrams(parts: Sequence[tuple[TextTable, np.ndarray]], words: np.ndarray) -> Ragged:
    """The trigram ids of distinct words, ascending, which are numbered through the tables."""
    lists, base = [], 0
    for table, _ in parts:
        rows = words[np.searchsorted(words, base) : np.searchsorted(words, base + len(table.trigrams))] - base
        lists.append(table.trigrams.take(rows))
        base += len(table.trigrams)
    return concatenate(lists)


def invert(ids: np.ndarray, num_ids: int) -> Ragged:
    """The indices of each id, ascending: the transpose of a gather, which turns a scatter into a gather."""
    places = grouped_order(ids)
    return Ragged(list_offsets(np.bincount(ids, minlength=num_ids)), places)


def distinct(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(the distinct ids, ascending; the index of each among them): np.unique with its inverse, for ids below 2^31."""
    order = grouped_order(ids)
    grouped = ids[order]
    begins = np.ones(len(ids), bool)
    np.not_equal(grouped[1:], grouped[:-1], out=begins[1:])
    places = np.empty(len(ids), np.int64)
    places[order] = np.cumsum(begins) - 1
    return grouped[begins], places
