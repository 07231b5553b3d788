"""The rows of a table regrouped by a number that each row has, compiled: in one pass, over however many chunks."""

import ctypes
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from beam_jobs.compiled.log_library import library, text_buffers
from schemas.log_row import LOG_ROW

_OFFSET = np.dtype(np.int32)
_MOST = np.iinfo(_OFFSET).max  # rows of a table, and bytes of a column of texts, that places and offsets reach over


def grouped_rows(table: pa.Table, groups: np.ndarray, num_groups: int) -> tuple[pa.Table, np.ndarray]:
    """(the rows of group 0, then those of group 1, and so on, in one chunk; how many each group has, int64).

    `groups`: int64 [rows], each in [0, num_groups). Rows of one group keep their order.
    """
    table = table.unify_dictionaries()
    sizes = np.bincount(groups, minlength=num_groups)
    compiled = library()
    if compiled is None or not 0 < len(groups) <= _MOST:
        return table.take(pa.array(_order(groups, num_groups))).combine_chunks(), sizes
    groups = np.ascontiguousarray(groups, np.int64)
    next_places, places = np.cumsum(sizes) - sizes, np.empty(len(groups), np.int32)
    compiled.grouped_places(groups.ctypes.data, len(groups), next_places.ctypes.data, places.ctypes.data)
    order = None
    columns: list[pa.Array | pa.ChunkedArray] = []
    for column in table.columns:
        found = _Regrouping(compiled, places, [chunk for chunk in column.chunks if len(chunk)]).column()
        if found is None:  # of a type that is rare
            order = pa.array(_order(groups, num_groups)) if order is None else order
            found = column.take(order)
        columns.append(found)
    return pa.table(columns, schema=table.schema).combine_chunks(), sizes


def _order(groups: np.ndarray, num_groups: int) -> np.ndarray:
    short = np.int16 if num_groups <= np.iinfo(np.int16).max else np.int64  # numbers this short are sorted by counting
    return np.argsort(groups.astype(short), kind="stable")


class _Regrouping:
    """A column's chunks and the place that each of their rows goes to."""

    def __init__(self, compiled: ctypes.CDLL, places: np.ndarray, chunks: Sequence[pa.Array]) -> None:
        self._compiled, self._places, self._chunks = compiled, places, chunks
        self._begins = np.cumsum([0, *map(len, chunks)])[:-1].tolist()

    def column(self) -> pa.Array | None:
        """The column regrouped; None for a type that nothing is compiled for."""
        kind = self._chunks[0].type
        if pa.types.is_dictionary(kind):
            indices = _Regrouping(self._compiled, self._places, [chunk.indices for chunk in self._chunks]).column()
            return pa.DictionaryArray.from_arrays(indices, self._chunks[0].dictionary)
        if pa.types.is_boolean(kind):
            return self._array([self._bits([chunk.buffers()[1] for chunk in self._chunks])])
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            return self._texts()
        if pa.types.is_primitive(kind) or pa.types.is_fixed_size_binary(kind):
            return self._values(kind.bit_width // 8)
        return None

    def _values(self, width: int) -> pa.Array | None:
        values = pa.allocate_buffer(len(self._places) * width)
        for chunk, places in self._parts():
            begin = chunk.buffers()[1].address + chunk.offset * width
            if not self._compiled.grouped_values(begin, width, len(chunk), places, values.address):
                return None
        return self._array([values])

    def _texts(self) -> pa.Array | None:
        lengths = np.zeros(len(self._places) + 1, _OFFSET)
        for chunk, places in self._parts():
            _, chunk_offsets = text_buffers(chunk)
            self._compiled.grouped_lengths(chunk_offsets, len(chunk), places, lengths.ctypes.data)
        if (total := int(lengths.sum(dtype=np.int64))) > _MOST:
            return None
        offsets, texts = np.cumsum(lengths, dtype=_OFFSET), pa.allocate_buffer(total)
        for chunk, places in self._parts():
            data, chunk_offsets = text_buffers(chunk)
            if data is not None:
                self._compiled.grouped_texts(
                    data, chunk_offsets, len(chunk), places, offsets.ctypes.data, texts.address
                )
        return self._array([pa.py_buffer(offsets), texts])

    def _array(self, buffers: list[pa.Buffer]) -> pa.Array:
        """Of the column's type, with these buffers and what is null in the chunks."""
        valid = self._bits([chunk.buffers()[0] for chunk in self._chunks]) if self._has_nulls() else None
        return pa.Array.from_buffers(self._chunks[0].type, len(self._places), [valid, *buffers])

    def _has_nulls(self) -> bool:
        return any(chunk.null_count for chunk in self._chunks)

    def _bits(self, bits: Sequence[pa.Buffer | None]) -> pa.Buffer:
        """`bits`: of each chunk; None where all are set."""
        found = np.zeros(-(-len(self._places) // 8), np.uint8)
        for (chunk, places), buffer in zip(self._parts(), bits, strict=True):
            begin = buffer.address if buffer else None
            self._compiled.grouped_bits(begin, chunk.offset, len(chunk), places, found.ctypes.data)
        return pa.py_buffer(found)

    def _parts(self) -> list[tuple[pa.Array, int]]:
        """Each chunk, and where the places of its rows begin in memory."""
        first = self._places.ctypes.data
        return [
            (chunk, first + begin * self._places.itemsize)
            for chunk, begin in zip(self._chunks, self._begins, strict=True)
        ]


# The first row of each line hash, compiled.


_HASH = LOG_ROW.field("line_hash").type


def first_rows(hashes: pa.Array) -> np.ndarray:
    """For each row whether it is the first with its hash, bool [rows]. `hashes`: LOG_ROW's line_hash, without nulls."""
    is_first = np.zeros(len(hashes), bool)
    compiled = library()
    begin = hashes.buffers()[1].address + hashes.offset * _HASH.byte_width if len(hashes) else None
    if compiled is not None and compiled.first_rows(begin, len(hashes), is_first.ctypes.data):
        return is_first
    codes = hashes.dictionary_encode().indices.to_numpy(zero_copy_only=False)  # in order of appearance
    is_first[np.flatnonzero(np.diff(np.maximum.accumulate(codes), prepend=-1))] = True
    return is_first
