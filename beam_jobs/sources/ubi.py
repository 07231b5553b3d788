"""OpenSearch User Behavior Insights (UBI 1.0-1.3) as newline-delimited JSON, also with bulk action lines.

A search line has `user_query`; an event line has `action_name` (and in some logs the query once more, which is not
needed: events are joined by `query_id`). Used of a search line: query_id, client_id, timestamp, user_query,
query_attributes.user_agent, application. Used of an event line: query_id, client_id, timestamp, action_name,
event_attributes.object.object_id, event_attributes.position.ordinal, application.

Every line is parsed by orjson, one at a time, so there is one definition of a readable line and one bad line costs one
line. orjson alone takes 1.5 M lines/s on one core; with hashes, checks and Arrow columns it is 260,000.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from schemas.log_row import KINDS, LOG_ROW

LINE_HASH_BYTES = 16
_ACTIONS = frozenset({"index", "create", "update", "delete"})
_EVENT_KINDS = {"click": "click", "impression": "impression"}
_KIND_CODES = {kind: code for code, kind in enumerate(KINDS)}
_MAX_POSITION = 2**31 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Row = tuple[str, str, str | None, str | None, str | None, int, int | None, str | None, str | None]


class UnreadableLineError(Exception):
    """A line that gives no row. `fate` is its name in schemas.ledger.FATES."""

    def __init__(self, fate: str) -> None:
        self.fate = fate
        super().__init__(fate)


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsedBlock:
    """What the lines of a block gave: rows for the readable ones, the place of each of the others in the block."""

    rows: pa.RecordBatch  # LOG_ROW
    reject_offsets: np.ndarray  # int64, bytes from the start of the block, ascending
    reject_reasons: list[str]
    num_action_lines: int


def parse_block(block: bytes) -> ParsedBlock:
    """The rows of a block of whole lines. The last line may lack its newline.

    A carriage return before the newline belongs to the line end, not to the line.
    """
    lines = block.split(b"\n")
    if not lines[-1]:
        lines.pop()
    rows: list[Row] = []
    hashes: list[bytes] = []
    rejected: list[int] = []
    reasons: list[str] = []
    num_action_lines = 0
    for number, line in enumerate(lines):
        try:
            row = parse_line(line)
        except UnreadableLineError as error:
            rejected.append(number)
            reasons.append(error.fate)
            continue
        if row is None:
            num_action_lines += 1
            continue
        rows.append(row)
        hashes.append(blake2b(line[:-1] if line.endswith(b"\r") else line, digest_size=LINE_HASH_BYTES).digest())
    offsets = np.zeros(0, np.int64)
    if rejected:
        ends = np.cumsum(np.fromiter(map(len, lines), np.int64, len(lines)) + 1)
        offsets = np.concatenate([[0], ends])[rejected]
    return ParsedBlock(
        rows=_batch(rows, hashes), reject_offsets=offsets, reject_reasons=reasons, num_action_lines=num_action_lines
    )


def parse_line(line: bytes) -> Row | None:
    """The row of one line without its hash, in the order of LOG_ROW; None for a bulk action line.

    The time is in milliseconds since 1970, UTC. Raises UnreadableLineError.
    """
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        raise UnreadableLineError("unreadable_not_json" if _is_utf8(line) else "unreadable_not_utf8") from None
    if type(value) is not dict:
        raise UnreadableLineError("unreadable_not_json")
    query_id = value.get("query_id")
    if not query_id:
        if len(value) == 1 and (action := next(iter(value))) in _ACTIONS and type(value[action]) is dict:
            return None
        if query_id is None or query_id == "":
            raise UnreadableLineError("unreadable_no_query_id")
    if type(query_id) is not str:
        raise UnreadableLineError("unreadable_field")
    client_id = _text(value, "client_id") or None
    application = _text(value, "application")
    time = _milliseconds(value.get("timestamp"))
    action_name = _text(value, "action_name")
    if action_name is None:
        query = _text(value, "user_query")
        if query is None:
            raise UnreadableLineError("unreadable_field")
        user_agent = _text(_object(value, "query_attributes"), "user_agent")
        return "search", query_id, client_id, query, None, -1, time, user_agent, application
    kind = _EVENT_KINDS.get(action_name, "other")
    attributes = _object(value, "event_attributes")
    document_id = _text(_object(attributes, "object"), "object_id") or None
    position = _position(_object(attributes, "position").get("ordinal"))
    return kind, query_id, client_id, None, document_id, position, time, None, application


def _text(value: dict[str, Any], name: str) -> str | None:
    text = value.get(name)
    if text is not None and type(text) is not str:
        raise UnreadableLineError("unreadable_field")
    return text


def _object(value: dict[str, Any], name: str) -> dict[str, Any]:
    found = value.get(name)
    if found is None:
        return {}
    if type(found) is not dict:
        raise UnreadableLineError("unreadable_field")
    return found


def _position(ordinal: Any) -> int:
    if ordinal is None:
        return -1
    if type(ordinal) is not int or not 0 <= ordinal <= _MAX_POSITION:  # bool is another type
        raise UnreadableLineError("unreadable_field")
    return ordinal


def _milliseconds(timestamp: Any) -> int | None:
    """Milliseconds since 1970: ISO 8601, or epoch milliseconds as OpenSearch date fields take them; no zone is UTC."""
    if timestamp is None:
        return None
    try:
        if type(timestamp) is int:
            moment = datetime.fromtimestamp(timestamp / 1000, UTC)
        else:
            moment = datetime.fromisoformat(timestamp)
            if moment.tzinfo is None:
                moment = moment.replace(tzinfo=UTC)
        since = moment - _EPOCH
    except (TypeError, ValueError, OverflowError, OSError):
        raise UnreadableLineError("unreadable_field") from None
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _batch(rows: list[Row], hashes: list[bytes]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) if rows else [()] * (len(LOG_ROW) - 1)
    kinds = pa.array([_KIND_CODES[kind] for kind in columns[0]], pa.int8())
    applications = pa.array(columns[8], pa.string()).dictionary_encode()
    arrays = [
        pa.DictionaryArray.from_arrays(kinds, pa.array(KINDS)),
        *(pa.array(column, field.type) for column, field in zip(columns[1:8], list(LOG_ROW)[1:8], strict=True)),
        pa.DictionaryArray.from_arrays(applications.indices.cast(pa.int16()), applications.dictionary),
        pa.array(hashes, pa.binary(LINE_HASH_BYTES)),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=LOG_ROW)
