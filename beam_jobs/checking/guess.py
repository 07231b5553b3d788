"""What form a log has, by its first lines: the names and shapes of its fields, and the mapping that they suggest.

Lines are looked at and never shown; of what is in them only names that look like those of fields are.
"""

import csv
import difflib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from beam_jobs.sources.forms import FORMS
from beam_jobs.sources.mapping import Columns, Events, Mapping
from beam_jobs.sources.read_lines import (
    FAILURES,
    GZIP,
    MAGIC_BYTES,
    PARQUET,
    PLAIN,
    ZSTD,
    Unit,
    find_files,
    is_too_deep,
    kind_of,
    read_blocks,
    split_lines,
    unreadable,
    without_returns,
)
from schemas import storage
from schemas.errors import StageError

MAX_FILES, MAX_LINES = 16, 2000  # looked into, and of each
_LOOK_BYTES = 1 << 20
_ACTIONS = frozenset({"index", "create", "update", "delete"})
_MAX_DEPTH, _MAX_KEYS, _MAX_PATHS, _MAX_TEXTS = 4, 40, 1000, 200
_DELIMITERS = {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "bars"}
_UBI_KEYS = ("user_query", "action_name", "event_attributes", "query_attributes")
_ISO = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d.*)?")
# Digits of a number of seconds, ms, us, ns since 1970, for the years 2001 to 2286.
_EPOCHS = {10: "seconds", 13: "milliseconds", 16: "microseconds", 19: "nanoseconds"}
_NAME = re.compile(r"[A-Za-z_@][A-Za-z0-9_.@ -]{0,59}")
_LONG_DIGITS = re.compile(r"\d{5,}|[0-9a-fA-F]{12,}")

