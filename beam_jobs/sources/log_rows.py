"""Columns of a log, as their names were mapped -> LOG_ROW rows and the lines that give none.

The one place that says what a readable line is, once its form has been parsed; every source ends here. A line must say
which query it belongs to: by a query id, by the query itself, or by both. A search must have its query.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.sources.mapping import Mapping as LogMapping
from schemas.search_log import KINDS, LINE_HASH_BYTES, LOG_ROW

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


# Columns of texts and ranks from what logs hold: text, numbers, nothing.


MAX_POSITION = 2**31 - 1
_NUMBER = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?", re.ASCII)


def is_number(text: str) -> bool:
    """Whether a text is a plain decimal number of at most 18 digits on each side of the point."""
    return _NUMBER.fullmatch(text) is not None


def texts(values: Sequence[Any] | pa.Array) -> pa.Array:
    """The values as text: integers in decimal, None as null. Other kinds of value raise ValueError."""
    if isinstance(values, pa.Array):
        return values.cast(pa.string())
    try:
        return pa.array(values, pa.string())
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([_text(value) for value in values], pa.string())


def empty_as_null(column: pa.Array) -> pa.Array:
    """The column with null for each empty text."""
    is_empty = pc.equal(column, "")
    return pc.if_else(is_empty, None, column) if pc.any(is_empty).as_py() else column


def position_of(value: str | int | float) -> int:
    """A rank, 0 or more, also as text, also as a whole number with a fraction of 0. ValueError for anything else."""
    if isinstance(value, str):
        if not is_number(value):
            raise ValueError("no number")
        value = float(value) if "." in value else int(value)
    if value != int(value) or not 0 <= value <= MAX_POSITION:
        raise ValueError("no rank")
    return int(value)


def positions(values: Sequence[Any] | pa.Array) -> tuple[pa.Array, np.ndarray]:
    """(ranks as int32, -1 where there is none; whether each value is no rank), of numbers, text and None."""
    try:
        # No type is asked for: asked for integers, Arrow would cut 0.5 down to 0.
        column = values if isinstance(values, pa.Array) else pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        column = None
    if column is not None and (pa.types.is_integer(column.type) or pa.types.is_null(column.type)):
        column = column.cast(pa.int64()) if pa.types.is_null(column.type) else column
        span = pc.min_max(column).as_py()
        if span["min"] is None or (span["min"] >= 0 and span["max"] <= MAX_POSITION):
            return column.cast(pa.int32()).fill_null(-1), np.zeros(len(column), bool)
    found, is_bad = [], np.zeros(len(values), bool)
    known: dict[Any, int | None] = {None: -1, "": -1}
    for number, value in enumerate(values.to_pylist() if isinstance(values, pa.Array) else values):
        if value not in known:
            try:
                known[value] = position_of(value)
            except (ValueError, OverflowError):
                known[value] = None
        found.append(-1 if known[value] is None else known[value])
        is_bad[number] = known[value] is None
    return pa.array(found, pa.int32()), is_bad


def _text(value: Any) -> str | None:
    if value is None or type(value) is str:
        return value
    if type(value) is int:
        return str(value)
    raise ValueError("neither text nor an integer")


# Times as logs write them -> milliseconds since 1970, UTC.
#
# `time_of` says what a value means. `times` does a column at once: what Arrow's parser takes it takes as `time_of` does
# (the year 0 apart, which is guarded), and what it does not take goes through `time_of`, each distinct value once.


TIME = pa.timestamp("ms", tz="UTC")
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999  # the years 1 to 9999
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PLAIN = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,3})?Z?$"
_LOOK_AT = 1000
_MIN_EPOCH_DIGITS = 10  # fewer digits are a date without dashes


def time_of(value: str | int | float, time_format: str) -> int:
    """Milliseconds since 1970. Raises ValueError, TypeError or OverflowError for what is no time.

    iso: ISO 8601, no zone is UTC; a number, also as text of ten digits or more, is in milliseconds, as OpenSearch date
    fields take it. epoch_s, epoch_ms: a number, also as text. Fractions of a millisecond are cut off.
    """
    if time_format == "iso" and isinstance(value, str) and not _is_long_number(value):
        moment = datetime.fromisoformat(value)
        since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
        return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000
    if isinstance(value, str):
        if not is_number(value):
            raise ValueError("no number")
        value = float(value) if "." in value else int(value)
    scale = 1000 if time_format == "epoch_s" else 1
    # A float is cut where its shortest decimal form is, not where its binary one is: 1.001 s are 1001 ms.
    milliseconds = value * scale if isinstance(value, int) else int(np.floor(round(value * scale, 3)))
    if not FIRST_MS <= milliseconds <= LAST_MS:
        raise ValueError("beyond the years 1 to 9999")
    return milliseconds


def times(values: Sequence[Any] | pa.Array, time_format: str) -> tuple[pa.Array, np.ndarray]:
    """(TIME, null where there is none; whether each value is no time), of text, numbers and None. "" is no value."""
    column = _column(values)
    if column is not None and (pa.types.is_timestamp(column.type) or pa.types.is_date(column.type)):
        return _of_moments(column)
    if column is not None and pa.types.is_null(column.type):
        return column.cast(TIME), np.zeros(len(column), bool)
    if column is not None and pa.types.is_integer(column.type) and _within_bounds(column):
        milliseconds = pc.multiply(column.cast(pa.int64()), 1000 if time_format == "epoch_s" else 1)
        if _within_bounds(milliseconds):
            return milliseconds.cast(TIME), np.zeros(len(column), bool)
    if column is not None and pa.types.is_string(column.type) and time_format == "iso":
        column = empty_as_null(column)
        whole = _parse(column)
        return _in_parts(column) if whole is None else (whole, np.zeros(len(column), bool))
    return _each(values.to_pylist() if isinstance(values, pa.Array) else values, time_format)


def _of_moments(column: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """Of Arrow's own timestamps and dates; without a zone they are UTC."""
    if pa.types.is_date(column.type):
        column = column.cast(pa.date32()).cast(pa.timestamp("s"))
    is_valid = column.is_valid().to_numpy(zero_copy_only=False)
    count = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    if column.type.unit == "s":
        milliseconds = np.clip(count, FIRST_MS, LAST_MS) * 1000
    else:
        milliseconds = count // {"ms": 1, "us": 1000, "ns": 1_000_000}[column.type.unit]
    is_bad = is_valid & ((milliseconds < FIRST_MS) | (milliseconds > LAST_MS))
    return pa.array(milliseconds, pa.int64(), mask=~is_valid | is_bad).cast(TIME), is_bad


