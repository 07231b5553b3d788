"""The compiled library of the Beam jobs, and the same functions in Python where it is missing."""

import ctypes
from functools import cache
from hashlib import blake2b
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clicktower.schemas.process import load_compiled
from clicktower.schemas.search_log import LOG_ROW
from clicktower.schemas.shard import LogicalDigest

INTERFACE = 5  # incremented with every change of the C++ interface
_NAME = "clicktower.beam_jobs.compiled._compiled"
_PLACE, _BYTES, _SHORT, _LONG = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32, ctypes.c_int64
_FUNCTIONS: dict[str, tuple[Any, ...]] = {  # result and arguments of each
    "ubi_rows_new": (_PLACE, _BYTES, _LONG, _PLACE, _LONG, _SHORT),
    "ubi_rows_free": (None, _PLACE),
    "ubi_rows_num_lines": (_LONG, _PLACE),
    "ubi_rows_array": (_PLACE, _PLACE, _SHORT, _PLACE),
    "row_digests": (None, _PLACE, _SHORT, _LONG, _SHORT, _PLACE),
    "text_hashes": (None, _PLACE, _PLACE, _LONG, _PLACE),
    "keyed_hashes": (None, _BYTES, _SHORT, _BYTES, _PLACE, _PLACE, _LONG, _PLACE),
    "first_rows": (_SHORT, _PLACE, _LONG, _PLACE),
}


def library() -> ctypes.CDLL | None:
    """The shared library, or None: then Python computes the same rows."""
    return _loaded()[0]


def missing_reason() -> str:
    """Why the library is missing, as a sentence; empty if it is there."""
    return _loaded()[1]


@cache
def _loaded() -> tuple[ctypes.CDLL | None, str]:
    loaded, reason = load_compiled(_NAME, "compiled_interface", INTERFACE)
    if loaded is not None:
        for name, (result, *arguments) in _FUNCTIONS.items():
            function = getattr(loaded, name)
            function.restype, function.argtypes = result, arguments
    return loaded, reason


_OFFSET_BYTES = np.dtype(np.int32).itemsize


def text_buffers(texts: pa.Array) -> tuple[int | None, int]:
    """(address of the bytes, None for no bytes; address of the first text's offset, int32).

    `texts`: string or binary, with at least one row; it must outlive the result. Raises TypeError for other types,
    whose offsets are twice as long.
    """
    if not (pa.types.is_string(texts.type) or pa.types.is_binary(texts.type)):
        raise TypeError(f"texts must be string or binary, not {texts.type}")
    _, offsets, data = texts.buffers()
    return data.address if data else None, offsets.address + texts.offset * _OFFSET_BYTES


HASH_BYTES = 8


def keyed_hashes(texts: pa.Array, *, key: bytes = b"", person: bytes = b"") -> np.ndarray:
    """hashlib's blake2b(text, digest_size=8, key=key, person=person) of each text, read as little-endian uint64.

    `texts`: string or binary, without nulls. `key`: up to 64 bytes; `person`: up to 16.
    """
    compiled = library()
    if compiled is None or not len(texts):
        blank = blake2b(digest_size=HASH_BYTES, key=key, person=person)
        digests = []
        for text in texts.cast(pa.binary()).to_pylist():
            keyed = blank.copy()  # takes half the time of a new one
            keyed.update(text)
            digests.append(keyed.digest())
        return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)
    hashes = np.empty(len(texts), np.uint64)
    compiled.keyed_hashes(key, len(key), person.ljust(16, b"\0"), *text_buffers(texts), len(texts), hashes.ctypes.data)
    return hashes


NO_TEXT = np.uint64(crc32(b""))  # the hash of the empty text, also for null


def text_hashes(texts: pa.Array) -> np.ndarray:
    """The CRC-32 of each text's UTF-8 bytes, uint64 [texts]. `texts`: string or binary; null counts as the empty
    text.
    """
    compiled = library()
    if compiled is None or not len(texts):
        return np.array([crc32(text or b"") for text in texts.cast(pa.binary()).to_pylist()], np.uint64)
    hashes = np.empty(len(texts), np.uint64)
    compiled.text_hashes(*text_buffers(texts), len(texts), hashes.ctypes.data)
    if texts.null_count:  # whatever lies in its place
        hashes[texts.is_null().to_numpy(zero_copy_only=False)] = NO_TEXT
    return hashes


class _Column(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_void_p), ("offsets", ctypes.c_void_p), ("numbers", ctypes.c_void_p))


def row_digest(*columns: pa.Array | pa.ChunkedArray, plain: bool = False) -> str:
    """The hexdigest of a LogicalDigest of rows: their values as text, with a line end between columns.

    `columns`: of equal length, string, binary or integer, without nulls; a binary column must be the only one. `plain`:
    do not use the processor's instructions for SHA-256.
    """
    compiled = library()
    if compiled is None or not len(columns[0]):
        texts = [column if _is_text(column) else column.cast(pa.string()) for column in columns]
        rows = texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, "\n")
        digest = LogicalDigest()
        digest.add(rows.cast(pa.binary()).to_pylist())
        return digest.hexdigest()
    held = [column if _is_text(column) else column.cast(pa.int64()) for column in columns]
    arrays = [column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column for column in held]
    sums = np.zeros(8, np.uint64)
    c_columns = (_Column * len(arrays))(*map(_column, arrays))
    compiled.row_digests(c_columns, len(arrays), len(arrays[0]), plain, sums.ctypes.data)
    return f"{sum(word << (32 * (7 - place)) for place, word in enumerate(sums.tolist())) % (1 << 256):064x}"


def _is_text(column: pa.Array | pa.ChunkedArray) -> bool:
    return not pa.types.is_integer(column.type)


def _column(array: pa.Array) -> _Column:
    """The memory address of its values; the column must outlive the result."""
    if not _is_text(array):
        return _Column(None, None, array.buffers()[1].address + array.offset * np.dtype(np.int64).itemsize)
    return _Column(*text_buffers(array), None)


_HASH = LOG_ROW.field("line_hash").type


def first_rows(hashes: pa.Array) -> np.ndarray:
    """Whether each row is the first with its hash, bool [rows]. `hashes`: LOG_ROW's line_hash, without nulls."""
    is_first = np.zeros(len(hashes), bool)
    compiled = library()
    begin = hashes.buffers()[1].address + hashes.offset * _HASH.byte_width if len(hashes) else None
    if compiled is not None and compiled.first_rows(begin, len(hashes), is_first.ctypes.data):
        return is_first
    codes = hashes.dictionary_encode().indices.to_numpy(zero_copy_only=False)  # in order of appearance
    is_first[np.flatnonzero(np.diff(np.maximum.accumulate(codes), prepend=-1))] = True
    return is_first
