"""The fields of a log's first lines: their names, what their values look like, the mapping that the names suggest.

Lines are never shown; only names that are known for fields are (field_names).
"""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from clicktower.beam_jobs.sources.field_names import ALIASES, is_name, may_be_shown, plain_name
from clicktower.beam_jobs.sources.json_columns import is_too_deep
from clicktower.beam_jobs.sources.log_files import unreadable
from clicktower.beam_jobs.sources.mapping import UTF8, Columns, Events, Mapping
from clicktower.beam_jobs.sources.read_lines import (
    FAILURES,
    Unit,
    bare_lines,
    check_start,
    read_blocks,
    split_lines,
    start_of,
)
from clicktower.beam_jobs.sources.ubi import ACTIONS
from clicktower.schemas import storage
from clicktower.schemas.section import changed
from clicktower.schemas.text_file import PARQUET

MAX_LINES = 2000  # of a file
_LOOK_BYTES = 1 << 20
_MAX_DEPTH, _MAX_KEYS, _MAX_PATHS, _MAX_TEXTS = 4, 40, 1000, 200
_DELIMITERS = {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "bars"}
_UBI_KEYS = {"user_query", "action_name", "event_attributes", "query_attributes"}
_EVENT = re.compile(r"[A-Za-z_.: -]+")
_ISO = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d.*)?")
# Digits of a number of seconds, ms, us, ns since 1970, for the years 2001 to 2286.
_EPOCHS = {10: "seconds", 13: "milliseconds", 16: "microseconds", 19: "nanoseconds"}

# The meaning of the values of an event column, compared like names (field_names.ALIASES).
EVENT_NAMES = {
    "click": ("click", "tap", "select", "clickthrough", "productclick", "itemclick", "resultclick", "hitclick"),
    "impression": ("impression", "shown", "view", "viewed", "display", "displayed", "serp", "impressed", "productview"),
    "search": ("search", "query", "searched"),
}


@dataclass(kw_only=True, slots=True)
class Fields:
    """What the first lines of a log contain. `paths`: the number of lines with each key or dotted path; `shapes`: what
    its values look like.

    `texts`: the short values of each path that may name events; they are compared with known words and never shown
    otherwise. `format`: the format that `ingest` would use, "" if --format must say it; `delimiter`: of delimited text;
    `typed`: names that the user wrote in a mapping.
    """

    format: str = ""
    description: str = "a log in no format that its first lines tell"
    delimiter: str = "\t"
    header: tuple[str, ...] = ()
    num_lines: int = 0  # objects, or records
    num_other: int = 0  # lines that are no object
    paths: Counter[str] = field(default_factory=Counter)
    shapes: dict[str, Counter[str]] = field(default_factory=dict)
    texts: dict[str, Counter[str]] = field(default_factory=dict)
    typed: tuple[str, ...] = ()

    def share(self, path: str) -> float:
        return self.paths[path] / self.num_lines if self.num_lines else 0.0

    def shape(self, path: str) -> str:
        """What most values of a path look like."""
        counts = self.shapes.get(path)
        return counts.most_common(1)[0][0] if counts else "nothing"

    def leaves(self) -> list[str]:
        """Paths that hold values and names that may be shown, most frequent first."""
        return [path for path in self.paths_of_values() if may_be_shown(path, self.typed)]

    def paths_of_values(self) -> list[str]:
        """All paths that hold values, most frequent first; some may be text of the log."""
        return [path for path, _ in self.paths.most_common() if self.shape(path) != "object"]

    def name_of(self, path: str) -> str:
        """A path as it may be shown, or its number."""
        if may_be_shown(path, self.typed) or path not in self.header:
            return path
        return f"column {self.header.index(path) + 1}"

    def note(self, path: str, value: Any) -> None:
        """Count a value of a path."""
        if path not in self.paths and len(self.paths) >= _MAX_PATHS:
            return
        self.paths[path] += 1
        self.shapes.setdefault(path, Counter())[shape_of(value)] += 1
        if isinstance(value, str) and len(value) <= 30:
            texts = self.texts.setdefault(path, Counter())
            if value in texts or len(texts) < _MAX_TEXTS:
                texts[value] += 1

    def add_object(self, value: dict[str, Any], name: str = "", depth: int = 0) -> None:
        """Count the values of an object by their paths."""
        if depth and len(value) > _MAX_KEYS:
            return  # a table of values, not names of fields
        for key in list(value)[:_MAX_KEYS]:
            inner, path = value[key], f"{name}.{key}" if name else key
            if inner is None or inner == "":
                continue
            self.note(path, inner)
            if isinstance(inner, dict) and depth < _MAX_DEPTH:
                self.add_object(inner, path, depth + 1)


def read_fields(file: str, encoding: str = UTF8) -> Fields:
    """The fields of a file's first lines. Raises StageError for a damaged file or one that does not hold lines."""
    start = start_of(file, encoding)
    if start.kind == PARQUET:
        try:
            with storage.open_read(file) as opened:
                return fields_of_rows(next(pq.ParquetFile(opened).iter_batches(MAX_LINES), None))
        except OSError as error:
            raise unreadable(file, error) from None
        except pa.ArrowInvalid:
            return fields_of_rows(None)  # its source reports the error
    check_start(file, start, encoding)
    unit = Unit(file=file, start=0, end=start.size, kind=start.kind, encoding=encoding)
    block = next(read_blocks(unit, _LOOK_BYTES), None)
    lines = bare_lines(block.data, split_lines(block.data)) if block else []
    lines = [line for line in lines if line.strip()][:MAX_LINES]
    fields = fields_of_json(lines)
    return fields if fields.num_lines > fields.num_other else fields_of_text(lines)