def _column(values: Sequence[Any] | pa.Array) -> pa.Array | None:
    if isinstance(values, pa.Array):
        return values
    try:
        return pa.array(values)  # asked for integers, Arrow would cut fractions off
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return None


def _parse(column: pa.Array) -> pa.Array | None:
    """A column of ISO 8601 in which all or no text has a zone; None where Arrow does not take the whole of it.

    The first text decides which is tried, since Arrow takes long over a column of errors.
    """
    first = next((text for text in column[:_LOOK_AT].to_pylist() if text), "Z")
    has_zone = first[-1] == "Z" or any(mark in first[len("2026-09-01") :] for mark in "+-")
    try:
        parsed = column.cast(TIME if has_zone else pa.timestamp("ms")).cast(TIME)
    except pa.ArrowInvalid:
        return None
    return parsed if _within_bounds(parsed.cast(pa.int64())) else None


def _in_parts(column: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """Arrow's parser for all that is in plain form, `time_of` for the rest."""
    plain = pc.match_substring_regex(column, _PLAIN)
    parsed = _parse(pc.if_else(plain, column, None))
    if parsed is None:  # with and without zone, or a day that no month has
        return _each(column.to_pylist(), "iso")
    rest = np.flatnonzero(pc.invert(plain).fill_null(False).to_numpy(zero_copy_only=False))
    found, bad = _each(column.take(pa.array(rest)).to_pylist(), "iso")
    is_bad = np.zeros(len(column), bool)
    is_bad[rest] = bad
    return pc.replace_with_mask(parsed, pc.invert(plain).fill_null(False), found), is_bad


def _each(values: Sequence[Any], time_format: str) -> tuple[pa.Array, np.ndarray]:
    known: dict[Any, int | None] = {None: None, "": None}
    is_bad = np.zeros(len(values), bool)
    found: list[int | None] = []
    for number, value in enumerate(values):
        key = value if type(value) is not bool else str(value)
        if key not in known:
            try:
                known[key] = time_of(value, time_format)
            except (ValueError, TypeError, OverflowError):
                known[key] = -1 << 63
        found.append(known[key])
        is_bad[number] = known[key] == -1 << 63
    milliseconds = pa.array(found, pa.int64(), mask=is_bad)
    return milliseconds.cast(TIME), is_bad


def _within_bounds(milliseconds: pa.Array) -> bool:
    span = pc.min_max(milliseconds).as_py()
    return span["min"] is None or (span["min"] >= FIRST_MS and span["max"] <= LAST_MS)


def _is_long_number(text: str) -> bool:
    return len(text) >= _MIN_EPOCH_DIGITS and text.isascii() and text.isdigit()
