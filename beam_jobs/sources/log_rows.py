"""Mapped columns of a log -> LOG_ROW rows, and the lines that are not rows.

This is the one definition of a readable line, once its format has been parsed; every source ends here. A line must say
which query it belongs to: by a query id, by the query itself, or by both. A search must have its query. An id must be
one: a value of another kind loses the line. What a line can do without (OPTIONAL) becomes null, and is counted.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pkgutil import resolve_name
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clicktower.beam_jobs.sources.mapping import NO_QUERY
from clicktower.beam_jobs.sources.mapping import Mapping as LogMapping
from clicktower.schemas.search_log import CLICK_WEIGHT, KINDS, LINE_HASH_BYTES, LOG_ROW
from clicktower.schemas.text_contract import MARKS_OF_NOTHING, ids

_SEARCH, _CLICK, _OTHER = (KINDS.index(kind) for kind in ("search", "click", "other"))
# The prefix of ids made for lines without one: such a line is in a group by itself, with its exact repeats.
_OWN_ID = b"line "

_MAX_APPLICATIONS = 2**15 - 1

OPTIONAL = frozenset({"position", "dwell", "user_agent", "application"})

Values: TypeAlias = Sequence[Any] | pa.Array


# How many values of a column are of a wrong kind: "position: text" -> 3. No text of the log is in it.
WrongValues: TypeAlias = Counter[str]


def mapped_log_rows(
    hashes: pa.FixedSizeBinaryArray, columns: Mapping[str, Values], mapping: LogMapping
) -> tuple[pa.RecordBatch, np.ndarray, list[str], WrongValues]:
    """`log_rows` of columns by our names, as a mapping reads them."""
    return log_rows(
        hashes, columns, mapping.events.kinds(), mapping.time_format, min_dwell=mapping.min_dwell, null=mapping.null
    )


def log_rows(
    hashes: pa.FixedSizeBinaryArray,
    columns: Mapping[str, Values],
    kinds: Mapping[str, tuple[str, int]],
    time_format: str,
    *,
    min_dwell: float | None = None,
    null: Sequence[str] | None = None,
    is_ubi: bool = False,
) -> tuple[pa.RecordBatch, np.ndarray, list[str], WrongValues]:
    """(LOG_ROW rows in the order of the lines, the numbers of the rejected lines ascending, the fate of each, the
    values of wrong kinds, of rows and of rejected lines).

    `hashes`: LINE_HASH_BYTES of each line. `columns`: for each of mapping.Columns that the log has, its values line by
    line: text or numbers; None for a missing value. `kinds`: kind and weight of the values of `event`. Without that
    column, or a value in it, a line with a document is a click and one without is a search. In UBI a line without a
    value is a search in any case, and a search must have an id. `min_dwell`: a click with a shorter `dwell` has the
    weight 0. `null`: as in the mapping.
    """
    num_lines = len(hashes)
    marks = MARKS_OF_NOTHING if null is None else ("", *null)
    wrong: WrongValues = Counter()
    is_wrong = np.zeros(num_lines, bool)

    def texts_of(name: str) -> pa.Array:
        return texts(columns[name]) if name in columns else pa.nulls(num_lines, pa.string())

    def ids_of(name: str) -> pa.Array:
        if name not in columns:
            return pa.nulls(num_lines, pa.string())
        id_column, is_no_id = id_texts(columns[name], marks)
        if is_no_id.any():
            wrong[f"{name}: a fraction, or a float too large for an id"] += int(is_no_id.sum())
            np.logical_or(is_wrong, is_no_id, out=is_wrong)
        return id_column

    query_id, client_id, document_id = (ids_of(name) for name in ("query_id", "client_id", "document_id"))
    query = _without_marks(texts_of("query"), NO_QUERY if null is None else marks, "")
    event = columns.get("event")
    kind, weight = _kinds_and_weights(event, document_id, kinds, () if is_ubi else marks, is_ubi)
    is_event = kind != _SEARCH
    query = _without_empty(query, is_event)
    position, bad_position = positions(columns.get("position", pa.nulls(num_lines)), marks)
    wrong.update(_kinds_of_wrong("position", columns.get("position"), bad_position))
    time, bad_time, bad_year = times(columns.get("time", pa.nulls(num_lines)), time_format, marks)
    wrong.update(_kinds_of_wrong("time", columns.get("time"), bad_time))
    if min_dwell is not None:
        is_short, faults = _parsed(columns["dwell"], lambda dwell: int(number_in(dwell) < min_dwell), 0, marks)
        weight = np.where((kind == _CLICK) & is_short.to_numpy().astype(bool), 0, weight)
        wrong.update(_kinds_of_wrong("dwell", columns["dwell"], faults != _FINE))

    has_id, has_query = _numpy(query_id.is_valid()), _numpy(query.is_valid())
    fates = {  # the first that holds counts
        "unreadable_field": is_wrong,
        "unreadable_time": bad_time,
        "unreadable_year": bad_year,
        "unreadable_no_query": ~is_event & ~has_query & has_id,
        "unreadable_no_query_id": ~has_id & ~(has_query & (is_event | (not is_ubi))),
    }
    is_rejected = np.logical_or.reduce(list(fates.values()))
    reject = np.flatnonzero(is_rejected)
    reasons = np.select([held[reject] for held in fates.values()], list(fates), "").tolist() if len(reject) else []

    if not has_id.all():
        query_id = pc.replace_with_mask(query_id, pa.array(~has_id), _own_ids(hashes.filter(pa.array(~has_id))))
    rows = pa.RecordBatch.from_arrays(
        [
            pa.DictionaryArray.from_arrays(pa.array(kind, pa.int8()), pa.array(KINDS)),
            query_id,
            client_id,
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
    return (rows.filter(pa.array(~is_rejected)) if len(reject) else rows), reject, reasons, wrong


def _kinds_and_weights(
    event: Values | None,
    document_id: pa.Array,
    kinds: Mapping[str, tuple[str, int]],
    marks: Sequence[str],
    is_ubi: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """The index into KINDS and the weight of each line. `marks`: the values that are none."""
    by_document = np.where(_numpy(document_id.is_valid()), _CLICK, _SEARCH)
    if event is None:
        return by_document, np.where(by_document == _CLICK, CLICK_WEIGHT, 0)
    values = texts(event).dictionary_encode()
    meaning = {
        **dict.fromkeys(("", *marks), (-1, 0)),
        **{value: (KINDS.index(kind), weight) for value, (kind, weight) in kinds.items()},
    }
    named = values.dictionary.to_pylist()
    distinct = [meaning.get(value if is_ubi else value.strip(), (_OTHER, 0)) for value in named]
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
NUMBER = re.compile(r"[+-]?[0-9]{1,20}(\.[0-9]{0,20})?([eE][+-]?[0-9]{1,2})?", re.ASCII)
_KINDS_OF_VALUES = {
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "an object",
}


def kind_of_value(value: Any) -> str:
    """What a value is, for people; nothing of the value itself."""
    return _KINDS_OF_VALUES.get(type(value), "a value of another kind")


def _kinds_of_wrong(name: str, values: Values | None, is_wrong: np.ndarray) -> WrongValues:
    """What the wrong values of a column are."""
    numbers = np.flatnonzero(is_wrong).tolist()
    if values is None or not numbers:
        return Counter()
    wrong = values.take(pa.array(numbers)).to_pylist() if isinstance(values, pa.Array) else [values[n] for n in numbers]
    return Counter(f"{name}: {kind_of_value(value)}" for value in wrong)


def texts(values: Values) -> pa.Array:
    """The values as text: numbers in decimal, whole ones without a fraction, None as null. Other kinds of value raise
    ValueError.
    """
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
    if type(value) is float:
        return f"{value:.0f}" if value.is_integer() else repr(value)
    raise ValueError("neither text nor a number")


_EXACT_FLOATS = {pa.float64(): 2**53, pa.float32(): 2**24, pa.float16(): 2**11}  # up to here each integer is a float


def id_texts(values: Values, marks: Sequence[str] = MARKS_OF_NOTHING) -> tuple[pa.Array, np.ndarray]:
    """(ids as they were meant (schemas.text_contract), null for a missing one; whether each value cannot be an id: a
    float with a fraction, or beyond the integers that floats tell apart).

    A NaN is a missing value.
    """
    if not isinstance(values, pa.Array):
        is_no_id = np.array([type(value) is float and not _is_exact(value) for value in values], bool)
        if is_no_id.any():
            values = [None if bad else value for value, bad in zip(values, is_no_id.tolist(), strict=True)]
        return _without_marks(ids(texts(values)), marks, None), is_no_id
    is_no_id = np.zeros(len(values), bool)
    if pa.types.is_floating(values.type):
        numbers = _numpy(values.cast(pa.float64()).fill_null(float("nan")))
        is_exact = (np.abs(numbers) <= _EXACT_FLOATS[values.type]) & (numbers == np.floor(numbers))
        is_no_id = ~np.isnan(numbers) & ~is_exact
        values = pa.array(np.where(is_exact, numbers, 0).astype(np.int64), mask=~is_exact)
    column = ids(texts(values))
    if pa.types.is_decimal(values.type):
        is_no_id = _numpy(pc.match_substring(column, ".").fill_null(False))
        column = pc.if_else(pa.array(is_no_id), None, column)
    return _without_marks(column, marks, None), is_no_id


def _is_exact(value: float) -> bool:
    return value != value or (value.is_integer() and abs(value) <= _EXACT_FLOATS[pa.float64()])


def _without_marks(column: pa.Array, marks: Sequence[str], instead: str | None) -> pa.Array:
    """The column with something else in place of each mark of nothing."""
    is_mark = pc.is_in(column, value_set=pa.array(marks, pa.string()))
    return pc.if_else(is_mark, pa.scalar(instead, pa.string()), column) if pc.any(is_mark).as_py() else column


def position_of(value: str | int | float) -> int:
    """A rank, 0 or more, also as text, or as a float without a fraction. ValueError for anything else."""
    number = number_in(value)
    if number != int(number) or not 0 <= number <= MAX_POSITION:
        raise ValueError("no rank")
    return int(number)


def positions(values: Values, marks: Sequence[str] = MARKS_OF_NOTHING) -> tuple[pa.Array, np.ndarray]:
    """(ranks as int32, -1 for none; whether each value is not a rank), from numbers, text and None. A NaN is none."""
    column = _column(values)
    if column is not None and pa.types.is_null(column.type):
        column = column.cast(pa.int64())
    if column is not None and pa.types.is_integer(column.type) and _is_within(column, 0, MAX_POSITION):
        return column.cast(pa.int32()).fill_null(-1), np.zeros(len(column), bool)
    ranks, faults = _parsed(values, position_of, -1, marks)
    return ranks.cast(pa.int32()), faults != _FINE


def number_in(value: str | int | float) -> int | float:
    """A number, also from decimal text with at most 20 digits on each side of the point."""
    if not isinstance(value, str):
        return value
    if not NUMBER.fullmatch(value):
        raise ValueError("no number")
    return int(value) if value.lstrip("+-").isdigit() else float(value)


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


_FINE, _BAD, _IMPLAUSIBLE = range(3)


class ImplausibleTime(ValueError):
    """A time that is read, and lies outside the years of any search log."""


def _parsed(
    values: Values, parse: Callable[[Any], int], null: int | None, marks: Sequence[str]
) -> tuple[pa.Array, np.ndarray]:
    """(int64, `null` for a missing or bad value; what is wrong with each value); each distinct value is parsed once,
    text without the space around it.
    """
    parsed: dict[Any, tuple[int | None, int]] = dict.fromkeys((None, *marks), (null, _FINE))
    rows = []
    for value in values.to_pylist() if isinstance(values, pa.Array) else values:
        key = value if type(value) is not bool else str(value)
        if key not in parsed:
            bare = value.strip() if isinstance(value, str) else value
            try:
                parsed[key] = (parse(bare), _FINE) if bare == bare and bare not in marks else (null, _FINE)
            except ImplausibleTime:
                parsed[key] = null, _IMPLAUSIBLE
            except (ValueError, TypeError, OverflowError):
                parsed[key] = null, _BAD
        rows.append(parsed[key])
    numbers = pa.array([number for number, _ in rows], pa.int64())
    return numbers, np.array([fault for _, fault in rows], np.int8)


# Times as logs write them -> milliseconds since 1970, UTC.
#
# `times` parses whole columns: values that Arrow's parser accepts mean the same as in `log_times.time_of`, which
# defines the meaning of a value. A column that it does not accept completely goes through that.


TIME = LOG_ROW.field("time").type
FIRST_MS, END_MS = 631_152_000_000, 4_102_444_800_000  # the years 1990 to 2099
PER_SECOND = {"epoch_s": 1, "epoch_ms": 1_000, "epoch_us": 1_000_000, "epoch_ns": 1_000_000_000}
HOURS = range(1_990_010_100, 2_099_123_124)
_LOOK_AT = 1000
_ONE_BY_ONE = "clicktower.beam_jobs.sources.log_times"


def times(
    values: Values, time_format: str, marks: Sequence[str] = MARKS_OF_NOTHING
) -> tuple[pa.Array, np.ndarray, np.ndarray]:
    """(TIME, null for none; whether each value is not a time; whether it is an implausible one), from text, numbers and
    None.
    """
    column = _column(values)
    moments = None if column is None else _whole_column(column, time_format)
    if moments is not None:
        return moments, np.zeros(len(moments), bool), np.zeros(len(moments), bool)
    if column is not None and (pa.types.is_timestamp(column.type) or pa.types.is_date(column.type)):
        moments, is_implausible = resolve_name(f"{_ONE_BY_ONE}:arrow_times")(column)
        return moments, np.zeros(len(moments), bool), is_implausible
    milliseconds, faults = _parsed(
        values, partial(resolve_name(f"{_ONE_BY_ONE}:time_of"), time_format=time_format), None, marks
    )
    return milliseconds.cast(TIME), faults == _BAD, faults == _IMPLAUSIBLE


def _whole_column(column: pa.Array, time_format: str) -> pa.Array | None:
    """The times of a column that Arrow parses completely; None otherwise."""
    kind = column.type
    if pa.types.is_null(kind):
        return column.cast(TIME)
    if pa.types.is_integer(kind):
        milliseconds = _whole_numbers(column, time_format)
    elif pa.types.is_string(kind) and time_format == "iso":
        column = _without_marks(column, [""], None)
        # The first text decides which parser is tried, since Arrow is slow on a column of errors.
        first = next((text for text in column[:_LOOK_AT].to_pylist() if text), "Z")
        has_zone = first[-1] == "Z" or any(mark in first[len("2026-09-01") :] for mark in "+-")
        try:
            milliseconds = column.cast(TIME if has_zone else pa.timestamp("ms")).cast(pa.int64())
        except pa.ArrowInvalid:
            return None
    else:
        return None
    if milliseconds is None or not _is_within(milliseconds, FIRST_MS, END_MS - 1):
        return None
    return milliseconds.cast(TIME)


def _whole_numbers(column: pa.Array, time_format: str) -> pa.Array | None:
    """The milliseconds of integers that are all plausible in the unit of the format, or in one unit; None otherwise."""
    for name, per_second in PER_SECOND.items():
        first, last = FIRST_MS * per_second // 1000, END_MS * per_second // 1000 - 1
        if time_format == "iso" and name == "epoch_s":
            last = HOURS.start - 1
        if time_format in ("iso", name) and _is_within(column, first, last):
            numbers = column.cast(pa.int64())
            if per_second <= 1000:
                return pc.multiply(numbers, 1000 // per_second)
            return pc.divide(numbers, per_second // 1000)
    return None