def fields_of_json(lines: Iterable[bytes]) -> Fields:
    """The fields of JSON lines; of exported hits those of the event. Bulk action lines do not count."""
    fields = Fields()
    for line in lines:
        value: Any = None
        if not is_too_deep(line):
            with suppress(*FAILURES):
                value = msgspec.json.decode(line)
        if not isinstance(value, dict):
            fields.num_other += 1
            continue
        if len(value) == 1 and next(iter(value)) in ACTIONS and isinstance(next(iter(value.values())), dict):
            continue
        if isinstance(value.get("_source"), dict) and "query_id" not in value:
            value = value["_source"]
        fields.num_lines += 1
        fields.add_object(value)
    keys = {path.split(".")[0] for path in fields.paths}
    similar = {plain_name(key) for key in keys} & set(map(plain_name, _UBI_KEYS))
    is_ubi = bool({"user_query", "action_name"} & keys) or len(similar) > 1
    fields.format, fields.description = ("ubi", "UBI, JSON lines") if is_ubi else ("jsonl", "JSON lines")
    return fields


def fields_of_rows(rows: pa.RecordBatch | None) -> Fields:
    """The columns of Parquet, structs as dotted paths."""
    fields = Fields(format="parquet", description="Parquet")
    if rows is not None:
        fields.paths.update(dict.fromkeys(rows.schema.names, 0))
        fields.num_lines = len(rows)
        for row in rows.to_pylist():
            fields.add_object(row)
    return fields


def fields_of_text(lines: Sequence[bytes]) -> Fields:
    """The columns of delimited text whose first line names them; none for other text."""
    # A lone carriage return is a blank within a field to a log's reader, and ends a line to csv's.
    texts = [line.decode(errors="replace").removeprefix("\ufeff").replace("\r", " ") for line in lines]
    for delimiter, named in _DELIMITERS.items():
        header, *records = list(csv.reader(texts, delimiter=delimiter)) or [[]]
        if is_header(header, [record for record in records if record != header]):
            fields = Fields(
                format="delimited",
                description=f"text of {len(header)} columns between {named}",
                delimiter=delimiter,
                header=tuple(header),
                num_lines=len(records),
                paths=Counter(dict.fromkeys(header, 0)),
            )
            for record in records:
                for name, value in zip(header, record, strict=False):
                    if value:
                        fields.note(name, value)
            return fields
    return Fields(num_other=len(lines))


def shape_of(value: Any) -> str:
    """What a value looks like, in words."""
    for kind, words in ((bool, "true or false"), (dict, "object"), (list, "list"), (float, "number")):
        if isinstance(value, kind):
            return words
    text = str(value)
    if text.isascii() and text.isdigit():
        if len(text) in _EPOCHS and text[0] in "12":
            return f"{_EPOCHS[len(text)]} since 1970"
        return "whole number"
    if _ISO.fullmatch(text):
        return "ISO time"
    if text.startswith(("http://", "https://")):
        return "address"
    return "text" if " " in text else "word"


def is_header(names: Sequence[str], records: Sequence[Sequence[str]]) -> bool:
    """Whether a first line names columns: every field looks like a name, none occurs twice, at least two are known, and
    none is also a value of its column, so that no line of a log without a header is mistaken for one.
    """
    if len(set(names)) < len(names) or not all(map(is_name, names)):
        return False
    if sum(best_name(ours, names) is not None for ours in ALIASES) < 2:
        return False
    return not any(name == value for record in records for name, value in zip(names, record, strict=False))


def best_name(ours: str, names: Iterable[str]) -> str | None:
    """Which of these names (keys or dotted paths) most likely means our column: the first in ALIASES, then the least
    nested.
    """
    ranked = []
    for name in names:
        parts = name.split(".")
        spellings = {plain_name(parts[-1]), plain_name("".join(parts[-2:]))}
        ranks = (rank for rank, alias in enumerate(ALIASES[ours]) if plain_name(alias) in spellings)
        if (rank := next(ranks, None)) is not None:
            ranked.append((rank, len(parts), name))
    return min(ranked)[2] if ranked else None


def event_kind(value: str) -> str | None:
    """What a value of an event column probably means: search, impression, click, or None if unknown. Other letters than
    those of the known words would be text of the log.
    """
    if not _EVENT.fullmatch(value):
        return None
    return next((kind for kind, names in EVENT_NAMES.items() if plain_name(value) in names), None)


def suggest_mapping(fields: Fields) -> Mapping | None:
    """The mapping that the field names suggest; None if query or document is missing."""
    free = [name for name in fields.leaves() if fields.shape(name) not in ("list", "true or false")]
    columns: dict[str, str] = {}
    for ours in ALIASES:
        # A column of numbers, times or addresses is not a query column, whatever its name.
        fitting = [name for name in free if ours != "query" or fields.shape(name) in ("word", "text", "nothing")]
        if (name := best_name(ours, fitting)) is not None:
            columns[ours] = name
            free.remove(name)
    if not {"query", "document_id"} <= columns.keys():
        return None
    times = fields.shapes.get(columns.get("time", ""), Counter())
    return Mapping(
        columns=Columns(**columns),
        events=suggest_events(fields.texts.get(columns.get("event", ""), ())),
        time_format="epoch_s" if times["seconds since 1970"] > 0.5 * times.total() else "iso",
        delimiter=fields.delimiter,
    )


def suggest_events(values: Iterable[str]) -> Events:
    """The usual values of an event column, and those that are certainly searches, impressions or clicks."""
    usual = Events()
    more = sorted(value for value in values if value not in usual.kinds())
    kinds = {kind: (*getattr(usual, kind), *(v for v in more if event_kind(v) == kind)) for kind in EVENT_NAMES}
    return changed(usual, kinds)
