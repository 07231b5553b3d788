"""Texts -> words -> trigram ids by the text contract (schemas.text_contract), compiled.

ASCII texts are lower-cased and split in C++. Any other text is split by Python's own `words`, and its words are counted
and split into trigrams with the rest.
"""

import ctypes
import weakref
from collections.abc import Sequence
from functools import cache

import numpy as np
import pyarrow as pa

from schemas.text_contract import COMPUTED_IDS, words
from training.data.ragged import Ragged
from training.data.text_batch import TextTable
from training.kernel.kernel_library import library, view

_ARRAYS = (np.int64, np.int32, np.int64, np.uint32)


@cache
def _library() -> ctypes.CDLL:
    loaded = library()
    loaded.find_not_ascii.restype = ctypes.c_int64
    loaded.find_not_ascii.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
    loaded.tokens_new.restype = ctypes.c_void_p
    loaded.tokens_new.argtypes = (
        ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64,
        ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint64,
    )  # fmt: skip
    loaded.tokens_free.restype = None
    loaded.tokens_free.argtypes = (ctypes.c_void_p,)
    loaded.tokens_array.restype = ctypes.c_void_p
    loaded.tokens_array.argtypes = (ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)
    return loaded


class _Tokens:
    """Tables in the kernels' own memory, which is freed with this object."""

    __slots__ = ("__weakref__", "handle")

    def __init__(self, handle: int) -> None:
        self.handle = handle
        weakref.finalize(self, _library().tokens_free, handle).atexit = False

    def array(self, number: int) -> np.ndarray:
        length = ctypes.c_int64()
        address = _library().tokens_array(self.handle, number, ctypes.byref(length))
        return view(self, address, length.value, _ARRAYS[number])


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
    num_not_ascii = _library().find_not_ascii(
        given.address, given.offsets.ctypes.data, len(given), not_ascii.ctypes.data
    )
    not_ascii = not_ascii[:num_not_ascii]
    normalised = _Utf8([" ".join(words(given.text(at))) for at in not_ascii.tolist()])
    handle = _library().tokens_new(
        given.address, given.offsets.ctypes.data, len(given),
        normalised.address, normalised.offsets.ctypes.data, not_ascii.ctypes.data, num_not_ascii, table_rows,
    )  # fmt: skip
    if not handle:
        raise MemoryError(f"{len(given):,} texts are too large to be cut into words")
    tokens = _Tokens(handle)
    word_offsets, word_numbers, trigram_offsets, trigrams = (tokens.array(number) for number in range(4))
    return TextTable(Ragged(word_offsets, word_numbers), Ragged(trigram_offsets, trigrams))
