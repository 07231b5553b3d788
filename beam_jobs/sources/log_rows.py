"""Mapped columns of a log -> LOG_ROW rows, and the lines that are not rows.

This is the one definition of a readable line, once its format has been parsed; every source ends here. A line must say
which query it belongs to: by a query id, by the query itself, or by both. A search must have its query.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clicktower.beam_jobs.sources.mapping import Mapping as LogMapping
from clicktower.schemas.search_log import CLICK_WEIGHT, KINDS, LINE_HASH_BYTES, LOG_ROW

_SEARCH, _CLICK, _OTHER = (KINDS.index(kind) for kind in ("search", "click", "other"))
# The prefix of ids made for lines without one: such a line is in a group by itself, with its exact repeats.
_OWN_ID = b"line "

_MAX_APPLICATIONS = 2**15 - 1

Values: TypeAlias = Sequence[Any] | pa.Array


def mapped_log_rows(
    hashes: pa.FixedSizeBinaryArray, columns: Mapping[str, Values], mapping: LogMapping
) -> tuple[pa.RecordBatch, np.ndarray, list[str]]:
    """`log_rows` of columns by our names, as a mapping reads them."""
    return log_rows(hashes, columns, mapping.events.kinds(), mapping.time_format, min_dwell=mapping.min_dwell)


def log_rows(
    hashes: pa.FixedSizeBinaryArray,
    columns: Mapping[str, Values],
    kinds: Mapping[str, tuple[str, int]],
    time_format: str,
    *,
    min_dwell: float | None = None,
    is_ubi: bool = False,
) -> tuple[pa.RecordBatch, np.ndarray, list[str]]:
    """(LOG_ROW rows in the order of the lines, the numbers of the rejected lines ascending, the fate of each).

    `hashes`: LINE_HASH_BYTES of each line. `columns`: for each of mapping.Columns that the log has, its values line by
    line: text or integers, for `position`, `time` and `dwell` also other numbers; None for a missing value. `kinds`:
    kind and weight of the values of `event`. Without that column, or a value in it, a line with a document is a click
    and one without is a search. In UBI a line without a value is a search in any case, and a search must have an id.
    `min_dwell`: a click with a shorter `dwell` has the weight 0.
    """
    num_lines = len(hashes)

    def texts_of(name: str) -> pa.Array:
        return texts(columns[name]) if name in columns else pa.nulls(num_lines, pa.string())

    query_id, query = empty_as_null(texts_of("query_id")), texts_of("query")
    document_id = empty_as_null(texts_of("document_id"))
    kind, weight = _kinds_and_weights(columns.get("event"), document_id, kinds, is_ubi)
    is_event = kind != _SEARCH
    query = _without_empty(query, is_event)
    position, bad_position = positions(columns.get("position", pa.nulls(num_lines)))
    time, bad_time = times(columns.get("time", pa.nulls(num_lines)), time_format)
    is_bad = bad_position | bad_time
    if min_dwell is not None:
        is_short, bad_dwell = _parse_distinct(columns["dwell"], lambda dwell: int(_number(dwell) < min_dwell), 0)
        weight = np.where((kind == _CLICK) & is_short.to_numpy().astype(bool), 0, weight)
        is_bad |= bad_dwell

    has_id, has_query = _numpy(query_id.is_valid()), _numpy(query.is_valid())
    is_bad |= ~is_event & ~has_query & has_id
    is_lost = ~is_bad & ~has_id & ~(has_query & (is_event | (not is_ubi)))
    reject = np.flatnonzero(is_bad | is_lost)
    reasons = ["unreadable_field" if bad else "unreadable_no_query_id" for bad in is_bad[reject].tolist()]

    if not has_id.all():
        query_id = pc.replace_with_mask(query_id, pa.array(~has_id), _own_ids(hashes.filter(pa.array(~has_id))))
    rows = pa.RecordBatch.from_arrays(
        [
            pa.DictionaryArray.from_arrays(pa.array(kind, pa.int8()), pa.array(KINDS)),
            query_id,
            empty_as_null(texts_of("client_id")),
            query,
            document_id,
            position,
            time,
            texts_of("user_agent"),
            _small_dictionary(texts_of("application")),
            pa.array(weight, pa.int32()),
            hashes,
        ],
        schema=LOG_ROW,
    )
    return (rows.filter(pa.array(~(is_bad | is_lost))) if len(reject) else rows), reject, reasons


def _kinds_and_weights(
    event: Values | None, document_id: pa.Array, kinds: Mapping[str, tuple[str, int]], is_ubi: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The index into KINDS and the weight of each line."""
    by_document = np.where(_numpy(document_id.is_valid()), _CLICK, _SEARCH)
    if event is None:
        return by_document, np.where(by_document == _CLICK, CLICK_WEIGHT, 0)
    values = texts(event).dictionary_encode()
    meaning = {"": (-1, 0), **{value: (KINDS.index(kind), weight) for value, (kind, weight) in kinds.items()}}
    distinct = [meaning.get(value, (_OTHER, 0)) for value in values.dictionary.to_pylist()]
    codes, weights = np.array([*distinct, (-1, 0)]).T
    line = _numpy(values.indices.fill_null(len(distinct)))
    kind = np.where(codes[line] >= 0, codes[line], _SEARCH if is_ubi else by_document)
    return kind, np.where(kind == _CLICK, CLICK_WEIGHT, weights[line])


