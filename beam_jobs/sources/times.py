"""Times as logs write them -> milliseconds since 1970, UTC.

`time_of` says what a value means. `times` does a column at once: what Arrow's parser takes it takes as `time_of` does
(the year 0 apart, which is guarded), and what it does not take goes through `time_of`, each distinct value once.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.sources.texts import empty_as_null, is_number

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
