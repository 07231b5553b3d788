"""What form a log has, by its first lines: the names and shapes of its fields, and the mapping that they suggest."""

import csv
import difflib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pyarrow as pa

from beam_jobs.checking.log_sample import TEXT_KINDS, FileLook
from beam_jobs.sources.forms import FORMS
from beam_jobs.sources.lines import FAILURES, is_too_deep
from beam_jobs.sources.mapping import Columns, Events, Mapping
from beam_jobs.sources.read_lines import PARQUET

ACTIONS = frozenset({"index", "create", "update", "delete"})
OTHER_KEYS = "*"
_MAX_DEPTH, _MAX_KEYS = 4, 40
_ISO = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d.*)?")
_MAX_EVENTS = 200
# Digits of a number of seconds, ms, us, ns since 1970, for the years 2001 to 2286.
_EPOCHS = {10: "seconds", 13: "milliseconds", 16: "microseconds", 19: "nanoseconds"}


@dataclass(kw_only=True, slots=True)
class Fields:
    """What some lines hold. `paths`: lines with each key or dotted path; `shapes`: what its values look like.

    `texts`: the short values of each path that may name events. They are compared with words that we know, and
    never shown otherwise.
    """

    num_lines: int = 0  # objects, or records
    num_other: int = 0  # lines that are no object
    num_actions: int = 0  # bulk action lines
    num_hits: int = 0  # objects with the event in `_source`
    paths: Counter[str] = field(default_factory=Counter)
    shapes: dict[str, Counter[str]] = field(default_factory=dict)
    texts: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, other: "Fields") -> None:
        self.num_lines += other.num_lines
        self.num_other += other.num_other
        self.num_actions += other.num_actions
        self.num_hits += other.num_hits
        self.paths.update(other.paths)
        for name, counts in other.shapes.items():
            self.shapes.setdefault(name, Counter()).update(counts)
        for name, counts in other.texts.items():
            self.texts.setdefault(name, Counter()).update(counts)

    def share(self, path: str) -> float:
        return self.paths[path] / self.num_lines if self.num_lines else 0.0

    def shape(self, path: str) -> str:
        """What most values of a path look like."""
        counts = self.shapes.get(path)
        return counts.most_common(1)[0][0] if counts else "nothing"

    def leaves(self) -> list[str]:
        """Paths that hold values, and names that may be shown, the most frequent first."""
        return [path for path, _ in self.paths.most_common() if self.shape(path) != "object" and is_showable(path)]


def fields_of_json(lines: Iterable[bytes]) -> Fields:
    """The fields of lines of JSON; of exported hits those of the event."""
    found = Fields()
    for line in lines:
        value: Any = None
        if not is_too_deep(line):
            with suppress(*FAILURES):
                value = msgspec.json.decode(line)
        if not isinstance(value, dict):
            found.num_other += 1
            continue
        if len(value) == 1 and next(iter(value)) in ACTIONS and isinstance(next(iter(value.values())), dict):
            found.num_actions += 1
            continue
        if isinstance(value.get("_source"), dict) and "query_id" not in value:
            found.num_hits += 1
            value = value["_source"]
        found.num_lines += 1
        _visit(value, "", found, 0)
    return found


def fields_of_records(names: Sequence[str], records: Iterable[Sequence[str]]) -> Fields:
    """The fields of delimited records, by the names of their columns."""
    found = Fields()
    for record in records:
        found.num_lines += 1
        for name, value in zip(names, record, strict=False):
            if value:
                _note(name, value, found)
    return found


def shape_of(value: Any) -> str:
    """What a value looks like, in words."""
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, dict):
        return "object"
    if isinstance(value, list):
        return "list"
    if isinstance(value, float):
        return "number"
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


def _visit(value: dict[str, Any], name: str, found: Fields, depth: int) -> None:
    keys = list(value)
    if len(keys) > _MAX_KEYS:  # a table of values, not names of fields
        found.paths[f"{name}.{OTHER_KEYS}" if name else OTHER_KEYS] += 1
        keys = [key for key in keys[:_MAX_KEYS] if not depth]
    for key in keys:
        inner, path = value[key], f"{name}.{key}" if name else key
        if inner is None or inner == "":
            continue
        if isinstance(inner, dict) and depth < _MAX_DEPTH:
            found.paths[path] += 1
            found.shapes.setdefault(path, Counter())["object"] += 1
            _visit(inner, path, found, depth + 1)
        else:
            _note(path, inner, found)


