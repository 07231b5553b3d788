"""What form a log has, by its first lines, and the mapping that its names suggest."""

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from beam_jobs.checking.log_fields import (
    ALIASES,
    Fields,
    alias_rank,
    best_name,
    event_kind,
    fields_of_json,
    fields_of_records,
    is_showable,
    near_name,
    plain_name,
)
from beam_jobs.checking.log_sample import TEXT_KINDS, FileLook
from beam_jobs.sources.forms import FORMS
from beam_jobs.sources.mapping import Columns, Events, Mapping
from beam_jobs.sources.read_lines import PARQUET

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
