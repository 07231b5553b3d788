"""OpenSearch User Behavior Insights (UBI 1.0-1.3) as newline-delimited JSON.

A search line has `user_query`; an event line has `action_name`, and in some logs the query again. Fields used in both:
query_id, client_id, timestamp, user_query, application, query_attributes.user_agent; in an event also action_name and

    event_attributes.object.object_id         text or a number; if it is missing, internal_id, the engine's own id
    event_attributes.position.ordinal         1.3: an integer;  1.0-1.2: an object whose `index` is one

Files for the bulk API, with their action lines, are supported, and so are exports in which each line is a hit whose
`_source` is the event.

Values are texts or numbers. A line that is JSON but has other types is read once more, without the fields that a line
can do without (log_rows.OPTIONAL); if another field differs, it is unreadable.
Nearly all lines of a log are regular; compiled code reads them (`everyday_rows`), to the same rows.
"""

import ctypes
import weakref
from collections import Counter
from collections.abc import Container, Sequence
from collections.abc import Mapping as Table
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from clicktower.beam_jobs.compiled.log_library import library
from clicktower.beam_jobs.sources.json_columns import WRONG_FIELD, JsonColumns, as_object
from clicktower.beam_jobs.sources.log_rows import WrongValues, log_rows
from clicktower.beam_jobs.sources.mapping import Events, Mapping
from clicktower.beam_jobs.sources.read_lines import bare_lines, split_lines
from clicktower.beam_jobs.sources.source import ACTION, LineSource, ParsedBlock, parsed_lines, rows_of_lines, starts_of
from clicktower.schemas.search_log import KINDS, LOG_ROW
from clicktower.schemas.text_contract import MARKS_OF_NOTHING


@dataclass(frozen=True, kw_only=True, slots=True)
class EverydayRows:
    """The regular lines of a block, in order, and the numbers and places of the others.

    `odd`: int64, ascending. `odd_spans`: int64 [others, 2], where each begins and ends in the block, without line end.
    """

    rows: pa.RecordBatch
    odd: np.ndarray
    odd_spans: np.ndarray
    num_lines: int


class _Action(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("length", ctypes.c_int64), ("kind", ctypes.c_int32))


class _Columns:
    """Columns in the library's own memory, which is freed with this object."""

    def __init__(self, compiled: ctypes.CDLL, handle: int) -> None:
        self._compiled, self._handle, self._next = compiled, handle, 0
        weakref.finalize(self, compiled.ubi_rows_free, handle).atexit = False

    @property
    def num_lines(self) -> int:
        return self._compiled.ubi_rows_num_lines(self._handle)

    def buffer(self) -> pa.Buffer:
        """The next array, which keeps this object alive."""
        num_bytes = ctypes.c_int64()
        address = self._compiled.ubi_rows_array(self._handle, self._next, ctypes.byref(num_bytes))
        self._next += 1
        return pa.foreign_buffer(address, num_bytes.value, self) if num_bytes.value else pa.py_buffer(b"")

    def numbers(self) -> np.ndarray:
        return np.frombuffer(self.buffer(), np.int64)

    def column(self, kind: pa.DataType, length: int, num_buffers: int) -> pa.Array:
        buffers = [self.buffer() for _ in range(num_buffers)]
        return pa.Array.from_buffers(kind, length, [None] * (2 - num_buffers) + buffers)


def everyday_rows(block: bytes, kinds: Table[str, tuple[str, int]]) -> EverydayRows | None:
    """The regular lines of a block of whole lines; `kinds` gives kind and weight of each `action_name`.

    None if the library is missing, or the block or the number of actions is too large.
    """
    if (compiled := library()) is None or len(kinds) > MOST_KINDS:
        return None
    names = [name.encode() for name in kinds]
    meanings = [("search", 0), *kinds.values(), ("other", 0)]  # in the compiled code's numbers: 0 for a search
    actions = (_Action * len(names))(*(_Action(name, len(name), code) for code, name in enumerate(names, start=1)))
    handle = compiled.ubi_rows_new(block, len(block), actions, len(names), len(names) + 1)
    if not handle:
        return None
    columns = _Columns(compiled, handle)
    odd, odd_spans = columns.numbers(), columns.numbers().reshape(-1, 2)
    return EverydayRows(
        rows=_rows(columns, columns.num_lines - len(odd), meanings),
        odd=odd,
        odd_spans=odd_spans,
        num_lines=columns.num_lines,
    )


