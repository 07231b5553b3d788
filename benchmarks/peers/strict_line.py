"""One UBI line, read strictly, one Python object at a time: what the peers do with a line of no everyday form.

Written from docs/data.md and not shared with the pipeline, so that comparing results compares two readings.
"""

import json
from datetime import UTC, datetime
from typing import Any, NamedTuple

_ACTION_LINES = ("index", "create", "update", "delete")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Row(NamedTuple):
    """A readable line. `kind`: search, click or impression; `time`: milliseconds since 1970, UTC; position -1: none."""

    kind: str
    query_id: str
    client: str | None
    query: str | None
    document: str | None
    position: int
    time: int | None
    agent: str | None


def read_line(line: bytes) -> Row | None:
    """The row of a line; None for one that cannot be read, and for what is no search, click or impression."""
    try:
        text = line.decode()
        value = json.loads(text, parse_constant=_refuse)
        if "\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode()  # raises for half of a surrogate pair: no text
        return _row(value)
    except (ValueError, TypeError, OverflowError, OSError, RecursionError):  # UnicodeError and JSONDecodeError too
        return None


def _row(value: Any) -> Row | None:
    value = _object(value)
    if not value.get("query_id") and len(value) == 1 and next(iter(value)) in _ACTION_LINES:
        return None
    if "query_id" not in value and value.get("_source") is not None:
        value = _object(value["_source"])
    query_id, client = _name(value.get("query_id")), _name(value.get("client_id"))
    query, action = _name(value.get("user_query")), _text(value.get("action_name"))
    attributes = value.get("query_attributes")
    agent = attributes.get("user_agent") if type(attributes) is dict else None
    agent = agent if type(agent) is str else None
    event = _object(value.get("event_attributes"))
    shown = _object(event.get("object"))
    document = _name(shown.get("object_id")) or _name(shown.get("internal_id")) or None
    position = _place(event.get("position"))
    time = _milliseconds(value.get("timestamp"))
    if not query_id:
        return None
    if not action:
        return None if query is None else Row("search", query_id, client or None, query, None, -1, time, agent)
    if action not in ("click", "impression") or not document:
        return None
    return Row(action, query_id, client or None, None, document, position, time, None)


def _text(value: Any) -> str | None:
    if value is not None and type(value) is not str:
        raise TypeError("not a text")
    return value


def _name(value: Any) -> str | None:
    return str(value) if type(value) is int else _text(value)


def _object(value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if type(value) is not dict:
        raise TypeError("not an object")
    return value


def _place(position: Any) -> int:
    """A line can do without its place, so one that is none costs nothing else."""
    ordinal = position.get("ordinal") if type(position) is dict else None
    if type(ordinal) is dict:
        ordinal = ordinal.get("index")
    if type(ordinal) is str and ordinal.isdigit():
        ordinal = int(ordinal)
    if type(ordinal) not in (int, float) or ordinal != int(ordinal) or not 0 <= ordinal < 2**31:
        return -1
    return int(ordinal)


def _milliseconds(value: Any) -> int | None:
    if value is None or value == "":
        return None
    if type(value) is int or (type(value) is str and len(value) >= 10 and value.isascii() and value.isdigit()):
        datetime.fromtimestamp(int(value) / 1000, UTC)  # raises beyond the years 1 to 9999
        return int(value)
    moment = datetime.fromisoformat(value)
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


def _refuse(constant: str) -> None:
    raise ValueError(constant)
