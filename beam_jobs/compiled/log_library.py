"""The compiled library of the Beam jobs, and what it computes, in Python where it is not there."""

import ctypes
from collections.abc import Sequence
from functools import cache
from hashlib import blake2b
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.process import load_compiled
from schemas.search_log import LOG_ROW
from schemas.shard import LogicalDigest

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
    found, reason = load_compiled(_NAME, "compiled_interface", INTERFACE)
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
