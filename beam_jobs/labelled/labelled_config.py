"""Labelled files: what a user can set of the build, what names its result, and what their lines mean. No engine."""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.build.build_config import MAX_SALT_BYTES
from beam_jobs.sources.delimited import DelimitedSource
from beam_jobs.sources.jsonl import JsonSource
from beam_jobs.sources.log_rows import texts
from beam_jobs.sources.mapping import Column, ColumnMapping, NamedColumns, read_mapping_of
from beam_jobs.sources.parquet import ParquetSource
from beam_jobs.sources.source import Source, Values
from schemas import storage
from schemas.errors import UsageError
from schemas.manifest import Request
from schemas.negatives import absorb
from schemas.shard import LabelKind, Unit
from schemas.text_contract import COMPUTED_IDS, DEFAULT_TABLE_ROWS, normalise_column

# `first`, `second`: normalised, `second` null in labelled texts. `label`: a class by its name, or a float as `repr`
# spells it. The ids are of the sentences; a text alone is both of them.
LABELLED_LINE = pa.schema(
    [
        pa.field("first", pa.string(), nullable=False),
        pa.field("second", pa.string()),
        pa.field("label", pa.string(), nullable=False),
        pa.field("first_id", pa.uint64(), nullable=False),
        pa.field("second_id", pa.uint64(), nullable=False),
    ]
)
FIELD, LABEL, EMPTY = "unreadable_field", "unreadable_label", "sentence_empty"


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelRule:
    """What a label must be: one of some classes (any, where none are named), or a number between bounds."""

    kind: LabelKind
    classes: frozenset[str]
    bounds: tuple[float, float]

    def read(self, value: Any) -> str | None:
        """The one spelling of a label; None for what is none."""
        if value is None:
            return None
        if self.kind == "class":
            name = _class_name(value)
            return name if name and (not self.classes or name in self.classes) else None
        try:
            number = float(value) if not isinstance(value, bool) else math.nan
        except (ValueError, OverflowError):
            return None
        is_right = math.isfinite(number) and self.bounds[0] <= number <= self.bounds[1]
        return repr(number + 0.0) if is_right else None  # -0.0 is 0.0


def labelled_rows(
    _hashes: pa.FixedSizeBinaryArray, columns: Mapping[str, Values], _mapping: Any, *, rule: LabelRule
) -> tuple[pa.RecordBatch, np.ndarray, list[str]]:
    """(LABELLED_LINE rows in the order of the lines, the numbers of the others ascending, the fate of each)."""
    given = [texts(columns[name]) for name in ("text", "first", "second") if name in columns]
    labels = pa.array(_labels(columns["label"], rule), pa.string())
    is_missing = ~np.logical_and.reduce([column.is_valid().to_numpy(zero_copy_only=False) for column in given])
    is_bad = ~labels.is_valid().to_numpy(zero_copy_only=False)
    sentences = [normalise_column(column.fill_null("")) for column in given]
    is_empty = np.logical_or.reduce([pc.equal(each, "").to_numpy(zero_copy_only=False) for each in sentences])
    is_kept = ~(is_missing | is_bad | is_empty)

    kept = [each.filter(pa.array(is_kept)) for each in sentences]
    ids = [sentence_ids(each.to_pylist()) for each in kept]
    second = kept[1] if len(kept) > 1 else pa.nulls(len(kept[0]), pa.string())
    rows = pa.RecordBatch.from_arrays(
        [kept[0], second, labels.filter(pa.array(is_kept)), pa.array(ids[0]), pa.array(ids[-1])],
        schema=LABELLED_LINE,
    )
    others = np.flatnonzero(~is_kept)
    fates = np.where(is_missing, FIELD, np.where(is_bad, LABEL, EMPTY))[others]
    return rows, others, fates.tolist()


def sentence_ids(sentences: Iterable[str]) -> np.ndarray:
    """64 bits of the BLAKE2b of each normalised sentence, uint64.

    Two sentences of one id (among a million the chance is 3e-8) would be kept on one side of the split together, which
    parts nothing.
    """
    digests = [hashlib.blake2b(each.encode(), digest_size=8, person=b"sentence").digest() for each in sentences]
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)


