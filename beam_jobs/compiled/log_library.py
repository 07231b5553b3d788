"""The compiled library of the Beam jobs: found, loaded and checked once, or the reason why not."""

import ctypes
from functools import cache

import numpy as np
import pyarrow as pa

from schemas.compiled_library import load

INTERFACE = 4  # raised with every change of what the C++ functions take or give
_NAME = "beam_jobs.compiled._compiled"


def library() -> ctypes.CDLL | None:
    """The shared library; None where it is not available: everything is then done in Python, to the same rows."""
    return _loaded()[0]


def why_not() -> str:
    """Why there is none, as a sentence; empty where there is one."""
    return _loaded()[1]


@cache
def _loaded() -> tuple[ctypes.CDLL | None, str]:
    found, reason = load(_NAME, "compiled_interface", INTERFACE)
    if found is not None:
        found.ubi_rows_new.restype = ctypes.c_void_p
        found.ubi_rows_new.argtypes = (
            ctypes.c_char_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32,
        )  # fmt: skip
        found.ubi_rows_free.restype, found.ubi_rows_free.argtypes = None, (ctypes.c_void_p,)
        found.ubi_rows_num_lines.restype, found.ubi_rows_num_lines.argtypes = ctypes.c_int64, (ctypes.c_void_p,)
        found.ubi_rows_array.restype = ctypes.c_void_p
        found.ubi_rows_array.argtypes = (ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)
        found.row_digests.restype = None
        found.row_digests.argtypes = (
            ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_int32, ctypes.c_void_p,
        )  # fmt: skip
        found.text_hashes.restype = None
        found.text_hashes.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
        found.keyed_hashes.restype = None
        found.keyed_hashes.argtypes = (
            ctypes.c_char_p, ctypes.c_int32, ctypes.c_char_p,
            ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p,
        )  # fmt: skip
        found.first_rows.restype = ctypes.c_int32
        found.first_rows.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
        _declare_grouped_rows(found)
    return found, reason


def _declare_grouped_rows(found: ctypes.CDLL) -> None:
    rows, places = ctypes.c_int64, ctypes.c_void_p
    found.grouped_places.restype, found.grouped_values.restype = None, ctypes.c_int32
    found.grouped_bits.restype = found.grouped_lengths.restype = found.grouped_texts.restype = None
    found.grouped_places.argtypes = (ctypes.c_void_p, rows, ctypes.c_void_p, places)
    found.grouped_values.argtypes = (ctypes.c_void_p, ctypes.c_int32, rows, places, ctypes.c_void_p)
    found.grouped_bits.argtypes = (ctypes.c_void_p, ctypes.c_int64, rows, places, ctypes.c_void_p)
    found.grouped_lengths.argtypes = (ctypes.c_void_p, rows, places, ctypes.c_void_p)
    found.grouped_texts.argtypes = (ctypes.c_void_p, ctypes.c_void_p, rows, places, ctypes.c_void_p, ctypes.c_void_p)


# Where Arrow keeps the texts of a column, as compiled functions are told.


_OFFSET_BYTES = np.dtype(np.int32).itemsize


def text_buffers(texts: pa.Array) -> tuple[int | None, int]:
    """(address of the bytes, None where there are none; address of the first text's offset, int32).

    `texts`: string or binary, with at least one row; it must outlive what is returned. Raises TypeError for others,
    whose offsets are twice as long.
    """
    if not (pa.types.is_string(texts.type) or pa.types.is_binary(texts.type)):
        raise TypeError(f"texts are to be string or binary, not {texts.type}")
    _, offsets, data = texts.buffers()
    return data.address if data else None, offsets.address + texts.offset * _OFFSET_BYTES
