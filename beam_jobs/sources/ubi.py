"""OpenSearch User Behavior Insights (UBI 1.0-1.3) as newline-delimited JSON.

A search line has `user_query`; an event line has `action_name`, and in some logs the query again. Fields used in both:
query_id, client_id, timestamp, user_query, application, query_attributes.user_agent; in an event also action_name and

    event_attributes.object.object_id         text or a number; if it is missing, internal_id, the engine's own id
    event_attributes.position.ordinal         1.3: an integer;  1.0-1.2: an object whose `index` is one

Files for the bulk API, with their action lines, are supported, and so are exports in which each line is a hit whose
`_source` is the event.

The structs below define the types. A line that is JSON but has other types is read once more, without the fields that a
line can do without (log_rows.OPTIONAL); if another field differs, it is unreadable.
Nearly all lines of a log are regular; compiled code reads them (`everyday_rows`), to the same rows.
"""

import ctypes
import weakref
from collections import Counter
from collections.abc import Mapping as Table
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from clicktower.beam_jobs.compiled.log_library import library
from clicktower.beam_jobs.sources import read_lines
from clicktower.beam_jobs.sources.log_rows import WrongValues, log_rows
from clicktower.beam_jobs.sources.mapping import Events, Mapping
from clicktower.beam_jobs.sources.source import LineSource, ParsedBlock, Path, parsed_lines, starts_of
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


_ACTIONS = frozenset({"index", "create", "update", "delete"})
_Value = str | int | float | None
MOST_KINDS = 126  # of actions: the compiled code numbers them in a byte, with searches and all others
MOST_ODD = 0.05  # of the lines of a block: with more, the plain path takes no longer than both


class _Index(msgspec.Struct, gc=False):
    index: _Value = None


class _Position(msgspec.Struct, gc=False):
    ordinal: _Value | _Index = None


class _Object(msgspec.Struct, gc=False):
    object_id: _Value = None
    internal_id: _Value = None


class _EventAttributes(msgspec.Struct, gc=False):
    object: _Object | None = None
    position: _Position | None = None


class _QueryAttributes(msgspec.Struct, gc=False):
    user_agent: _Value = None


class _Line(msgspec.Struct, gc=False):
    query_id: _Value = None
    client_id: _Value = None
    user_query: _Value = None
    action_name: _Value = None
    timestamp: _Value = None
    application: _Value = None
    event_attributes: _EventAttributes | None = None
    query_attributes: _QueryAttributes | None = None


_decode = msgspec.json.Decoder(_Line).decode


def kinds_of_actions(events: Events) -> dict[str, tuple[str, int]]:
    """Kind and weight of each `action_name`. A search is a line without one: an action `search` reports it a second
    time.
    """
    return {action: meaning for action, meaning in events.kinds().items() if meaning[0] != "search"}


def parse_block(block: bytes, kinds: Table[str, tuple[str, int]]) -> ParsedBlock:
    """The rows of a block of whole lines, in their order; `kinds` gives kind and weight of each `action_name`."""
    everyday = everyday_rows(block, kinds)
    if everyday is None or len(everyday.odd) > MOST_ODD * everyday.num_lines:
        cut = read_lines.split_lines(block)
        every = _read(block, cut, kinds)
        return parsed_lines(every.rows, starts_of(cut), every.rejects, every.wrong_values, every.num_action_lines)
    if not len(everyday.odd):
        return parsed_lines(everyday.rows, everyday.odd, {}, Counter())
    odd_lines = [block[begin:end] for begin, end in everyday.odd_spans.tolist()]
    odd = _read(b"\n".join(odd_lines), odd_lines, kinds)
    starts = everyday.odd_spans[:, 0]
    return parsed_lines(_merged(everyday, odd), starts, odd.rejects, odd.wrong_values, odd.num_action_lines)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Read:
    """The result of some lines: rows and the numbers of their lines, ascending; the reasons of the others, by
    number, blank lines among them.
    """

    rows: pa.RecordBatch
    numbers: np.ndarray
    rejects: dict[int, str]
    num_action_lines: int
    wrong_values: WrongValues


def _read(block: bytes, cut: list[bytes], kinds: Table[str, tuple[str, int]]) -> _Read:
    """Reads any lines, `block` being all of them together; it defines the result of `everyday_rows`."""
    lines = read_lines.without_returns(block, cut)
    values, rejects = read_lines.decode_lines(block, lines, _decode)
    wrong: WrongValues = Counter()
    for number in [number for number, reason in rejects.items() if reason == read_lines.WRONG_FIELD]:
        if (value := _read_loosely(lines[number], wrong)) is not None:
            values[number] = value
            del rejects[number]
    num_action_lines = 0
    is_dropped = set(rejects)
    if rejects or not all([value.query_id for value in values]):  # noqa: C419 (a list is twice as fast)
        for number, value in enumerate(values):
            if value is None or value.query_id:
                continue
            values[number], is_action = _without_id(lines[number], value, wrong)
            if values[number] is None:
                is_dropped.add(number)
                if is_action:
                    num_action_lines += 1
                else:
                    rejects[number] = read_lines.WRONG_FIELD
    kept: Any = lines
    numbers = np.arange(len(lines))
    if is_dropped:
        numbers = np.delete(numbers, list(is_dropped))
        kept, values = [lines[number] for number in numbers], [values[number] for number in numbers]
    hashes = read_lines.line_hashes(kept)
    rows, unreadable, reasons, wrong_in_rows = log_rows(hashes, _columns(values), kinds, "iso", is_ubi=True)
    rejects.update(zip(numbers[unreadable].tolist(), reasons, strict=True))
    return _Read(
        rows=rows,
        numbers=np.delete(numbers, unreadable),
        rejects=rejects,
        num_action_lines=num_action_lines,
        wrong_values=_by_names_of_ubi(wrong + wrong_in_rows),
    )


