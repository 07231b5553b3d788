"""Columns of a log, as their names were mapped -> LOG_ROW rows and the lines that give none.

The one place that says what a readable line is, once its form has been parsed; every source ends here. A line must say
which query it belongs to: by a query id, by the query itself, or by both. A search must have its query.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.mapping import Mapping as LogMapping
from beam_jobs.sources.texts import empty_as_null, positions, texts
from beam_jobs.sources.times import times
from schemas.log_row import KINDS, LOG_ROW

LINE_HASH_BYTES = 16
_SEARCH, _CLICK, _OTHER = (KINDS.index(kind) for kind in ("search", "click", "other"))
_HEX = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), np.uint8).reshape(256, 2)
# What the id of a line begins with that has none of its own: it is in a group by itself, with its exact repeats.
_OWN_ID = b"line "

_MAX_APPLICATIONS = 2**15 - 1

Values: TypeAlias = Sequence[Any] | pa.Array | None


@dataclass(frozen=True, kw_only=True, slots=True)
class LogColumns:
    """Values line by line; None for a column that the log does not have. `hashes`: LINE_HASH_BYTES of each line.

    Values are text or integers, of `position` and `time` also other numbers; None stands for nothing.
    """

    hashes: pa.FixedSizeBinaryArray
    query_id: Values = None
    client_id: Values = None
    query: Values = None
    document_id: Values = None
    position: Values = None
    time: Values = None
    event: Values = None
    user_agent: Values = None
    application: Values = None


def mapped_log_rows(
    hashes: pa.FixedSizeBinaryArray, columns: Mapping[str, Values], mapping: LogMapping
) -> tuple[pa.RecordBatch, np.ndarray, list[str]]:
    """`log_rows` of columns by our names, as a mapping reads them."""
    return log_rows(LogColumns(hashes=hashes, **columns), mapping.events.kinds(), mapping.time_format)


def log_rows(
    columns: LogColumns, kinds: Mapping[str, str], time_format: str, *, is_ubi: bool = False
) -> tuple[pa.RecordBatch, np.ndarray, list[str]]:
    """(LOG_ROW rows in the order of the lines, the numbers of the others ascending, why each is not a row).

    `kinds`: what the values of `event` mean. Without that column, or a value in it, a line with a document is a click
    and one without is a search. In UBI a line without is a search whatever it has, and a search must have an id.
    """
    num_lines = len(columns.hashes)
    query_id, query = empty_as_null(_texts(columns.query_id, num_lines)), _texts(columns.query, num_lines)
    document_id = empty_as_null(_texts(columns.document_id, num_lines))
    kind = _kind_codes(columns.event, document_id, kinds, is_ubi)
    is_event = kind != _SEARCH
    query = _without_empty(query, is_event)
    position, bad_position = _positions(columns.position, num_lines)
    time, bad_time = times(columns.time, time_format) if columns.time is not None else (pa.nulls(num_lines), False)

    has_id, has_query = _numpy(query_id.is_valid()), _numpy(query.is_valid())
    is_bad = bad_position | bad_time | (~is_event & ~has_query & has_id)
    is_lost = ~is_bad & ~has_id & ~(has_query & (is_event | (not is_ubi)))
    reject = np.flatnonzero(is_bad | is_lost)
    reasons = ["unreadable_field" if bad else "unreadable_no_query_id" for bad in is_bad[reject].tolist()]

    if not has_id.all():
        query_id = pc.replace_with_mask(query_id, pa.array(~has_id), _own_ids(columns.hashes.filter(pa.array(~has_id))))
    application = _few(_texts(columns.application, num_lines))
    rows = pa.RecordBatch.from_arrays(
        [
            pa.DictionaryArray.from_arrays(pa.array(kind, pa.int8()), pa.array(KINDS)),
            query_id,
            empty_as_null(_texts(columns.client_id, num_lines)),
            query,
            document_id,
            position,
            time.cast(LOG_ROW.field("time").type),
            _texts(columns.user_agent, num_lines),
            application,
            columns.hashes,
        ],
        schema=LOG_ROW,
    )
    return (rows.filter(pa.array(~(is_bad | is_lost))) if len(reject) else rows), reject, reasons


def _kind_codes(event: Values, document_id: pa.Array, kinds: Mapping[str, str], is_ubi: bool) -> np.ndarray:
    by_document = np.where(_numpy(document_id.is_valid()), _CLICK, _SEARCH)
    if event is None:
        return by_document
    values = texts(event).dictionary_encode()
    meaning = {"": -1, **{value: KINDS.index(kind) for value, kind in kinds.items()}}
    codes = np.array([meaning.get(value, _OTHER) for value in values.dictionary.to_pylist()] + [-1], np.int64)
    kind = codes[_numpy(values.indices.fill_null(len(codes) - 1))]
    return np.where(kind >= 0, kind, _SEARCH if is_ubi else by_document)


def _few(column: pa.Array) -> pa.DictionaryArray:
    """The column with 16-bit indices. No log has as many applications: what is over is forgotten, and nothing fails."""
    encoded = column.dictionary_encode()
    indices = encoded.indices
    if len(encoded.dictionary) > _MAX_APPLICATIONS:
        indices = pc.if_else(pc.less(indices, _MAX_APPLICATIONS), indices, None)
    return pa.DictionaryArray.from_arrays(indices.cast(pa.int16()), encoded.dictionary[:_MAX_APPLICATIONS])


def _without_empty(query: pa.Array, is_event: np.ndarray) -> pa.Array:
    """An event with an empty query says nothing of its query; a search with one is a search for nothing."""
    if not pc.any(is_empty := pc.equal(query, "")).as_py():
        return query
    return pc.if_else(pc.and_(is_empty, pa.array(is_event)), None, query)


def _positions(values: Values, num_lines: int) -> tuple[pa.Array, Any]:
    return positions(values) if values is not None else (pa.array(np.full(num_lines, -1), pa.int32()), False)


def _texts(values: Values, num_lines: int) -> pa.Array:
    return pa.nulls(num_lines, pa.string()) if values is None else texts(values)


def _own_ids(hashes: pa.FixedSizeBinaryArray) -> pa.Array:
    """A query id for each line, made of its hash."""
    size = len(_OWN_ID) + 2 * LINE_HASH_BYTES
    texts_of = np.empty((len(hashes), size), np.uint8)
    texts_of[:, : len(_OWN_ID)] = np.frombuffer(_OWN_ID, np.uint8)
    raw = np.frombuffer(hashes.buffers()[1], np.uint8)[hashes.offset * LINE_HASH_BYTES :]
    digits = _HEX[raw[: len(hashes) * LINE_HASH_BYTES].reshape(-1, LINE_HASH_BYTES)]
    texts_of[:, len(_OWN_ID) :] = digits.reshape(len(hashes), 2 * LINE_HASH_BYTES)
    offsets = np.arange(len(hashes) + 1, dtype=np.int32) * size
    return pa.StringArray.from_buffers(len(hashes), pa.py_buffer(offsets), pa.py_buffer(texts_of))


def _numpy(array: pa.Array) -> np.ndarray:
    return array.to_numpy(zero_copy_only=False)