def _small_dictionary(column: pa.Array) -> pa.DictionaryArray:
    """The column with 16-bit indices. No log has so many applications: an overflow becomes null, and no line fails."""
    encoded = column.dictionary_encode()
    indices = encoded.indices
    if len(encoded.dictionary) > _MAX_APPLICATIONS:
        indices = pc.if_else(pc.less(indices, _MAX_APPLICATIONS), indices, None)
    return pa.DictionaryArray.from_arrays(indices.cast(pa.int16()), encoded.dictionary[:_MAX_APPLICATIONS])


def _without_empty(query: pa.Array, is_event: np.ndarray) -> pa.Array:
    """An event with an empty query says nothing about its query; a search with an empty query remains a search."""
    if not pc.any(is_empty := pc.equal(query, "")).as_py():
        return query
    return pc.if_else(pc.and_(is_empty, pa.array(is_event)), None, query)


def _own_ids(hashes: pa.FixedSizeBinaryArray) -> pa.Array:
    """A query id for each line, derived from its hash."""
    size = len(_OWN_ID) + 2 * LINE_HASH_BYTES
    texts_of = np.empty((len(hashes), size), np.uint8)
    texts_of[:, : len(_OWN_ID)] = np.frombuffer(_OWN_ID, np.uint8)
    raw = np.frombuffer(hashes.buffers()[1], np.uint8)[hashes.offset * LINE_HASH_BYTES :]
    digits = np.frombuffer(raw[: len(hashes) * LINE_HASH_BYTES].tobytes().hex().encode(), np.uint8)
    texts_of[:, len(_OWN_ID) :] = digits.reshape(len(hashes), 2 * LINE_HASH_BYTES)
    offsets = np.arange(len(hashes) + 1, dtype=np.int32) * size
    return pa.StringArray.from_buffers(len(hashes), pa.py_buffer(offsets), pa.py_buffer(texts_of))


def _numpy(array: pa.Array) -> np.ndarray:
    return array.to_numpy(zero_copy_only=False)


# Columns of texts and ranks from the values in logs: text, numbers, nothing.


MAX_POSITION = 2**31 - 1
_NUMBER = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?", re.ASCII)


def texts(values: Values) -> pa.Array:
    """The values as text: integers in decimal, None as null. Other kinds of value raise ValueError."""
    if isinstance(values, pa.Array):
        return values.cast(pa.string())
    try:
        return pa.array(values, pa.string())
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([_text(value) for value in values], pa.string())


def _text(value: Any) -> str | None:
    if value is None or type(value) is str:
        return value
    if type(value) is int:
        return str(value)
    raise ValueError("neither text nor an integer")


def empty_as_null(column: pa.Array) -> pa.Array:
    """The column with null for each empty text."""
    is_empty = pc.equal(column, "")
    return pc.if_else(is_empty, None, column) if pc.any(is_empty).as_py() else column


def position_of(value: str | int | float) -> int:
    """A rank, 0 or more, also as text, or as a float without a fraction. ValueError for anything else."""
    number = _number(value)
    if number != int(number) or not 0 <= number <= MAX_POSITION:
        raise ValueError("no rank")
    return int(number)


def positions(values: Values) -> tuple[pa.Array, np.ndarray]:
    """(ranks as int32, -1 for none; whether each value is not a rank), from numbers, text and None."""
    column = _column(values)
    if column is not None and pa.types.is_null(column.type):
        column = column.cast(pa.int64())
    if column is not None and pa.types.is_integer(column.type) and _is_within(column, 0, MAX_POSITION):
        return column.cast(pa.int32()).fill_null(-1), np.zeros(len(column), bool)
    values_of_rows, is_bad = _parse_distinct(values, position_of, -1)
    return values_of_rows.cast(pa.int32()), is_bad


def _number(value: str | int | float) -> int | float:
    """A number, also from plain decimal text with at most 18 digits on each side of the point."""
    if not isinstance(value, str):
        return value
    if not _NUMBER.fullmatch(value):
        raise ValueError("no number")
    return float(value) if "." in value else int(value)


