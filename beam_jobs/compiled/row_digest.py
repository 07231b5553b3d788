"""The logical digest of many rows (schemas.shard.LogicalDigest), compiled."""

import ctypes

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.compiled.library import library
from beam_jobs.compiled.text_buffers import text_buffers
from schemas.shard import LogicalDigest


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
