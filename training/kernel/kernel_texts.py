"""Texts for the kernels: cut into words and trigrams, and as the index of a batch.

Texts are cut by the text contract (schemas.text_contract): ASCII texts are lower-cased and split in C++. Any
other text is split by Python's own `words`, and its words are counted and split into trigrams with the rest.

The index of a batch (batch.h) is made in linear time. What `text_batch` is to the reference path: the same words,
trigrams and inverse relations, in chunks of texts.
"""

import ctypes
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from schemas.text_contract import COMPUTED_IDS, words
from training.data.text_batch import Ragged, TextTable
from training.kernel.kernel_library import Owned, fields, library


def tokenised(texts: Sequence[str] | pa.StringArray | pa.LargeStringArray, table_rows: int) -> TextTable:
    """Texts cut into words and trigrams by the text contract, each distinct word once, numbered as they first appear.

    A text without a word has an empty list. Raises ValueError for a table without room for hashed trigrams, and
    MemoryError for a text of 2^31 bytes.
    """
    if table_rows <= COMPUTED_IDS:
        raise ValueError(
            f"table_rows = {table_rows} leaves no row for hashed trigrams; it must be above {COMPUTED_IDS}"
        )
    given = _Utf8(texts)
    not_ascii = np.empty(len(given), np.int64)
    num_not_ascii = library().find_not_ascii(
        given.address, given.offsets.ctypes.data, len(given), not_ascii.ctypes.data
    )
    not_ascii = not_ascii[:num_not_ascii]
    normalised = _Utf8([" ".join(words(given.text(at))) for at in not_ascii.tolist()])
    handle = library().tokens_new(
        given.address, given.offsets.ctypes.data, len(given),
        normalised.address, normalised.offsets.ctypes.data, not_ascii.ctypes.data, num_not_ascii, table_rows,
    )  # fmt: skip
    tokens = Owned("tokens", handle, f"{len(given):,} texts cut into words, or one of them is too large")
    return TextTable(
        words=Ragged(tokens.numbers(0, np.int64), tokens.numbers(1, np.int32)),
        trigrams=Ragged(tokens.numbers(2, np.int64), tokens.numbers(3, np.uint32)),
    )


class _Utf8:
    """Texts in one buffer, text i from offsets[i] to offsets[i + 1]."""

    def __init__(self, texts: Sequence[str] | pa.StringArray | pa.LargeStringArray) -> None:
        try:
            column = pa.array(texts, pa.large_string()) if not isinstance(texts, pa.Array) else texts
        except UnicodeEncodeError:  # lone surrogates, which Arrow has no form for
            encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
            self.offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
            self._bytes = pa.py_buffer(b"".join(encoded))
        else:
            if column.null_count:
                raise TypeError(f"{column.null_count:,} of {len(column):,} texts are missing (null)")
            column = column.cast(pa.large_string())
            _, offsets, self._bytes = column.buffers()
            start, end = column.offset, column.offset + len(column) + 1
            self.offsets = np.frombuffer(offsets, np.int64)[start:end] if offsets else np.zeros(1, np.int64)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def address(self) -> int | None:
        return self._bytes.address if self._bytes else None

    def text(self, at: int) -> str:
        start, end = self.offsets[at : at + 2].tolist()
        return str(self._bytes.slice(start, end - start), "utf-8", "surrogatepass")


CHUNK_TEXTS = 128
ARRAYS = (
    "order", "begins", "chunk_sequences", "chunk_steps", "step_rows", "packed_words", "packed_words_reversed",
    "word_offsets", "word_trigrams", "rows", "word_rows", "row_word_offsets", "row_words",
)  # fmt: skip

_FOR_GRADIENT, _BOTH_DIRECTIONS, _SHARED_PREFIXES = 1, 2, 4
_NO_WORDS, _OUT_OF_RANGE, _TOO_LARGE = 1, 2, 3


class _TextPart(ctypes.Structure):
    _fields_ = fields(
        word_offsets="p", words="p", trigram_offsets="p", trigrams="p",
        num_texts="q", num_words="q", index="p", num_taken="q",
    )  # fmt: skip


class BatchIndex(Owned):
    __slots__ = ("num_texts",)

    def __init__(self, handle: int, num_texts: int) -> None:
        super().__init__("batch", handle, f"{num_texts:,} texts")
        self.num_texts = num_texts

    def array(self, name: str) -> np.ndarray:
        """One of ARRAYS, int32, read only and without a copy."""
        return self.numbers(ARRAYS.index(name), np.int32)


def kernel_batch(
    parts: Sequence[tuple[TextTable, np.ndarray]],
    *,
    place: np.ndarray | None = None,
    ungrouped: int = 0,
    group: int = 0,
    for_gradient: bool = True,
    both_directions: bool = False,
    share_prefixes: bool = False,
) -> BatchIndex:
    """The batch of the texts `index` of each table, one part after the other.

    `place`: what the caller calls each of them, int32 [texts]; None: as they come. `group`: each run of so many texts
    after the first `ungrouped` ones, as the caller calls them, is a chunk of its own; the others, and with group 0 all,
    are in chunks of CHUNK_TEXTS, longest first. Only with `for_gradient` are there rows and the words of each, only
    with `both_directions` the arrays of the reversed texts. With `share_prefixes`, if not both ways, words that texts
    begin with alike are there once. Raises ValueError for a text without words, which has no embedding, and IndexError
    for a text, word or trigram that cannot be.
    """
    # A shard's own memory has these types and is not copied. C++ knows a table of two parts by its addresses.
    tables = {
        id(table): (
            np.ascontiguousarray(table.words.offsets, np.int64),
            np.ascontiguousarray(table.words.values, np.int32),
            np.ascontiguousarray(table.trigrams.offsets, np.int64),
            np.ascontiguousarray(table.trigrams.values, np.uint32),
        )
        for table, _ in parts
    }
    indices = [np.ascontiguousarray(index, np.int64) for _, index in parts]
    array = (_TextPart * len(parts))()
    for at, ((table, _), index) in enumerate(zip(parts, indices, strict=True)):
        addresses = (values.ctypes.data for values in tables[id(table)])
        array[at] = _TextPart(*addresses, len(table), len(table.trigrams), index.ctypes.data, len(index))
    num_texts = sum(len(index) for _, index in parts)
    if place is not None:
        place = np.ascontiguousarray(place, np.int32)
        if len(place) != num_texts:
            raise ValueError(f"{num_texts:,} texts were given {len(place):,} places")
    error = ctypes.c_int32()
    options = _FOR_GRADIENT * for_gradient | _BOTH_DIRECTIONS * both_directions
    options |= _SHARED_PREFIXES * (share_prefixes and not both_directions)
    handle = library().batch_new(
        array, len(parts), None if place is None else place.ctypes.data, ungrouped, group, options, ctypes.byref(error)
    )
    if error.value == _NO_WORDS:
        raise ValueError("every text of a batch needs at least one word")
    if error.value == _OUT_OF_RANGE:
        raise IndexError("a batch names a text, a word or a trigram that is not in its table")
    if error.value == _TOO_LARGE:
        raise MemoryError(f"a batch of {num_texts:,} texts has too many words")
    return BatchIndex(handle, num_texts)