def _labels(values: Values, rule: LabelRule) -> Sequence[str | None]:
    listed = values.to_pylist() if isinstance(values, pa.Array) else values
    known: dict[tuple[type, Any], str | None] = {}
    for value in listed:
        key = (type(value), value)  # True == 1 == 1.0, and as classes they are not the same
        if key not in known:
            known[key] = rule.read(value)
    return [known[type(value), value] for value in listed]


def _class_name(value: Any) -> str | None:
    """A class as text without space around it: a number without a fraction in decimal, a truth as `true` or `false`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return None if not math.isfinite(value) else str(int(value)) if value == int(value) else repr(value)
    return str(value).strip() or None


# Lines of the same texts, met in one bucket -> one row for each pair or text, and the fates of the other lines.


# A line with where it came from and the key that brings lines of the same texts together.
KEYED = LABELLED_LINE.append(pa.field("dev", pa.bool_(), nullable=False)).append(
    pa.field("key", pa.uint64(), nullable=False)
)
_SAME = ["dev", "first", "second", "first_id", "second_id", "key"]


def keyed(lines: pa.RecordBatch, *, ordered: bool, dev: bool) -> pa.Table:
    """KEYED rows. Not `ordered`: the text that sorts first (by its UTF-8 bytes) is `first`. dev: of the dev file."""
    columns = {name: lines[name] for name in LABELLED_LINE.names}
    if not ordered:
        is_turned = pc.fill_null(pc.less(columns["second"], columns["first"]), False)
        for one, other in (("first", "second"), ("first_id", "second_id")):
            a, b = lines[one], lines[other]
            columns[one], columns[other] = pc.if_else(is_turned, b, a), pc.if_else(is_turned, a, b)
    key = absorb(columns["first_id"].to_numpy().copy(), columns["second_id"].to_numpy())
    flags = pa.array(np.full(len(lines), dev))
    return pa.table([*columns.values(), flags, pa.array(key)], schema=KEYED)


def distinct(lines: pa.Table) -> tuple[pa.Table, dict[str, int]]:
    """(KEYED: one row for all lines of the same texts and file, in no order; the lines dropped, by fate).

    `lines`: all KEYED rows of their keys. Lines of the same texts with different labels are all dropped: which of them
    is right cannot be told.
    """
    found = lines.group_by(_SAME).aggregate([("label", "count_distinct"), ("label", "count"), ("label", "min")])
    num_lines, num_labels = found["label_count"].to_numpy(), found["label_count_distinct"].to_numpy()
    agrees = num_labels == 1
    fates = {
        "label_conflict": int(num_lines[~agrees].sum()),
        "label_repeated": int((num_lines[agrees] - 1).sum()),
    }
    rows = found.rename_columns({"label_min": "label"}).filter(pa.array(agrees))
    return rows.select(KEYED.names).cast(KEYED).combine_chunks(), fates


# Which columns of a file are the texts and the label: flags, or a TOML file like that of a log.
#
#     header = false                 # delimited text only, as are delimiter, quote and quoted_newlines
#
#     [columns]                      # ours = yours: a name, a dotted path into nested JSON, or a number from 1
#     first = 2
#     second = 3
#     label = 1
#
# Labelled texts have `text` instead of `first` and `second`.


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledColumns(NamedColumns):
    """The file's column for each of ours."""

    EXPECTED: ClassVar[tuple[str, ...]] = ("text", "first", "second", "label")

    text: Column = None
    first: Column = None
    second: Column = None
    label: Column = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledMapping(ColumnMapping):
    """What the columns mean. Raises UsageError where they are neither of pairs nor of texts."""

    columns: LabelledColumns = field(default_factory=LabelledColumns)

    def __post_init__(self) -> None:
        ColumnMapping.__post_init__(self)
        named = set(self.columns.named())
        if named not in ({"first", "second", "label"}, {"text", "label"}):
            raise UsageError(
                asked="labelled pairs or texts were to be read",
                found=f"of their columns {', '.join(sorted(named)) if named else 'none'} was named",
                follows="it is unknown what is a text and what is its label",
                do="name first, second and label (pairs), or text and label (texts)",
            )

    @property
    def unit(self) -> Unit:
        return "texts" if self.columns.text not in (None, "") else "pairs"


