"""Normalised texts and words of whole columns: the rules of `schemas.words`, a million texts per second.

Nearly every title is ASCII, and for ASCII the rules are a few operations on the column's bytes. The other texts go
through `schemas.words` one by one; so do words of other scripts, each distinct one once.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.words import normalise, split_normalised

_SPACE = 32
# What str.split() takes for white space among the characters below the space.
_IS_OTHER_SPACE = np.zeros(_SPACE + 1, bool)
_IS_OTHER_SPACE[[*range(0x09, 0x0E), *range(0x1C, 0x20)]] = True


def normalise_column(texts: pa.Array | pa.ChunkedArray) -> pa.Array:
    """`words.normalise` of each text. `texts`: string, without nulls."""
    texts, data, offsets = _bytes_of(texts)
    is_odd = _has_odd_space(data, offsets) | ~pc.string_is_ascii(texts).to_numpy(zero_copy_only=False)
    lowered = pc.ascii_lower(texts)
    if not is_odd.any():
        return lowered
    odd = pa.array(is_odd)
    one_by_one = pa.array([normalise(text) for text in texts.filter(odd).to_pylist()], pa.string())
    return pc.replace_with_mask(lowered, odd, one_by_one)


def words_of_column(normalised: pa.Array | pa.ChunkedArray) -> tuple[np.ndarray, pa.DictionaryArray]:
    """The words of texts that `normalise` made, one after the other: (offsets, words).

    Text t has words[offsets[t]:offsets[t + 1]]; offsets: int64 (len(normalised) + 1). The dictionary holds each
    distinct word once, in order of first appearance.
    """
    normalised, data, offsets = _bytes_of(normalised)
    # A piece is a word with the space behind it, if there is one: pieces cover the bytes without a gap, so they are a
    # column of their own without a byte being moved.
    is_bound = np.zeros(len(data) + 1, bool)
    is_bound[1:] = data == _SPACE
    is_bound[offsets] = True
    bounds = np.flatnonzero(is_bound).astype(np.int32)
    pieces = pa.StringArray.from_buffers(len(bounds) - 1, pa.py_buffer(bounds), pa.py_buffer(data)).dictionary_encode()
    # A word is up to two pieces, so the few distinct pieces are encoded once more as words.
    distinct = pc.utf8_rtrim(pieces.dictionary, " ").dictionary_encode()
    codes = distinct.indices.take(pieces.indices)
    return _cut_unspaced(np.searchsorted(bounds, offsets), codes, distinct.dictionary)


def _cut_unspaced(offsets: np.ndarray, codes: pa.Array, spaced: pa.Array) -> tuple[np.ndarray, pa.DictionaryArray]:
    """Offsets and words, from those that white space parts: the words of unspaced scripts are cut in pieces."""
    other = np.flatnonzero(~pc.string_is_ascii(spaced).to_numpy(zero_copy_only=False))
    parts = map(split_normalised, spaced.take(pa.array(other)).to_pylist())
    cut = {code: found for code, found in zip(other.tolist(), parts, strict=True) if len(found) > 1}
    if not cut:
        return offsets, pa.DictionaryArray.from_arrays(codes, spaced)
    # Still in order of first appearance: what appears first is in the word that appears first.
    every_part = [part for code, word in enumerate(spaced.to_pylist()) for part in cut.get(code, (word,))]
    encoded = pa.array(every_part, pa.string()).dictionary_encode()
    num_parts = np.ones(len(spaced), np.int64)
    num_parts[list(cut)] = list(map(len, cut.values()))
    first_part = np.cumsum(num_parts) - num_parts
    word = codes.to_numpy()
    parts_before = np.concatenate([[0], np.cumsum(num_parts[word])])
    part = np.arange(parts_before[-1]) + np.repeat(first_part[word] - parts_before[:-1], num_parts[word])
    return parts_before[offsets], pa.DictionaryArray.from_arrays(
        encoded.indices.take(pa.array(part)), encoded.dictionary
    )


def _has_odd_space(data: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Whether each text has white space that is not one space between two words, bool; its ASCII alone is looked at."""
    at = np.flatnonzero(data <= _SPACE)
    found = data[at]
    is_space = found == _SPACE
    # The start of a text is no place for a space, nor is the place after one, nor the end.
    is_border = np.zeros(len(data) + 1, bool)
    is_border[offsets] = True
    follows = np.zeros(len(at), bool)
    follows[1:] = (at[1:] == at[:-1] + 1) & is_space[:-1]
    is_odd = _IS_OTHER_SPACE[found] | (is_space & (follows | is_border[at] | is_border[at + 1]))
    odd_texts = np.zeros(len(offsets) - 1, bool)
    odd_texts[np.searchsorted(offsets, at[is_odd], side="right") - 1] = True
    return odd_texts


def _bytes_of(texts: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, np.ndarray, np.ndarray]:
    """(the column in one piece, its bytes, where each text begins in them and the last one ends)."""
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    if texts.null_count:
        raise AssertionError("a column of texts holds nulls")
    _, offset_buffer, data_buffer = texts.buffers()
    if not len(texts) or data_buffer is None:
        return texts, np.zeros(0, np.uint8), np.zeros(len(texts) + 1, np.int32)
    offsets = np.frombuffer(offset_buffer, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    data = np.frombuffer(data_buffer, np.uint8)[offsets[0] : offsets[-1]]
    return texts, data, offsets - offsets[0]