def _rows(columns: _Columns, length: int, meanings: Sequence[tuple[str, int]]) -> pa.RecordBatch:
    code = columns.column(pa.int8(), length, 1).to_numpy()
    kinds = np.array([KINDS.index(kind) for kind, _ in meanings], np.int8)
    kind = pa.DictionaryArray.from_arrays(kinds[code], pa.array(KINDS))
    weight = pa.array(np.array([weight for _, weight in meanings], np.int32)[code])
    query_id, client_id, query, document_id = (columns.column(pa.string(), length, 3) for _ in range(4))
    position = columns.column(pa.int32(), length, 1)
    time = columns.column(LOG_ROW.field("time").type, length, 2)
    user_agent = columns.column(pa.string(), length, 3)
    codes = columns.column(pa.int16(), length, 2)
    # A copy: a few rows of the block share this dictionary, and must not keep the memory of all its rows alive.
    applications = [pa.py_buffer(columns.buffer().to_pybytes()) for _ in range(3)]
    num_applications = applications[1].size // np.dtype(np.int32).itemsize - 1
    application = pa.DictionaryArray.from_arrays(
        codes, pa.StringArray.from_buffers(num_applications, applications[1], applications[2])
    )
    line_hash = columns.column(LOG_ROW.field("line_hash").type, length, 1)
    arrays = [kind, query_id, client_id, query, document_id, position, time, user_agent, application]
    arrays += [weight, line_hash]
    return pa.RecordBatch.from_arrays(arrays, schema=LOG_ROW)


ACTIONS = frozenset({"index", "create", "update", "delete"})
MOST_KINDS = 126  # of actions: the compiled code numbers them in a byte, with searches and all others
MOST_ODD = 0.05  # of the lines of a block: with more, the plain path takes no longer than both

# Where UBI has our columns. An action must be known, since it decides what a line is.
_COLUMNS = JsonColumns({
    "query_id": [("query_id",)],
    "client_id": [("client_id",)],
    "query": [("user_query",)],
    "event": [("action_name",)],
    "time": [("timestamp",)],
    "application": [("application",)],
    "user_agent": [("query_attributes", "user_agent")],
    "position": [("event_attributes", "position", "ordinal", "index"), ("event_attributes", "position", "ordinal")],
    "object_id": [("event_attributes", "object", "object_id")],
    "internal_id": [("event_attributes", "object", "internal_id")],
})  # fmt: skip


def kinds_of_actions(events: Events) -> dict[str, tuple[str, int]]:
    """Kind and weight of each `action_name`. A search is a line without one: an action `search` reports it a second
    time.
    """
    return {action: meaning for action, meaning in events.kinds().items() if meaning[0] != "search"}


def parse_block(block: bytes, kinds: Table[str, tuple[str, int]]) -> ParsedBlock:
    """The rows of a block of whole lines, in their order; `kinds` gives kind and weight of each `action_name`."""
    everyday = everyday_rows(block, kinds)
    if everyday is None or len(everyday.odd) > MOST_ODD * everyday.num_lines:
        cut = split_lines(block)
        rows, rejects, wrong = _read(block, cut, kinds)
        return parsed_lines(rows, starts_of(cut), rejects, wrong)
    if not len(everyday.odd):
        return parsed_lines(everyday.rows, everyday.odd, {}, Counter())
    odd_lines = [block[begin:end] for begin, end in everyday.odd_spans.tolist()]
    odd_rows, rejects, wrong = _read(b"\n".join(odd_lines), odd_lines, kinds)
    return parsed_lines(_merged(everyday, odd_rows, rejects), everyday.odd_spans[:, 0], rejects, wrong)


