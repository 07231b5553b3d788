"""Columns of texts and ranks from what logs hold: text, numbers, nothing."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