def read_labelled_mapping(path: str) -> LabelledMapping:
    """The mapping in a TOML file. Raises UsageError and StageError as that of a log."""
    return read_mapping_of(path, LabelledMapping, {"columns": LabelledColumns})


# Raised on purpose when the same files give other rows.
STAGE_VERSION = 1
Format = Literal["delimited", "jsonl", "parquet"]
_ENDINGS: dict[str, Format] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet"}


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledConfig:
    """What decides the rows of labelled shards.

    label: what a label is, one of some classes or a real value. classes: those that may occur; none named, those that
    training lines have. lowest, highest: of a value, both included. ordered: whether a pair and the same pair the other
    way round are two; if not they are one, with the text that sorts first as `first`. dev_share: of the connected
    components of sentences (labelled_split) that is held out where no dev file is given. split_salt: the
    key of that. max_unreadable_share: of the lines; above it the run fails.
    """

    mapping: LabelledMapping
    format: Format = "delimited"
    label: LabelKind = "class"
    classes: tuple[str, ...] = ()
    lowest: float | None = None
    highest: float | None = None
    ordered: bool = True
    dev_share: float = 0.1
    split_salt: str = "clicktower"
    table_rows: int = DEFAULT_TABLE_ROWS
    rows_per_shard: int = 500_000
    max_unreadable_share: float = 0.05

    def __post_init__(self) -> None:
        _require("dev_share", self.dev_share, 0, 0.9)
        _require("bytes of split_salt", len(self.split_salt.encode()), 0, MAX_SALT_BYTES)
        _require("table_rows", self.table_rows, COMPUTED_IDS + 1, 2**32 - 1)
        _require("rows_per_shard", self.rows_per_shard, 1, 2**24)
        _require("max_unreadable_share", self.max_unreadable_share, 0, 1)
        of_values = self.lowest is not None or self.highest is not None
        if (self.label == "class" and of_values) or (self.label == "value" and self.classes):
            raise UsageError(
                asked=f"labels were to be read, each a {self.label}",
                found="the bounds of values were set" if of_values else "classes were named",
                do="leave that out, or say --label-kind " + ("value" if of_values else "class"),
            )
        if self.lowest is not None and self.highest is not None and not self.lowest < self.highest:
            raise UsageError(
                asked=f"values from {self.lowest:g} to {self.highest:g} were to be read",
                found="no two values lie between them",
                do="give lowest below highest",
            )

    @property
    def rule(self) -> LabelRule:
        """What a label must be."""
        bounds = (-math.inf if self.lowest is None else self.lowest, math.inf if self.highest is None else self.highest)
        return LabelRule(kind=self.label, classes=frozenset(self.classes), bounds=bounds)


def format_of(name: str) -> Format:
    """The form of a file by the ending of its name: JSON lines, Parquet, or else delimited text."""
    plain = name.removesuffix(".gz").removesuffix(".zst").lower()
    return next((form for ending, form in _ENDINGS.items() if plain.endswith(ending)), "delimited")


def labelled_source(config: LabelledConfig) -> Source:
    """What reads the files; nothing is opened yet."""
    rows_of = partial(labelled_rows, rule=config.rule)
    match config.format:
        case "delimited":
            return DelimitedSource(mapping=config.mapping, rows_of=rows_of)
        case "jsonl":
            return JsonSource(mapping=config.mapping, rows_of=rows_of)
        case "parquet":
            return ParquetSource(mapping=config.mapping, rows_of=rows_of)


def labelled_request(files: Sequence[str], dev: Sequence[str], config: LabelledConfig) -> Request:
    """What names the result: the content of the files whatever they are called, and the config."""
    return Request(
        stage="build-labelled",
        stage_version=STAGE_VERSION,
        config=asdict(config),
        inputs={
            "labelled": sorted(storage.of_each(storage.fingerprint, files)),
            "dev": sorted(storage.of_each(storage.fingerprint, dev)),
        },
    )


def _require(what: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise UsageError(
            asked=f"build-labelled was asked for {what} = {value:,}",
            found=f"it must be from {least:,} to {most:,}",
            do=f"choose a {what} in that range",
        )