def _note(path: str, value: Any, found: Fields) -> None:
    if path not in found.paths and len(found.paths) >= 1000:
        path = OTHER_KEYS
    found.paths[path] += 1
    found.shapes.setdefault(path, Counter())[shape_of(value)] += 1
    if isinstance(value, str) and len(value) <= 30:
        texts = found.texts.setdefault(path, Counter())
        if value in texts or len(texts) < _MAX_EVENTS:
            texts[value] += 1


# Names that other logs give to what we need: an exact one, one spelt otherwise, one a letter away.
#
# A name is compared without case, without `_`, `-`, `.`, `@` and blanks, so `queryId`, `query_id` and `Query ID` are
# one.


# Ours -> what it is called elsewhere, the likeliest first. Two parts are a key within an object of that name.
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
EVENT_ROOTS = {
    "click": ("click", "tap", "select", "clickthrough", "productclick", "itemclick", "resultclick", "hitclick"),
    "impression": ("impression", "shown", "view", "viewed", "display", "displayed", "serp", "impressed", "productview"),
    "search": ("search", "query", "searched"),
}
_NAME = re.compile(r"[A-Za-z_@][A-Za-z0-9_.@ -]{0,59}")
_PLAIN = re.compile(r"[^a-z0-9]")
_LONG_DIGITS = re.compile(r"\d{5,}|[0-9a-fA-F]{12,}")
_NEAR = 0.8


def plain_name(name: str) -> str:
    """A name without what it may be spelt with or without."""
    return _PLAIN.sub("", name.lower())


def is_showable(name: str) -> bool:
    """Whether a key looks like the name of a field, and not like a value that serves as a key."""
    return bool(_NAME.fullmatch(name)) and not _LONG_DIGITS.search(name)


def alias_rank(ours: str, name: str) -> int | None:
    """How usual a name (a key, or a dotted path) is for ours: 0 the most; None where it is not known for it."""
    parts = name.split(".")
    spellings = {plain_name(parts[-1]), plain_name("".join(parts[-2:]))}
    ranks = [rank for rank, alias in enumerate(ALIASES[ours]) if plain_name(alias) in spellings]
    return min(ranks, default=None)


def best_name(ours: str, names: Iterable[str]) -> str | None:
    """The name among these that most likely means ours: an alias, of several the most usual, then the least nested."""
    ranked = [(rank, name.count("."), name) for name in names if (rank := alias_rank(ours, name)) is not None]
    return min(ranked)[2] if ranked else None


def near_name(expected: str, names: Iterable[str]) -> str | None:
    """The name among these whose last key is nearly the last key of an expected path, by its letters."""
    wanted = plain_name(expected.split(".")[-1])
    scored = [(difflib.SequenceMatcher(None, wanted, plain_name(name.split(".")[-1])).ratio(), name) for name in names]
    likely = [pair for pair in scored if pair[0] >= _NEAR]
    return max(likely)[1] if likely else None


def event_kind(value: str) -> str | None:
    """What a value of an event column probably means: search, impression, click, or nothing that we know."""
    name = plain_name(value)
    return next((kind for kind, roots in EVENT_ROOTS.items() if name in roots), None)


UBI_PATHS = {
    "query_id": ("query_id",),
    "client_id": ("client_id",),
    "query": ("user_query",),
    "time": ("timestamp",),
    "event": ("action_name",),
    "application": ("application",),
    "user_agent": ("query_attributes.user_agent",),
    "document_id": ("event_attributes.object.object_id", "event_attributes.object.internal_id"),
    "position": ("event_attributes.position.ordinal", "event_attributes.position.ordinal.index"),
}
_UBI_MARKS = tuple(map(plain_name, ("user_query", "action_name", "event_attributes", "query_attributes")))
_DELIMITERS = "\t,;|"
_FEWEST_KNOWN = 2  # names of a header that we know


@dataclass(frozen=True, kw_only=True, slots=True)
class Guess:
    """`format` is one of ingest's or "" where none fits; `what` says in words what the log looks like."""

    format: str
    what: str
    fields: Fields
    by_file: dict[str, Fields] = field(default_factory=dict)
    mapping: Mapping | None = None  # what the names suggest, where the form needs a mapping and they are enough
    header: tuple[str, ...] = ()
    trouble: str = ""  # why no form fits, with what to do


def needs_mapping(log_format: str) -> bool:
    """Whether a form is read by a mapping of its columns; false for one that does not exist."""
    return log_format in FORMS and FORMS[log_format].mapping == "columns"


