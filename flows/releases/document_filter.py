"""Filters of documents by their columns: {"price": {"lt": 20}, "category": ["drill", "saw"], "in_stock": true}.

    20, "drill", true, null          the value, or none
    ["drill", "saw", null]           any of them
    {"gte": 5, "lt": 20}             bounds lt, lte, gt, gte: all of them hold
    {"exists": true}                 there is a value; false: there is none, as null
    {"not": "drill"}                 what the value or the list does not match, documents without a value too

Every named column must match. A number is compared in the column's own type: 19.99 as float32 with a float32 of 19.99,
whole numbers digit by digit. A number that a column of whole numbers cannot hold, such as 2.5, equals none of them, and
a bound holds by its worth. A list matches what its values match.

Arrow compares the values as data: none becomes part of a query language.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clicktower.schemas.errors import UsageError

Value = str | int | float | bool | None
Operator = Literal["lt", "lte", "gt", "gte", "not", "exists"]
Filter = Mapping[str, Value | list[Value] | dict[Operator, Value | list[Value]]]

_BOUNDS: dict[str, Callable[..., pa.Array]] = {
    "lt": pc.less, "lte": pc.less_equal, "gt": pc.greater, "gte": pc.greater_equal
}  # fmt: skip


def read_filter(text: str) -> Filter:
    """A filter as JSON, from a command line. Raises UsageError for other text."""
    try:
        where = json.loads(text)
    except (ValueError, RecursionError):
        where = None
    require_filter(where)
    return where


def require_filter(where: object) -> None:
    """Raises UsageError for anything but conditions by column."""
    if not isinstance(where, Mapping):
        raise UsageError("The filter is no JSON object.", 'Write it as {"price": {"lt": 20}}.')


def matching_rows(documents: pa.RecordBatch, where: Filter) -> np.ndarray:
    """The rows of the documents that match, int64, ascending.

    Raises UsageError for an unknown column or operator, and for values that a column's cannot be compared with.
    """
    require_filter(where)
    matches = np.ones(len(documents), bool)
    for name, condition in where.items():
        if name not in documents.schema.names:
            raise UsageError(
                f"The documents have no column {name!r}.",
                f"Use {', '.join(documents.schema.names)}; `publish --set columns=...` keeps more.",
            )
        column = documents[name]
        try:
            matches &= _matches(column, condition)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            raise UsageError(
                f"The filter compares the column {name!r} of type {column.type} with a value of another type.",
                "Give values of the column's type.",
            ) from None
    return np.flatnonzero(matches)


def _matches(column: pa.Array, condition: object) -> np.ndarray:
    """Whether each document matches, bool."""
    if not isinstance(condition, Mapping):
        return _equals(column, condition if isinstance(condition, list | tuple) else [condition])
    if not condition or not condition.keys() <= {*_BOUNDS, "not", "exists"}:
        raise UsageError("A filter has an unknown operator, or none.", f"Use {', '.join(_BOUNDS)}, not or exists.")
    return reduce(np.logical_and, (_holds(column, operator, value) for operator, value in condition.items()))


def _equals(column: pa.Array, choices: Sequence[Any]) -> np.ndarray:
    kind = column.type
    values = [_in_python(value, kind) for value in choices if value is not None]
    if pa.types.is_integer(kind):
        values = [int(value) for value in values if value == int(value) and _is_in_range(int(value), kind)]
    elif pa.types.is_floating(kind):
        values += [-value for value in values if value == 0]  # is_in tells 0 from -0
    matches = pc.is_in(column, value_set=pa.array(values, kind))
    return _bools(pc.or_(matches, column.is_null()) if None in choices else matches)


def _holds(column: pa.Array, operator: str, operand: Any) -> np.ndarray:
    if operator == "not":
        if isinstance(operand, Mapping):
            raise UsageError("The operator not has an object.", "Give it a value or a list; bounds have opposites.")
        return ~_matches(column, operand)
    if operator == "exists":
        if not isinstance(operand, bool):
            raise UsageError("The operator exists has neither true nor false.", 'Write {"exists": true}.')
        return _bools(column.is_valid()) == operand
    limit = _in_python(operand, column.type)
    if pa.types.is_integer(column.type):  # among whole numbers 2.5 bounds as one of its neighbours
        limit = (math.ceil if operator in ("lt", "gte") else math.floor)(limit)
        if not _is_in_range(limit, column.type):
            return _bools(column.is_valid()) & ((limit > 0) == (operator in ("lt", "lte")))
    return _bools(_BOUNDS[operator](column, pa.scalar(limit, column.type)))


def _in_python(value: Any, kind: pa.DataType) -> Any:
    """A value to compare with those of a type. Raises TypeError for one of another type, ValueError for no number."""
    value = value.item() if isinstance(value, np.generic) else value
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    of_kind = (int, float) if is_number else bool if pa.types.is_boolean(kind) else str
    if not isinstance(value, of_kind) or (is_number and isinstance(value, bool)):
        raise TypeError
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError
    return pa.scalar(float(value), kind).as_py() if pa.types.is_floating(kind) else value


def _is_in_range(value: int, kind: pa.DataType) -> bool:
    """Whether a type of whole numbers has a value."""
    signed = pa.types.is_signed_integer(kind)
    end = 1 << (kind.bit_width - signed)
    return (-end if signed else 0) <= value < end


def _bools(matches: pa.Array) -> np.ndarray:
    return matches.fill_null(False).to_numpy(zero_copy_only=False)