def _column(values: Values) -> pa.Array | None:
    """The values as an Arrow array; None if they have no common type."""
    if isinstance(values, pa.Array):
        return values
    try:
        return pa.array(values)  # with an integer type, Arrow would cut fractions off
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return None


def _is_within(column: pa.Array, least: int, most: int) -> bool:
    span = pc.min_max(column).as_py()
    return span["min"] is None or (span["min"] >= least and span["max"] <= most)


def _parse_distinct(values: Values, parse: Callable[[Any], int], null: int | None) -> tuple[pa.Array, np.ndarray]:
    """(int64, `null` for a missing or bad value; whether each value is bad); each distinct value is parsed once."""
    parsed: dict[Any, tuple[int | None, bool]] = {None: (null, False), "": (null, False)}
    rows = []
    for value in values.to_pylist() if isinstance(values, pa.Array) else values:
        key = value if type(value) is not bool else str(value)
        if key not in parsed:
            try:
                parsed[key] = parse(value), False
            except (ValueError, TypeError, OverflowError):
                parsed[key] = null, True
        rows.append(parsed[key])
    numbers = pa.array([number for number, _ in rows], pa.int64())
    return numbers, np.array([is_bad for _, is_bad in rows], bool)


# Times as logs write them -> milliseconds since 1970, UTC.
#
# `time_of` defines the meaning of a value. `times` parses whole columns: values that Arrow's parser accepts mean the
# same as in `time_of` (except the year 0, which is excluded). A column that it does not accept completely goes through
# `time_of`.


TIME = LOG_ROW.field("time").type
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999  # the years 1 to 9999
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOOK_AT = 1000
_MIN_EPOCH_DIGITS = 10  # fewer digits are a date without dashes


def time_of(value: str | int | float, time_format: str) -> int:
    """Milliseconds since 1970. Raises ValueError, TypeError or OverflowError for anything but a time.

    iso: ISO 8601, UTC by default; a number, also as text of ten digits or more, is in milliseconds, as in OpenSearch
    date fields. epoch_s, epoch_ms: a number, also as text. Fractions of a millisecond are cut off.
    """
    is_long = isinstance(value, str) and len(value) >= _MIN_EPOCH_DIGITS
    if time_format == "iso" and isinstance(value, str) and not (is_long and value.isascii() and value.isdigit()):
        moment = datetime.fromisoformat(value)
        since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
        return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000
    number = _number(value)
    scale = 1000 if time_format == "epoch_s" else 1
    # A float is cut at its shortest decimal form, not its binary one: 1.001 s is 1001 ms.
    milliseconds = number * scale if isinstance(number, int) else int(np.floor(round(number * scale, 3)))
    if not FIRST_MS <= milliseconds <= LAST_MS:
        raise ValueError("beyond the years 1 to 9999")
    return milliseconds


def times(values: Values, time_format: str) -> tuple[pa.Array, np.ndarray]:
    """(TIME, null for none; whether each value is not a time), from text, numbers and None. "" counts as missing."""
    column = _column(values)
    moments = None if column is None else _whole_column(column, time_format)
    if moments is not None:
        return moments, np.zeros(len(moments), bool)
    if column is not None and (pa.types.is_timestamp(column.type) or pa.types.is_date(column.type)):
        return _arrow_times(column)
    milliseconds, is_bad = _parse_distinct(values, lambda value: time_of(value, time_format), None)
    return milliseconds.cast(TIME), is_bad


def _whole_column(column: pa.Array, time_format: str) -> pa.Array | None:
    """The times of a column that Arrow parses completely; None otherwise."""
    kind = column.type
    if pa.types.is_null(kind):
        return column.cast(TIME)
    if pa.types.is_integer(kind) and _is_within(column, FIRST_MS, LAST_MS):
        milliseconds = pc.multiply(column.cast(pa.int64()), 1000 if time_format == "epoch_s" else 1)
    elif pa.types.is_string(kind) and time_format == "iso":
        column = empty_as_null(column)
        # The first text decides which parser is tried, since Arrow is slow on a column of errors.
        first = next((text for text in column[:_LOOK_AT].to_pylist() if text), "Z")
        has_zone = first[-1] == "Z" or any(mark in first[len("2026-09-01") :] for mark in "+-")
        try:
            milliseconds = column.cast(TIME if has_zone else pa.timestamp("ms")).cast(pa.int64())
        except pa.ArrowInvalid:
            return None
    else:
        return None
    return milliseconds.cast(TIME) if _is_within(milliseconds, FIRST_MS, LAST_MS) else None


def _arrow_times(column: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """The times of Arrow's own timestamps and dates; without a zone they are in UTC."""
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