def guess_form(looks: Sequence[FileLook]) -> Guess:
    """What the files that were looked into are; where they differ, what most of them are."""
    schemas = {look.file: look.schema for look in looks if look.schema is not None}
    texts = {look.file: look.lines for look in looks if look.lines}
    if len(schemas) > len(texts):
        return _parquet(schemas)
    if not texts:
        kinds = sorted({look.kind for look in looks if look.size and look.kind not in (*TEXT_KINDS, PARQUET)})
        if not kinds:
            return _none("nothing that can be read: there is no line in it", "give a log with at least one line")
        return _none(f"files of the kind {', '.join(kinds)}", "unpack them, or pack them with gzip or zstd")
    by_file = {file: fields_of_json(lines) for file, lines in texts.items()}
    fields = _together(by_file)
    if fields.num_lines + fields.num_actions > fields.num_other:
        return _json(fields, by_file)
    return _other_text(texts)


def suggest(names: Sequence[str], fields: Fields, **settings: object) -> Mapping | None:
    """The mapping that the names of fields suggest; None where query or document are not among them."""
    found: dict[str, str | int | None] = {}
    free = [name for name in names if fields.shape(name) not in ("object", "list", "true or false")]
    for ours in ALIASES:
        candidates = [name for name in free if name not in found.values()]
        if ours == "query":
            # A number, a time or an address is no query, whatever it is called.
            candidates = [name for name in candidates if fields.shape(name) in ("word", "text", "nothing")]
        name = best_name(ours, candidates)
        if name is not None:
            found[ours] = name
    if "query" not in found or "document_id" not in found:
        return None
    times = fields.shapes.get(str(found.get("time")), Counter())
    seconds = times["seconds since 1970"] > 0.5 * times.total() > 0
    mapping = Mapping(columns=Columns(**found), **settings)  # type: ignore[arg-type]
    if seconds:
        mapping = replace(mapping, time_format="epoch_s")
    events = suggest_events(fields.texts.get(str(found.get("event")), Counter()))
    return replace(mapping, events=events) if events else mapping


def suggest_events(values: Counter[str]) -> Events | None:
    """The values of an event column that are surely searches, impressions and clicks, beside the usual ones."""
    known = Events()
    more: dict[str, list[str]] = {"search": [], "impression": [], "click": []}
    for value in values:
        kind = event_kind(value)
        if kind and value not in known.kinds():
            more[kind].append(value)
    if not any(more.values()):
        return None
    return Events(**{kind: (*getattr(known, kind), *sorted(values)) for kind, values in more.items()})


def expected_in_ubi(fields: Fields) -> dict[str, str]:
    """Ours -> the UBI path it is under in these fields; what is not there is missing."""
    return {
        ours: here[0]
        for ours, paths in UBI_PATHS.items()
        if (here := [path for path in paths if fields.paths[path] and fields.shape(path) != "object"])
    }


def misplaced(ours: str, fields: Fields, taken: Sequence[str]) -> str | None:
    """The field that probably holds what UBI expects elsewhere: under another name, or within another object."""
    names = [name for name in fields.leaves() if name not in taken and fields.shape(name) != "list"]
    expected = UBI_PATHS[ours][0]
    same = [name for name in names if plain_name(name.split(".")[-1]) == plain_name(expected.split(".")[-1])]
    if same:
        return same[0]
    name = best_name(ours, names)
    if name is not None and (ours != "position" or alias_rank(ours, name) is not None):
        return name
    return near_name(expected, names)


def _json(fields: Fields, by_file: dict[str, Fields]) -> Guess:
    keys = {plain_name(path.split(".")[0]) for path in fields.paths}
    exact = {path.split(".")[0] for path in fields.paths}
    marks = [mark for mark in _UBI_MARKS if mark in keys]
    mapping = suggest(fields.leaves(), fields)
    is_exact = bool({"user_query", "action_name"} & exact)
    bulk = " in a bulk file with action lines" if fields.num_actions else ""
    hits = " in exported hits" if fields.num_hits else ""
    if is_exact or len(marks) > 1 or (fields.num_actions and "query_id" in exact):
        return Guess(format="ubi", what=f"UBI{bulk}{hits}, JSON lines", fields=fields, by_file=by_file, mapping=mapping)
    return Guess(format="jsonl", what="JSON lines", fields=fields, by_file=by_file, mapping=mapping)


def _parquet(schemas: dict[str, pa.Schema]) -> Guess:
    by_file = {}
    for file, schema in schemas.items():
        found = Fields(num_lines=1)
        for name, kind in _leaves(schema):
            found.paths[name] += 1
            found.shapes[name] = Counter([_shape_of_type(kind)])
        by_file[file] = found
    fields = _together(by_file)
    names = list(fields.paths)
    return Guess(format="parquet", what="Parquet", fields=fields, by_file=by_file, mapping=suggest(names, fields))


