"""What of a labelled build a user can set, and what of it names the result. Imports no engine."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import ClassVar, Literal

from beam_jobs.build.build_config import MAX_SALT_BYTES
from beam_jobs.labelled.labelled_rows import LabelRule, labelled_rows
from beam_jobs.sources.delimited import DelimitedSource
from beam_jobs.sources.jsonl import JsonSource
from beam_jobs.sources.mapping import Column, ColumnMapping, NamedColumns, read_mapping_of
from beam_jobs.sources.parquet import ParquetSource
from beam_jobs.sources.source import Source
from schemas import storage
from schemas.errors import UsageError
from schemas.labelled import LabelKind, Unit
from schemas.manifest import Request
from schemas.trigrams import COMPUTED_IDS, DEFAULT_TABLE_ROWS

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
