"""The BLAKE2b of many short texts, compiled."""

import ctypes
from hashlib import blake2b
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.compiled.log_library import library, text_buffers
from schemas.shard import LogicalDigest

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
            one = blank.copy()  # half the time of making one anew
            one.update(text)
            digests.append(one.digest())
        return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)
    hashes = np.empty(len(texts), np.uint64)
    compiled.keyed_hashes(key, len(key), person.ljust(16, b"\0"), *text_buffers(texts), len(texts), hashes.ctypes.data)
    return hashes


# The CRC-32 of many texts, compiled.


NO_TEXT = np.uint64(crc32(b""))  # the hash of the empty text, and of none


def text_hashes(texts: pa.Array) -> np.ndarray:
    """The CRC-32 of each text's UTF-8 bytes, uint64 [texts]. `texts`: string or binary; null is as the empty text."""
    compiled = library()
    if compiled is None or not len(texts):
        return np.array([crc32(text or b"") for text in texts.cast(pa.binary()).to_pylist()], np.uint64)
    hashes = np.empty(len(texts), np.uint64)
    compiled.text_hashes(*text_buffers(texts), len(texts), hashes.ctypes.data)
    if texts.null_count:  # whatever lies in its place
        hashes[texts.is_null().to_numpy(zero_copy_only=False)] = NO_TEXT
    return hashes


# The logical digest of many rows (shard.LogicalDigest), compiled.


class _Column(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_void_p), ("offsets", ctypes.c_void_p), ("numbers", ctypes.c_void_p))


def row_digest(*columns: pa.Array | pa.ChunkedArray, plain: bool = False) -> str:
    """The hexdigest of a LogicalDigest of rows: their values as text, with a line end between two columns.

    `columns`: of one length, string, binary or integer, without nulls; beside binary no other. `plain`: without the
    processor's instructions for SHA-256, where there are any.
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
    told = (_Column * len(arrays))(*map(_column, arrays))
    compiled.row_digests(told, len(arrays), len(arrays[0]), plain, sums.ctypes.data)
    return f"{sum(word << (32 * (7 - place)) for place, word in enumerate(sums.tolist())) % (1 << 256):064x}"


def _is_text(column: pa.Array | pa.ChunkedArray) -> bool:
    return not pa.types.is_integer(column.type)


def _column(array: pa.Array) -> _Column:
    """Where its values are in memory; it must outlive what is returned."""
    if not _is_text(array):
        return _Column(None, None, array.buffers()[1].address + array.offset * np.dtype(np.int64).itemsize)
    return _Column(*text_buffers(array), None)
