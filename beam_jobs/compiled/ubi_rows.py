"""The everyday lines of a UBI log -> LOG_ROW rows, compiled; and the lines that are left to ubi.

A line is everyday if it is plain in every respect: UTF-8, JSON of known types, no field twice, an id, a time in UTC.
What is made of it is what `ubi` makes of it, bit for bit, in a fifth of the time. Of any other line
nothing is said here.
"""

import ctypes
import weakref
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from beam_jobs.compiled.log_library import library
from schemas.log_row import KINDS, LOG_ROW


@dataclass(frozen=True, kw_only=True, slots=True)
class EverydayRows:
    """Of a block of lines the everyday ones, in their order, and the numbers and the places of the others.

    `odd`: int64, ascending. `odd_spans`: int64 [others, 2], where in the block each begins and ends, without line end.
    """

    rows: pa.RecordBatch
    odd: np.ndarray
    odd_spans: np.ndarray
    num_lines: int


class _Action(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("length", ctypes.c_int64), ("kind", ctypes.c_int32))


class _Columns:
    """Columns in the library's own memory, which is given back with this object."""

    def __init__(self, compiled: ctypes.CDLL, handle: int) -> None:
        self._compiled, self._handle, self._next = compiled, handle, 0
        weakref.finalize(self, compiled.ubi_rows_free, handle).atexit = False

    @property
    def num_lines(self) -> int:
        return self._compiled.ubi_rows_num_lines(self._handle)

    def buffer(self) -> pa.Buffer:
        """The next array, which keeps this object."""
        num_bytes = ctypes.c_int64()
        address = self._compiled.ubi_rows_array(self._handle, self._next, ctypes.byref(num_bytes))
        self._next += 1
        return pa.foreign_buffer(address, num_bytes.value, self) if num_bytes.value else pa.py_buffer(b"")

    def numbers(self) -> np.ndarray:
        return np.frombuffer(self.buffer(), np.int64)

    def column(self, kind: pa.DataType, length: int, num_buffers: int) -> pa.Array:
        buffers = [self.buffer() for _ in range(num_buffers)]
        return pa.Array.from_buffers(kind, length, [None] * (2 - num_buffers) + buffers)


def everyday_rows(block: bytes, kinds: Mapping[str, str]) -> EverydayRows | None:
    """The everyday lines of a block of whole lines; `kinds` says which `action_name` is what.

    None where nothing was compiled, or a block is too large.
    """
    if (compiled := library()) is None:
        return None
    names = [name.encode() for name in kinds]
    actions = (_Action * len(names))()
    for place, (name, kind) in enumerate(zip(names, kinds.values(), strict=True)):
        actions[place] = _Action(name, len(name), KINDS.index(kind))
    handle = compiled.ubi_rows_new(block, len(block), actions, len(names), KINDS.index("other"))
    if not handle:
        return None
    columns = _Columns(compiled, handle)
    odd, odd_spans = columns.numbers(), columns.numbers().reshape(-1, 2)
    return EverydayRows(
        rows=_rows(columns, columns.num_lines - len(odd)), odd=odd, odd_spans=odd_spans, num_lines=columns.num_lines
    )


def _rows(columns: _Columns, length: int) -> pa.RecordBatch:
    kind = pa.DictionaryArray.from_arrays(columns.column(pa.int8(), length, 1), pa.array(KINDS))
    query_id, client_id, query, document_id = (columns.column(pa.string(), length, 3) for _ in range(4))
    position = columns.column(pa.int32(), length, 1)
    time = columns.column(LOG_ROW.field("time").type, length, 2)
    user_agent = columns.column(pa.string(), length, 3)
    codes = columns.column(pa.int16(), length, 2)
    applications = [columns.buffer() for _ in range(3)]
    num_applications = applications[1].size // np.dtype(np.int32).itemsize - 1
    application = pa.DictionaryArray.from_arrays(
        codes, pa.StringArray.from_buffers(num_applications, applications[1], applications[2])
    )
    line_hash = columns.column(LOG_ROW.field("line_hash").type, length, 1)
    arrays = [kind, query_id, client_id, query, document_id, position, time, user_agent, application, line_hash]
    return pa.RecordBatch.from_arrays(arrays, schema=LOG_ROW)