# Ours -> what it is called elsewhere, the likeliest first. Two parts are a key within an object of that name. Names are
# compared without case, `_`, `-`, `.`, `@` and blanks: `queryId`, `query_id` and `Query ID` are one.
ALIASES: dict[str, tuple[str, ...]] = {
    "query_id": (
        "query_id", "qid", "search_id", "sid", "query.id", "search.id", "request_id", "search_request_id", "query_uid",
        "query_uuid", "search_uuid", "query_guid", "qry_id",
    ),
    "client_id": (
        "client_id", "user_id", "visitor_id", "anon_id", "anonymous_id", "cookie_id", "device_id", "customer_id", "uid",
        "client", "user", "visitor", "user.id", "client.id", "visitor.id", "uuid", "session_id", "session",
    ),
    "query": (
        "user_query", "query", "query_text", "search_term", "search_query", "search_text", "search.query",
        "search.text", "query.text", "keywords", "keyword", "q", "term", "phrase", "search_phrase", "text", "search",
    ),
    "document_id": (
        "object_id", "document_id", "doc_id", "product_id", "item_id", "product.id", "item.id", "document.id", "doc.id",
        "object.id", "sku", "asin", "did", "click_url", "clicked_url", "url", "product", "item", "document", "doc",
        "article_id", "listing_id", "internal_id",
    ),
    "position": ("ordinal", "position", "rank", "item_rank", "pos", "index", "click_rank", "result_position", "slot"),
    "time": (
        "timestamp", "time", "ts", "datetime", "date_time", "event_time", "query_time", "created_at", "at", "date",
        "epoch", "unix_time", "time_stamp",
    ),
    "event": ("action_name", "event", "event_type", "event_name", "action", "action_type", "type", "interaction"),
    "user_agent": ("user_agent", "ua", "agent", "http_user_agent", "browser"),
    "application": ("application", "app", "app_name", "application_name"),
}  # fmt: skip
# What a value of an event column means, compared in the same way.
EVENT_NAMES = {
    "click": ("click", "tap", "select", "clickthrough", "productclick", "itemclick", "resultclick", "hitclick"),
    "impression": ("impression", "shown", "view", "viewed", "display", "displayed", "serp", "impressed", "productview"),
    "search": ("search", "query", "searched"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class FileLook:
    """One file. `lines`: its first ones; `rows`: those of Parquet; `error`: why it cannot be read."""

    file: str
    size: int
    kind: str = PLAIN
    lines: Sequence[bytes] = ()
    rows: pa.RecordBatch | None = None
    error: StageError | None = None


def look_at(logs: Sequence[str]) -> list[FileLook]:
    """Every file of a log, MAX_FILES of them with their first lines. Raises UsageError where there is none."""
    sizes = {file: storage.size_bytes(file) or 0 for file in find_files(logs)}
    with_bytes = [file for file, size in sizes.items() if size]
    chosen = set(with_bytes[:: -(-len(with_bytes) // MAX_FILES) or 1])
    return [_look(file, size) if file in chosen else FileLook(file=file, size=size) for file, size in sizes.items()]


def _look(file: str, size: int) -> FileLook:
    kind = PLAIN
    try:
        with storage.open_read(file) as opened:
            kind = kind_of(opened.read(MAGIC_BYTES))
        if kind == PARQUET:
            with storage.open_read(file) as opened:
                rows = next(pq.ParquetFile(opened).iter_batches(MAX_LINES), None)
                return FileLook(file=file, size=size, kind=kind, rows=rows)
        if kind in (PLAIN, GZIP, ZSTD):
            block = next(read_blocks(Unit(file=file, start=0, end=size, kind=kind), _LOOK_BYTES), None)
            lines = without_returns(block.data, split_lines(block.data)) if block else []
            return FileLook(file=file, size=size, kind=kind, lines=lines[:MAX_LINES])
    except StageError as error:
        return FileLook(file=file, size=size, kind=kind, error=error)
    except OSError as error:
        return FileLook(file=file, size=size, kind=kind, error=unreadable(file, error))
    except pa.ArrowInvalid:
        pass  # its source says what is wrong with it
    return FileLook(file=file, size=size, kind=kind)


@dataclass(kw_only=True, slots=True)
class Fields:
    """What some lines hold. `paths`: lines with each key or dotted path; `shapes`: what its values look like.

    `texts`: the short values of each path that may name events. They are compared with words that we know, and
    never shown otherwise.
    """

    num_lines: int = 0  # objects, or records
    num_other: int = 0  # lines that are no object
    paths: Counter[str] = field(default_factory=Counter)
    shapes: dict[str, Counter[str]] = field(default_factory=dict)
    texts: dict[str, Counter[str]] = field(default_factory=dict)

    def share(self, path: str) -> float:
        return self.paths[path] / self.num_lines if self.num_lines else 0.0

    def shape(self, path: str) -> str:
        """What most values of a path look like."""
        counts = self.shapes.get(path)
        return counts.most_common(1)[0][0] if counts else "nothing"

    def leaves(self) -> list[str]:
        """Paths that hold values, and names that may be shown, the most frequent first."""
        return [path for path, _ in self.paths.most_common() if self.shape(path) != "object" and is_showable(path)]

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Guess:
    """`format` is one of ingest's, or "" where none fits: then `do` says what to do. `what`: what the log looks like.

    `mapping`: what the names suggest, where they are enough; `header`: of delimited text.
    """

    format: str
    what: str
    fields: Fields = field(default_factory=Fields)
    mapping: Mapping | None = None
    header: tuple[str, ...] = ()
    do: str = ""


def guess_form(looks: Sequence[FileLook]) -> Guess:
    """What the files that were looked into are; where they differ, what most of them are."""
    tables = [look.rows for look in looks if look.rows is not None]
    texts = [look.lines for look in looks if look.lines]
    if len(tables) > len(texts):
        found = fields_of_rows(tables)
        return Guess(format="parquet", what="Parquet", fields=found, mapping=suggest(found))
    if not texts:
        if kinds := sorted({look.kind for look in looks} - {PLAIN, GZIP, ZSTD, PARQUET}):
            return Guess(format="", what=f"a file of the kind {kinds[0]}", do="unpack it, or pack it with gzip or zstd")
        return Guess(format="", what="a log without a line", do="give a log with at least one line")
    found = fields_of_json([line for lines in texts for line in lines])
    return _json(found) if found.num_lines > found.num_other else _other_text(texts)


def needs_mapping(log_format: str) -> bool:
    """Whether a form is read by a mapping of its columns; false for one that does not exist."""
    return log_format in FORMS and FORMS[log_format].mapping == "columns"


def _json(found: Fields) -> Guess:
    keys = {path.split(".")[0] for path in found.paths}
    similar = {plain_name(key) for key in keys} & set(map(plain_name, _UBI_KEYS))
    is_ubi = bool({"user_query", "action_name"} & keys) or len(similar) > 1
    what = "UBI, JSON lines" if is_ubi else "JSON lines"
    return Guess(format="ubi" if is_ubi else "jsonl", what=what, fields=found, mapping=suggest(found))


def fields_of_json(lines: Iterable[bytes]) -> Fields:
    """The fields of lines of JSON; of exported hits those of the event. Bulk action lines do not count."""
    found = Fields()
    for line in lines:
        value: Any = None
        if not is_too_deep(line):
            with suppress(*FAILURES):
                value = msgspec.json.decode(line)
        if not isinstance(value, dict):
            found.num_other += 1
            continue
        if len(value) == 1 and next(iter(value)) in _ACTIONS and isinstance(next(iter(value.values())), dict):
            continue
        if isinstance(value.get("_source"), dict) and "query_id" not in value:
            value = value["_source"]
        found.num_lines += 1
        _visit(value, "", found, 0)
    return found


def fields_of_rows(tables: Iterable[pa.RecordBatch]) -> Fields:
    """The columns of Parquet, those of structs by their paths."""
    found = Fields()
    for table in tables:
        found.paths.update(dict.fromkeys(table.schema.names, 0))
        found.num_lines += len(table)
        for row in table.to_pylist():
            _visit(row, "", found, 0)
    return found


def _visit(value: dict[str, Any], name: str, found: Fields, depth: int) -> None:
    if depth and len(value) > _MAX_KEYS:
        return  # a table of values, not names of fields
    for key in list(value)[:_MAX_KEYS]:
        inner, path = value[key], f"{name}.{key}" if name else key
        if inner is None or inner == "":
            continue
        found.note(path, inner)
        if isinstance(inner, dict) and depth < _MAX_DEPTH:
            _visit(inner, path, found, depth + 1)


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


def _other_text(texts: Sequence[Sequence[bytes]]) -> Guess:
    first = texts[0][0]
    if first.startswith((b"\xff\xfe", b"\xfe\xff")):
        return Guess(format="", what="text in UTF-16", do="write it in UTF-8 (`iconv -f UTF-16 -t UTF-8`)")
    if first.lstrip().startswith(b"<"):
        return Guess(format="", what="XML or HTML", do="write it with one event a line, as UBI or delimited text")
    if first.strip() in (b"{", b"[") or first.startswith(b"[{"):
        do = "write one object a line (`jq -c '.[]'` for a list)"
        return Guess(format="", what="one JSON value over many lines", do=do)
    raw = [line for lines in texts for line in lines]
    for form in FORMS.values():
        if (known := form.recognition) and known.is_like(records := known.records(raw)):
            return Guess(format=form.name, what=known.what, fields=fields_of_records(known.columns, records))
    lines = [line.decode(errors="replace").removeprefix("\ufeff") for line in raw]
    share, delimiter, width = max(_regularity(lines, mark) for mark in _DELIMITERS)
    if share < 0.5:
        do = "give a delimiter in a mapping, or JSON lines"
        return Guess(format="", what="text without a delimiter that we know", do=do)
    header, *records = (_cut(line, delimiter) for line in lines)
    body = [record for record in records if record != header]  # the next file's too
    is_named = _is_header(header, body)
    names = tuple(header) if is_named else tuple(f"column {number}" for number in range(1, width + 1))
    found = fields_of_records(names, body if is_named else [header, *records])
    return Guess(
        format="delimited",
        what=f"text of {width} columns between {_DELIMITERS[delimiter]}, {'with' if is_named else 'without'} a header",
        fields=found,
        mapping=suggest(found, delimiter=delimiter) if is_named else None,
        header=names if is_named else (),
    )


def fields_of_records(names: Sequence[str], records: Iterable[Sequence[str]]) -> Fields:
    """The fields of delimited records, by the names of their columns."""
    found = Fields(paths=Counter(dict.fromkeys(names, 0)))
    for record in records:
        found.num_lines += 1
        for name, value in zip(names, record, strict=False):
            if value:
                found.note(name, value)
    return found


def _regularity(lines: Sequence[str], delimiter: str) -> tuple[float, str, int]:
    """(the share of the lines that have the most usual number of fields, the delimiter, that number)."""
    ((width, count),) = Counter(len(_cut(line, delimiter)) for line in lines).most_common(1)
    return count / len(lines) if width > 1 else 0.0, delimiter, width


def _cut(line: str, delimiter: str) -> list[str]:
    if delimiter != "\t" and '"' in line:
        with suppress(csv.Error):
            return next(csv.reader([line], delimiter=delimiter), [])
    return line.split(delimiter)


def _is_header(names: Sequence[str], records: Sequence[Sequence[str]]) -> bool:
    """Whether a first line names columns: all look like names, none twice, two are known for what we need, and none is
    a value of its column too, so that no line of a log without a header is taken for one.
    """
    if len(set(names)) < len(names) or not all(map(is_showable, names)):
        return False
    if sum(best_name(ours, names) is not None for ours in ALIASES) < 2:
        return False
    return not any(name == value for record in records for name, value in zip(names, record, strict=False))


def plain_name(name: str) -> str:
    """A name without what it may be spelt with or without."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def is_showable(name: str) -> bool:
    """Whether a key looks like the name of a field, and not like a value that serves as a key."""
    return bool(_NAME.fullmatch(name.strip())) and not _LONG_DIGITS.search(name)


def best_name(ours: str, names: Iterable[str]) -> str | None:
    """The name among these (keys, or dotted paths) that most likely means ours: of those that ALIASES has the most
    usual, then the least nested."""
    ranked = []
    for name in names:
        parts = name.split(".")
        spellings = {plain_name(parts[-1]), plain_name("".join(parts[-2:]))}
        ranks = (rank for rank, alias in enumerate(ALIASES[ours]) if plain_name(alias) in spellings)
        if (rank := next(ranks, None)) is not None:
            ranked.append((rank, len(parts), name))
    return min(ranked)[2] if ranked else None


def near_name(expected: str, names: Iterable[str]) -> str | None:
    """The name among these whose last key is nearly that of an expected path, by its letters."""
    by_letters = {plain_name(name.split(".")[-1]): name for name in names}
    near = difflib.get_close_matches(plain_name(expected.split(".")[-1]), by_letters, n=1, cutoff=0.8)
    return by_letters[near[0]] if near else None


def event_kind(value: str) -> str | None:
    """What a value of an event column probably means: search, impression, click, or nothing that we know."""
    return next((kind for kind, names in EVENT_NAMES.items() if plain_name(value) in names), None)


def suggest(found: Fields, *, delimiter: str = "\t") -> Mapping | None:
    """The mapping that the names of fields suggest; None where query or document are not among them."""
    free = [name for name in found.leaves() if found.shape(name) not in ("list", "true or false")]
    columns: dict[str, str] = {}
    for ours in ALIASES:
        # A number, a time or an address is no query, whatever it is called.
        fitting = [name for name in free if ours != "query" or found.shape(name) in ("word", "text", "nothing")]
        if (name := best_name(ours, fitting)) is not None:
            columns[ours] = name
            free.remove(name)
    if not {"query", "document_id"} <= columns.keys():
        return None
    times = found.shapes.get(columns.get("time", ""), Counter())
    return Mapping(
        columns=Columns(**columns),
        events=suggest_events(found.texts.get(columns.get("event", ""), ())),
        time_format="epoch_s" if times["seconds since 1970"] > 0.5 * times.total() else "iso",
        delimiter=delimiter,
    )


def suggest_events(values: Iterable[str]) -> Events:
    """The usual values of an event column, and those of these that are surely searches, impressions and clicks."""
    usual = Events()
    more = sorted(value for value in values if value not in usual.kinds())
    of_kind = {f.name: [value for value in more if event_kind(value) == f.name] for f in fields(Events)}
    return Events(**{kind: (*getattr(usual, kind), *found) for kind, found in of_kind.items()})