def _read(
    block: bytes, cut: list[bytes], kinds: Table[str, tuple[str, int]]
) -> tuple[pa.RecordBatch, dict[int, str], WrongValues]:
    """(the rows of any lines, `block` being all of them together; the fates of the other lines, by number; the values
    of wrong types); it defines the result of `everyday_rows`.
    """
    lines = bare_lines(block, cut)
    wrong: WrongValues = Counter()
    events, rejects = _COLUMNS.read(block, lines, wrong)
    for number, query_id in enumerate(_COLUMNS.column("query_id", events)):
        if not query_id and number not in rejects:
            events[number], fate = _without_id(lines[number], events[number], wrong)
            if events[number] is None:
                rejects[number] = fate
    numbers = [number for number in range(len(lines)) if number not in rejects]
    columns = _columns([events[number] for number in numbers])
    ubi_rows = partial(log_rows, time_format="iso", is_ubi=True)
    rows, wrong_in_rows = rows_of_lines(lines, numbers, columns, rejects, ubi_rows, kinds)
    return rows, rejects, _by_names_of_ubi(wrong + wrong_in_rows)


def _without_id(line: bytes, event: Any, wrong: WrongValues) -> tuple[Any, str]:
    """(the event of a line without a query id: its own, or its `_source`; None for a bulk action, or a `_source` that
    is not an event, and the fate of such a line). `wrong`: values of wrong types are added to it.
    """
    fields = as_object(line)
    if len(fields) == 1 and (name := next(iter(fields))) in ACTIONS and bytes(fields[name])[:1] == b"{":
        return None, ACTION
    if (source := fields.get("_source")) is None or "query_id" in fields:
        return event, ""
    try:
        return _COLUMNS.decode(source), ""
    except msgspec.ValidationError:
        return _COLUMNS.read_loosely(source, wrong), WRONG_FIELD


def _columns(events: Sequence[Any]) -> dict[str, list[Any]]:
    columns = {name: _COLUMNS.column(name, events) for name in _COLUMNS.ways_of}
    # An object without an index is no rank.
    columns["position"] = [None if isinstance(rank, msgspec.Struct) else rank for rank in columns["position"]]
    ids = zip(columns.pop("object_id"), columns.pop("internal_id"), strict=True)
    columns["document_id"] = [internal if _is_missing(named) else named for named, internal in ids]
    return columns


def _is_missing(document_id: str | int | float | None) -> bool:
    """0 is a valid id."""
    return document_id is None or (type(document_id) is str and document_id.strip() in MARKS_OF_NOTHING)


def _by_names_of_ubi(wrong: WrongValues) -> WrongValues:
    """What is counted of our columns, by the fields of the log: "event_attributes.position.ordinal: text" -> 3."""
    result: WrongValues = Counter()
    for key, count in wrong.items():
        name, _, kind = key.partition(":")
        ways = _COLUMNS.ways_of.get("object_id" if name == "document_id" else name, [(name,)])
        result[f"{'.'.join(ways[-1])}:{kind}"] += count
    return result


def _merged(everyday: EverydayRows, odd_rows: pa.RecordBatch, rejects: Container[int]) -> pa.RecordBatch:
    """The rows of both, in the order of their lines. `rejects`: the numbers of the odd lines that are no rows."""
    if not odd_rows.num_rows:
        return everyday.rows
    places = everyday.odd - np.arange(len(everyday.odd))  # among the everyday rows
    parts = []
    begin = 0
    for number, place in enumerate(place for at, place in enumerate(places.tolist()) if at not in rejects):
        parts += [everyday.rows.slice(begin, place - begin), odd_rows.slice(number, 1)]
        begin = place
    parts.append(everyday.rows.slice(begin))
    return pa.Table.from_batches(parts).unify_dictionaries().combine_chunks().to_batches()[0]


def ubi_source(mapping: Mapping) -> LineSource:
    """The source of a log with these events."""
    return LineSource(parse=partial(parse_block, kinds=kinds_of_actions(mapping.events)), encoding=mapping.encoding)
