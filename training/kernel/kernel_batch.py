"""The index of a batch of texts for the kernels (described in batch.h), made in linear time.

What `text_batch` is to the reference path: the same words, trigrams and inverse relations, in chunks of texts.
"""

import ctypes
import weakref
from collections.abc import Sequence
from functools import cache

import numpy as np

from training.data.text_batch import TextTable
from training.kernel.kernel_library import library, view

CHUNK_TEXTS = 128
ARRAYS = (
    "order", "begins", "chunk_sequences", "chunk_steps", "step_rows", "packed_words", "packed_words_reversed",
    "word_offsets", "word_trigrams", "rows", "word_rows", "row_word_offsets", "row_words",
)  # fmt: skip

_FOR_GRADIENT, _BOTH_DIRECTIONS, _SHARED_PREFIXES = 1, 2, 4
_NO_WORDS, _OUT_OF_RANGE, _TOO_LARGE = 1, 2, 3


class _TextPart(ctypes.Structure):
    _fields_ = (
        ("word_offsets", ctypes.c_void_p),
        ("words", ctypes.c_void_p),
        ("trigram_offsets", ctypes.c_void_p),
        ("trigrams", ctypes.c_void_p),
        ("num_texts", ctypes.c_int64),
        ("num_words", ctypes.c_int64),
        ("index", ctypes.c_void_p),
        ("num_taken", ctypes.c_int64),
    )


@cache
def _library() -> ctypes.CDLL:
    loaded = library()
    loaded.batch_new.restype = loaded.batch_array.restype = ctypes.c_void_p
    loaded.batch_new.argtypes = (
        ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32,
        ctypes.c_void_p,
    )  # fmt: skip
    loaded.batch_array.argtypes = (ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)
    loaded.batch_free.argtypes = (ctypes.c_void_p,)
    loaded.batch_free.restype = None
    return loaded


class BatchIndex:
    """An index in the kernels' own memory, which is freed with this object."""

    __slots__ = ("__weakref__", "handle", "num_texts")

    def __init__(self, handle: int, num_texts: int) -> None:
        self.handle = handle
        self.num_texts = num_texts
        weakref.finalize(self, _library().batch_free, handle).atexit = False

    def array(self, name: str) -> np.ndarray:
        """One of ARRAYS, int32, read only and without a copy."""
        length = ctypes.c_int64()
        address = _library().batch_array(self.handle, ARRAYS.index(name), ctypes.byref(length))
        return view(self, address, length.value, np.int32)


class _Table:
    """A table's arrays with the numbers that C++ reads; a shard's own memory, which has them, is not copied."""

    __slots__ = ("_kept", "addresses")

    def __init__(self, table: TextTable) -> None:
        self._kept = (
            np.ascontiguousarray(table.words.offsets, np.int64),
            np.ascontiguousarray(table.words.values, np.int32),
            np.ascontiguousarray(table.trigrams.offsets, np.int64),
            np.ascontiguousarray(table.trigrams.values, np.uint32),
        )
        self.addresses = tuple(values.ctypes.data for values in self._kept)


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
    are in chunks of CHUNK_TEXTS, longest first. Only with `for_gradient`
    are there rows and the words of each, only with `both_directions` the arrays of the reversed texts. With
    `share_prefixes`, if not both ways, words that texts begin with alike are there once. Raises
    ValueError for a text without words, which has no embedding, and IndexError for a text, word or trigram that cannot
    be.
    """
    array = (_TextPart * len(parts))()
    tables = {id(table): _Table(table) for table, _ in parts}  # a table of two parts is one table
    indices = [np.ascontiguousarray(index, np.int64) for _, index in parts]
    for at, ((table, _), index) in enumerate(zip(parts, indices, strict=True)):
        array[at] = _TextPart(
            *tables[id(table)].addresses, len(table), len(table.trigrams), index.ctypes.data, len(index)
        )
    num_texts = sum(map(len, indices))
    if place is not None:
        place = np.ascontiguousarray(place, np.int32)
        if len(place) != num_texts:
            raise ValueError(f"{num_texts:,} texts were given {len(place):,} places")
    error = ctypes.c_int32()
    options = _FOR_GRADIENT * for_gradient | _BOTH_DIRECTIONS * both_directions
    options |= _SHARED_PREFIXES * (share_prefixes and not both_directions)
    handle = _library().batch_new(
        array, len(parts), None if place is None else place.ctypes.data, ungrouped, group, options, ctypes.byref(error)
    )
    if error.value == _NO_WORDS:
        raise ValueError("every text of a batch needs at least one word")
    if error.value == _OUT_OF_RANGE:
        raise IndexError("a batch names a text, a word or a trigram that is not in its table")
    if error.value == _TOO_LARGE:
        raise MemoryError(f"a batch of {num_texts:,} texts has too many words")
    return BatchIndex(handle, num_texts)
