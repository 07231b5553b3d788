"""Filters of documents by their columns: {"price": {"lt": 20}, "category": ["drill", "saw"], "in_stock": true}.

A value stands for itself, a list for any of its values, an object for bounds that all hold. Every named column must
match, and a document without a value there does not. Arrow compares the values as data: none becomes part of a query
language.
"""

import json
from collections.abc import Mapping
from functools import reduce
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clicktower.schemas.errors import UsageError

Value = str | int | float | bool
Bound = Literal["lt", "lte", "gt", "gte"]
Filter = Mapping[str, Value | list[Value] | dict[Bound, Value]]

_BOUNDS = {"lt": pc.less, "lte": pc.less_equal, "gt": pc.greater, "gte": pc.greater_equal}


def read_filter(text: str) -> Filter:
    """A filter as JSON, from a command line. Raises UsageError for other text."""
    try:
        where = json.loads(text)
    except ValueError:
        where = None
    if not isinstance(where, dict):
        raise UsageError("The filter is no JSON object.", 'Write it as \'{"price": {"lt": 20}}\'.')
    return where


def matching_rows(documents: pa.RecordBatch, where: Filter) -> np.ndarray:
    """The rows of the documents that match, int64, ascending.

    Raises UsageError for an unknown column or bound, and for values that a column's cannot be compared with.
    """
    matches = np.ones(len(documents), bool)
    for name, condition in where.items():
        if name not in documents.schema.names:
            raise UsageError(
                f"The documents have no column {name!r}.",
                f"Use {', '.join(documents.schema.names)}; `publish --set columns=...` keeps more.",
            )
        column = documents[name]
        try:
            matches &= _matches(column, condition).fill_null(False).to_numpy(zero_copy_only=False)
        except (pa.ArrowException, OverflowError):
            raise UsageError(
                f"The filter compares the column {name!r} of type {column.type} with a value of another type.",
                "Give values of the column's type.",
            ) from None
    return np.flatnonzero(matches)


def _matches(column: pa.Array, condition: object) -> pa.Array:
    """Boolean; null where the column has no value."""
    if isinstance(condition, Mapping):
        if not condition or not condition.keys() <= _BOUNDS.keys():
            raise UsageError("A filter has an unknown bound, or none.", f"Use {', '.join(_BOUNDS)}.")
        return reduce(pc.and_, (_BOUNDS[bound](column, pa.scalar(limit)) for bound, limit in condition.items()))
    if isinstance(condition, list):
        values = pa.array(condition)
        pc.equal(column[:0], values[:0])  # raises for types that cannot be compared; a cast would make text of numbers
        return pc.is_in(column, value_set=values.cast(column.type))
    return pc.equal(column, pa.scalar(condition))