def _other_text(texts: dict[str, tuple[bytes, ...]]) -> Guess:
    first = next(iter(texts.values()))
    if first[0].startswith((b"\xff\xfe", b"\xfe\xff")):
        return _none("text in UTF-16", "write it in UTF-8 (`iconv -f UTF-16 -t UTF-8`)")
    if first[0].lstrip().startswith(b"<"):
        return _none("XML or HTML", "write it with one event a line, as UBI or delimited text")
    if first[0].strip() in (b"{", b"[") or first[0].startswith(b"[{"):
        return _none("one JSON value over many lines", "write one object a line (`jq -c '.[]'` for a list)")
    if known := _known_form(texts):
        return known
    sample = [line.decode(errors="replace") for lines in texts.values() for line in lines[1:] or lines]
    best, delimiter, width = max(_score(sample, mark) for mark in _DELIMITERS)
    if best < 0.5 or width < 2:
        return _none("text without a delimiter that we know", "give a delimiter in a mapping, or JSON lines")
    starts = {file: _cut(lines[0].decode(errors="replace"), delimiter) for file, lines in texts.items()}
    records = {
        file: [_cut(line.decode(errors="replace"), delimiter) for line in lines] for file, lines in texts.items()
    }
    header = next(iter(starts.values()))
    named = _is_header(header, [record for cut in records.values() for record in cut[1:]])
    names = tuple(header) if named else tuple(f"column {number}" for number in range(1, width + 1))
    by_file = {
        file: fields_of_records(tuple(starts[file]) if named else names, cut[1:] if named else cut)
        for file, cut in records.items()
    }
    fields = _together(by_file)
    mapping = suggest(names, fields, delimiter=delimiter) if named else None
    word = {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "bars"}[delimiter]
    return Guess(
        format="delimited",
        what=f"text of {width} columns between {word}, {'with' if named else 'without'} a header",
        fields=fields,
        by_file=by_file,
        mapping=mapping,
        header=names if named else (),
    )


def _known_form(texts: dict[str, tuple[bytes, ...]]) -> Guess | None:
    """The form of text whose columns are known that these lines are of, if any."""
    for form in FORMS.values():
        if known := form.recognition:
            records = {file: known.records(lines) for file, lines in texts.items()}
            if known.is_like([record for cut in records.values() for record in cut]):
                by_file = {file: fields_of_records(known.columns, cut) for file, cut in records.items()}
                return Guess(format=form.name, what=known.what, fields=_together(by_file), by_file=by_file)
    return None


def _none(what: str, do: str) -> Guess:
    return Guess(format="", what=what, fields=Fields(), trouble=do)


def _score(lines: Sequence[str], delimiter: str) -> tuple[float, str, int]:
    """(share of the lines that have the most usual number of fields, delimiter, that number)."""
    widths = Counter(len(_cut(line, delimiter)) for line in lines)
    width, count = max(((w, n) for w, n in widths.items() if w > 1), key=lambda pair: pair[1], default=(1, 0))
    return count / max(len(lines), 1), delimiter, width


def _cut(line: str, delimiter: str) -> list[str]:
    line = line.removeprefix("\ufeff")
    if delimiter == "\t" or '"' not in line:
        return line.split(delimiter)
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return line.split(delimiter)


def _is_header(names: Sequence[str], records: Sequence[Sequence[str]]) -> bool:
    """Whether a first line names columns: all look like names, none twice, two are known for what we need, and none is
    a value of its column too, so that no line of a log without a header is taken for one.
    """
    if len(set(names)) < len(names) or not all(is_showable(name.strip()) for name in names):
        return False
    known = {ours for ours in ALIASES for name in names if alias_rank(ours, name) is not None}
    if len(known) < _FEWEST_KNOWN:
        return False
    return not any(name == value for record in records for name, value in zip(names, record, strict=False))


def _leaves(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    found: list[tuple[str, pa.DataType]] = []

    def visit(name: str, kind: pa.DataType) -> None:
        if pa.types.is_struct(kind):
            for number in range(kind.num_fields):
                visit(f"{name}.{kind.field(number).name}", kind.field(number).type)
        else:
            found.append((name, kind))

    for column in schema:
        visit(column.name, column.type)
    return found


def _shape_of_type(kind: pa.DataType) -> str:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        return "list"
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return "ISO time"
    if pa.types.is_integer(kind):
        return "whole number"
    if pa.types.is_boolean(kind):
        return "true or false"
    return "number" if pa.types.is_floating(kind) else "word"


def _together(by_file: dict[str, Fields]) -> Fields:
    found = Fields()
    for fields in by_file.values():
        found.add(fields)
    return found