# Where UBI has our columns. An action must be known, since it decides what a line is.
_WAYS: Table[str, list[Path]] = {
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
}


def _by_names_of_ubi(wrong: WrongValues) -> WrongValues:
    """What is counted of our columns, by the fields of the log: "event_attributes.position.ordinal: text" -> 3."""
    result: WrongValues = Counter()
    for key, count in wrong.items():
        name, _, kind = key.partition(":")
        ways = _WAYS.get("object_id" if name == "document_id" else name, [(name,)])
        result[f"{'.'.join(ways[-1])}:{kind}"] += count
    return result


def _read_loosely(line: bytes | msgspec.Raw, wrong: WrongValues) -> _Line | None:
    """The line without those of its fields that have a wrong type, which are counted; None if it needs one of them."""
    from clicktower.beam_jobs.sources.jsonl import usable_values

    found = usable_values(bytes(line), _WAYS, wrong)
    if found is None:
        return None
    return _Line(
        query_id=found["query_id"],
        client_id=found["client_id"],
        user_query=found["query"],
        action_name=found["event"],
        timestamp=found["time"],
        application=found["application"],
        query_attributes=_QueryAttributes(user_agent=found["user_agent"]),
        event_attributes=_EventAttributes(
            object=_Object(object_id=found["object_id"], internal_id=found["internal_id"]),
            position=_Position(ordinal=found["position"]),
        ),
    )


def _merged(everyday: EverydayRows, irregular: _Read) -> pa.RecordBatch:
    """The rows of both, in the order of their lines."""
    if not irregular.rows.num_rows:
        return everyday.rows
    places = (everyday.odd - np.arange(len(everyday.odd)))[irregular.numbers].tolist()  # among the everyday rows
    parts = []
    begin = 0
    for number, place in enumerate(places):
        parts += [everyday.rows.slice(begin, place - begin), irregular.rows.slice(number, 1)]
        begin = place
    parts.append(everyday.rows.slice(begin))
    return pa.Table.from_batches(parts).unify_dictionaries().combine_chunks().to_batches()[0]


def _without_id(line: bytes, value: _Line, wrong: WrongValues) -> tuple[_Line | None, bool]:
    """(the event, whether the line is a bulk action instead) for a line without a query id.

    The event is the line's own, or its `_source`; None for a bulk action, or a `_source` that is not an event. `wrong`:
    fields of wrong types are added to it.
    """
    fields = read_lines.as_object(line)
    if len(fields) == 1 and (name := next(iter(fields))) in _ACTIONS and bytes(fields[name])[:1] == b"{":
        return None, True
    if (source := fields.get("_source")) is None or "query_id" in fields:
        return value, False
    try:
        return _decode(source), False
    except msgspec.ValidationError:
        return _read_loosely(source, wrong), False


def _columns(values: list[_Line]) -> dict[str, list]:
    attributes = [value.event_attributes for value in values]
    objects = [None if each is None else each.object for each in attributes]
    places = [None if each is None else each.position for each in attributes]
    agents = [value.query_attributes for value in values]
    ordinals: list[Any] = [None if place is None else place.ordinal for place in places]
    if _Index in set(map(type, ordinals)):
        ordinals = [ordinal.index if type(ordinal) is _Index else ordinal for ordinal in ordinals]
    documents = [None if each is None else _document_id(each) for each in objects]
    return {
        "query_id": [value.query_id for value in values],
        "client_id": [value.client_id for value in values],
        "query": [value.user_query for value in values],
        "document_id": documents,
        "position": ordinals,
        "time": [value.timestamp for value in values],
        "event": [value.action_name for value in values],
        "user_agent": [None if each is None else each.user_agent for each in agents],
        "application": [value.application for value in values],
    }


def _document_id(item: _Object) -> Any:
    """The `object_id`, or the `internal_id` of a document without one; 0 is a valid id."""
    named = item.object_id
    is_missing = named is None or (type(named) is str and named.strip() in MARKS_OF_NOTHING)
    return item.internal_id if is_missing else named


def ubi_source(mapping: Mapping) -> LineSource:
    """The source of a log with these events."""
    return LineSource(parse=partial(parse_block, kinds=kinds_of_actions(mapping.events)), encoding=mapping.encoding)
