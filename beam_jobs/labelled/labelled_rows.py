"""Labelled files: settings, what identifies the result, what lines mean, and which rows are held out. No engine.

Flags say which columns are the texts and the label, or a TOML file like the mapping of a log:

    header = false                 # delimited text only, as are delimiter, quote and quoted_newlines

    [columns]                      # ours = yours: a name, a dotted path into nested JSON, or a number from 1
    first = 2
    second = 3
    label = 1

Labelled texts have `text` instead of `first` and `second`.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import regex

from clicktower.beam_jobs.build.click_shards import HeldOutShare, RowsPerShard, Salt, TableRows, held_out
from clicktower.beam_jobs.sources import read_lines
from clicktower.beam_jobs.sources.delimited import DelimitedSource
from clicktower.beam_jobs.sources.jsonl import JsonSource
from clicktower.beam_jobs.sources.log_rows import WrongValues, texts
from clicktower.beam_jobs.sources.mapping import Column, ColumnMapping, NamedColumns
from clicktower.beam_jobs.sources.parquet import ParquetSource
from clicktower.beam_jobs.sources.source import Source, Values
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.labelled_shard import LabelKind, Unit
from clicktower.schemas.manifest import Request
from clicktower.schemas.section import Part, Unnamed, section
from clicktower.schemas.shard import absorb
from clicktower.schemas.stage import Stage
from clicktower.schemas.text_contract import DEFAULT_TABLE_ROWS, normalise_column


@section
class LabelledColumns(NamedColumns):
    """The file's columns: first, second and label of pairs, or text and label of texts.

    Args:
        text: The text.
        first: The first text of a pair.
        second: The second text of a pair.
        label: The class, or the value.
    """

    EXPECTED: ClassVar[tuple[str, ...]] = ("text", "first", "second", "label")

    text: Column = None
    first: Column = None
    second: Column = None
    label: Column = None


@section
class LabelledMapping(ColumnMapping):
    """What the columns mean. Raises UsageError if they describe neither pairs nor texts."""

    columns: LabelledColumns = field(default_factory=LabelledColumns)

    def __post_init__(self) -> None:
        ColumnMapping.__post_init__(self)
        named = set(self.columns.named())
        if named not in ({"first", "second", "label"}, {"text", "label"}):
            raise UsageError(
                f"Of the columns of labelled pairs or texts {', '.join(sorted(named)) if named else 'none'} is named,"
                " so text and label cannot be told apart.",
                "Name first, second and label (pairs), or text and label (texts).",
            )

    @property
    def unit(self) -> Unit:
        return "texts" if self.columns.text not in (None, "") else "pairs"


BUILD_LABELLED = Stage("build-labelled", version=2)
Format = Literal["delimited", "jsonl", "parquet"]
_ENDINGS: dict[str, Format] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet"}


@section
class LabelledConfig:
    """The settings that determine the rows of labelled shards.

    Args:
        mapping: What the columns mean.
        format: The format of the lines.
        label: Whether a label is a class or a real value.
        classes: The allowed classes; by default those of the training lines.
        lowest: The lower bound of a value, inclusive.
        highest: The upper bound of a value, inclusive.
        ordered: Whether swapping a pair's texts makes another pair; if not, `first` is the text that sorts first.
        dev_share: The share of the connected components of sentences that is held out without a dev file.
        split_salt: The key of that split.
        table_rows: Rows of the letter-trigram table.
        rows_per_shard: Rows in a shard.
        max_unreadable_share: The share of unreadable lines above which the run fails.
        words: How texts are cut into words: at white space, or by Unicode's rule, which splits off punctuation.
        keep_shared: With a dev file, keep training lines that share a sentence with it, as some published splits do.
    """

    mapping: LabelledMapping
    format: Format = "delimited"
    label: LabelKind = "class"
    classes: tuple[str, ...] = ()
    lowest: float | None = None
    highest: float | None = None
    ordered: bool = True
    dev_share: HeldOutShare = 0.1
    split_salt: Salt = "clicktower"
    table_rows: TableRows = DEFAULT_TABLE_ROWS
    rows_per_shard: RowsPerShard = 500_000
    max_unreadable_share: Part = 0.05
    words: Annotated[Literal["spaces", "unicode"], Unnamed(at="spaces")] = "spaces"
    keep_shared: Annotated[bool, Unnamed(at=False)] = False

    def __post_init__(self) -> None:
        of_values = self.lowest is not None or self.highest is not None
        if (self.label == "class" and of_values) or (self.label == "value" and self.classes):
            raise UsageError(
                f"A label is a {self.label}, and "
                + ("bounds of values are set." if of_values else "classes are named."),
                "Leave that out, or say --label-kind " + ("value." if of_values else "class."),
            )
        if self.lowest is not None and self.highest is not None and not self.lowest < self.highest:
            raise UsageError(
                f"No two values lie between {self.lowest:g} and {self.highest:g}.", "Give lowest below highest."
            )


def format_of(name: str) -> Format:
    """The format of a file by its extension: JSON lines, Parquet, or else delimited text."""
    plain = name.removesuffix(".gz").removesuffix(".zst").lower()
    return next((form for ending, form in _ENDINGS.items() if plain.endswith(ending)), "delimited")


def labelled_source(config: LabelledConfig) -> Source:
    """The source that reads the files; it opens nothing yet."""
    rows_of = partial(labelled_rows, config=config)
    match config.format:
        case "delimited":
            return DelimitedSource(mapping=config.mapping, rows_of=rows_of)
        case "jsonl":
            return JsonSource(mapping=config.mapping, rows_of=rows_of)
        case "parquet":
            return ParquetSource(mapping=config.mapping, rows_of=rows_of)


def labelled_request(labelled: Sequence[str], dev: Sequence[str], config: LabelledConfig) -> Request:
    """The request for files, given by their fingerprints."""
    inputs = {"labelled": labelled, "dev": dev}
    return BUILD_LABELLED.request(config, inputs)


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledPart:
    """What one worker reads at a time; `dev`: from the dev file."""

    unit: read_lines.Unit
    dev: bool


# Lines -> rows.


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


def labelled_rows(
    _hashes: pa.FixedSizeBinaryArray, columns: Mapping[str, Values], _mapping: Any, *, config: LabelledConfig
) -> tuple[pa.RecordBatch, np.ndarray, list[str], WrongValues]:
    """(LABELLED_LINE rows in the order of the lines, the numbers of the rejected lines ascending, the fate of each,
    nothing).
    """
    texts_of_columns = [texts(columns[name]) for name in ("text", "first", "second") if name in columns]
    labels = pa.array(_labels(columns["label"], config), pa.string())
    is_missing = ~np.logical_and.reduce(
        [column.is_valid().to_numpy(zero_copy_only=False) for column in texts_of_columns]
    )
    is_bad = ~labels.is_valid().to_numpy(zero_copy_only=False)
    cut = space_words if config.words == "unicode" else lambda column: column
    sentences = [normalise_column(cut(column.fill_null(""))) for column in texts_of_columns]
    is_empty = np.logical_or.reduce([pc.equal(each, "").to_numpy(zero_copy_only=False) for each in sentences])
    is_kept = ~(is_missing | is_bad | is_empty)

    kept = [each.filter(pa.array(is_kept)) for each in sentences]
    ids = [sentence_ids(each.to_pylist()) for each in kept]
    second = kept[1] if len(kept) > 1 else pa.nulls(len(kept[0]), pa.string())
    rows = pa.RecordBatch.from_arrays(
        [kept[0], second, labels.filter(pa.array(is_kept)), pa.array(ids[0]), pa.array(ids[-1])], schema=LABELLED_LINE
    )
    dropped = np.flatnonzero(~is_kept)
    fates = np.where(is_missing, FIELD, np.where(is_bad, LABEL, EMPTY))[dropped]
    return rows, dropped, fates.tolist(), Counter()


_WORD = regex.compile(r"(?w)\S+?\b")


def space_words(column: pa.Array) -> pa.Array:
    """Texts with a space between words as Unicode's default rule cuts them (UAX #29): `"don't," -> " don't , "`."""
    return pa.array([" ".join(_WORD.findall(text)) for text in column.to_pylist()], pa.string())


def sentence_ids(sentences: Iterable[str]) -> np.ndarray:
    """64 bits of the BLAKE2b of each normalised sentence, uint64.

    Two sentences with the same id (among a million the chance is 3e-8) would stay on one side of the split together,
    which is harmless.
    """
    digests = [hashlib.blake2b(each.encode(), digest_size=8, person=b"sentence").digest() for each in sentences]
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)


def _labels(values: Values, config: LabelledConfig) -> Sequence[str | None]:
    listed = values.to_pylist() if isinstance(values, pa.Array) else values
    label_of_value: dict[tuple[type, Any], str | None] = {}
    for value in listed:
        key = (type(value), value)  # True == 1 == 1.0, but as classes they differ
        if key not in label_of_value:
            label_of_value[key] = read_label(value, config)
    return [label_of_value[type(value), value] for value in listed]


def read_label(value: Any, config: LabelledConfig) -> str | None:
    """The canonical spelling of a label; None for an invalid label: an unknown class, a number out of bounds."""
    if value is None:
        return None
    if config.label == "class":
        name = _class_name(value)
        return name if name and (not config.classes or name in config.classes) else None
    try:
        number = float(value) if not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        return None
    lowest = -math.inf if config.lowest is None else config.lowest
    highest = math.inf if config.highest is None else config.highest
    is_right = math.isfinite(number) and lowest <= number <= highest
    return repr(number + 0.0) if is_right else None  # -0.0 is 0.0


def _class_name(value: Any) -> str | None:
    """A class as text without surrounding space: a number without a fraction in decimal, a boolean as `true` or
    `false`.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return None if not math.isfinite(value) else str(int(value)) if value == int(value) else repr(value)
    return str(value).strip() or None


# Lines with the same texts, brought together in one bucket -> one row per pair or text, and the fates of the other
# lines.


# A line with its origin and the key that brings lines with the same texts together.
KEYED = LABELLED_LINE.append(pa.field("dev", pa.bool_(), nullable=False)).append(
    pa.field("key", pa.uint64(), nullable=False)
)
_SAME = ["dev", "first", "second", "first_id", "second_id", "key"]


def add_keys(lines: pa.RecordBatch, *, ordered: bool, dev: bool) -> pa.Table:
    """KEYED rows. If not `ordered`, the text that sorts first (by its UTF-8 bytes) is `first`. dev: from the dev
    file.
    """
    columns = {name: lines[name] for name in LABELLED_LINE.names}
    if not ordered:
        is_turned = pc.fill_null(pc.less(columns["second"], columns["first"]), False)
        for column, id_column in (("first", "second"), ("first_id", "second_id")):
            a, b = lines[column], lines[id_column]
            columns[column], columns[id_column] = pc.if_else(is_turned, b, a), pc.if_else(is_turned, a, b)
    key = absorb(columns["first_id"].to_numpy().copy(), columns["second_id"].to_numpy())
    flags = pa.array(np.full(len(lines), dev))
    return pa.table([*columns.values(), flags, pa.array(key)], schema=KEYED)


def distinct(lines: pa.Table) -> tuple[pa.Table, dict[str, int]]:
    """(KEYED: one row for all lines of the same texts and file, in any order; the dropped lines, by fate).

    `lines`: all KEYED rows of their keys. Lines of the same texts with different labels are all dropped: which of them
    is right is unknown.
    """
    groups = lines.group_by(_SAME).aggregate([("label", "count_distinct"), ("label", "count"), ("label", "min")])
    num_lines, num_labels = groups["label_count"].to_numpy(), groups["label_count_distinct"].to_numpy()
    agrees = num_labels == 1
    fates = {"label_conflict": int(num_lines[~agrees].sum()), "label_repeated": int((num_lines[agrees] - 1).sum())}
    rows = groups.rename_columns({"label_min": "label"}).filter(pa.array(agrees))
    return rows.select(KEYED.names).cast(KEYED).combine_chunks(), fates


# The one decision that needs all rows at once: which sentences are held out, which classes exist.


MAX_CLASSES = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitDecision:
    """`dev_sentences`: the URI of a table of their ids, ascending. `classes`: in order; empty for values."""

    dev_sentences: str
    classes: tuple[str, ...]
    num_rows: dict[str, int]  # of each split, at most
    counts: dict[str, int]


def decide(rows: pa.Table, config: LabelledConfig, *, has_dev_file: bool) -> tuple[np.ndarray, SplitDecision]:
    """(the ids of the held-out sentences, uint64 ascending; the rest of the decision, without its URI).

    rows: first_id, second_id, dev and label of all distinct rows.
    """
    first, second, is_dev = (rows[name].to_numpy(zero_copy_only=False) for name in ("first_id", "second_id", "dev"))
    if has_dev_file:
        dev_ids, counts = np.unique(np.concatenate([first[is_dev], second[is_dev]])), dict[str, int]()
    else:
        dev_ids, counts = held_out_sentences(first, second, salt=config.split_salt, share=config.dev_share)
    in_dev = is_dev if config.keep_shared and has_dev_file else is_held_out(first, second, dev_ids)
    trains = ~is_dev & ~in_dev
    held = is_dev if has_dev_file else in_dev
    num_rows = {"train": int(trains.sum()), "dev": int(held.sum())}
    of_training = rows["label"].filter(pa.array(trains)).unique().to_pylist() if config.label == "class" else []
    return dev_ids, SplitDecision(
        dev_sentences="", classes=in_order(set(of_training)), num_rows=num_rows, counts=counts
    )


def is_held_out(first: np.ndarray, second: np.ndarray, dev_ids: np.ndarray) -> np.ndarray:
    """Whether either sentence of each row is held out, bool. dev_ids: ascending."""
    result = np.zeros(len(first), bool)
    if len(dev_ids):
        for ids in (first, second):
            place = np.minimum(np.searchsorted(dev_ids, ids), len(dev_ids) - 1)
            result |= dev_ids[place] == ids
    return result


def in_order(names: set[str]) -> tuple[str, ...]:
    """Classes by their number if all are whole numbers, otherwise by their name."""
    try:
        return tuple(sorted(names, key=lambda name: (int(name), name)))
    except ValueError:
        return tuple(sorted(names))


def require_usable(decision: SplitDecision, config: LabelledConfig, *, has_dev_file: bool) -> None:
    """Raise StageError if there is nothing to train on or to hold out, only one class, or too many."""
    num_train, num_classes = decision.num_rows["train"], len(decision.classes)
    if not num_train:
        raise StageError(
            "No labelled line is left to train on: "
            + ("every line has a sentence of the dev file." if has_dev_file else "none is usable."),
            "Give other lines, or another dev file.",
        )
    if not decision.num_rows["dev"] and has_dev_file:
        raise StageError(
            "No usable line is in the dev file, so nothing could be measured.",
            "Look at the file and at which columns are named.",
        )
    if not decision.num_rows["dev"] and config.dev_share:
        raise StageError(
            f"No part holds a share of {config.dev_share:g} of the rows: each of the {decision.counts['components']:,}"
            " components of sentences has more, and none can be held out.",
            "Give more lines, a larger dev_share, or a dev file (--dev).",
        )
    if config.label == "class" and num_classes == 1:
        raise StageError(
            f"All {num_train:,} training lines have the same label, so there is nothing to learn.",
            "Give lines of at least two classes, or look at which column the label is.",
        )
    if num_classes > MAX_CLASSES:
        raise StageError(
            f"{num_train:,} training lines have {num_classes:,} different labels; classes may be at most"
            f" {MAX_CLASSES:,}.",
            "Use --label-kind value if they are numbers, or look at which column the label is.",
        )


# The connected components of sentences joined by pairs, and which of them are held out.
#
# Pairs join sentences: if (a, b) is held out and (b, c) is not, b is on both sides. So the split assigns whole
# components: all sentences that a chain of pairs connects. A component is held out if the keyed hash of its
# representative, the sentence with the smallest id, is below the share; ids do not depend on the key, so every
# component is held out with the same probability, whatever its size. One that has more than the share of all rows by
# itself trains: connected data cannot be divided, and most data must train.
#
# The one worker that does this holds ids and indices in memory, up to 140 bytes per row (measured at a million), and no
# text. A hundred million pairs take some 14 GB.


def components(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(the distinct ids ascending, uint64 [S]; the index of each one's representative among them, int64).

    first, second: ids that a row connects, uint64 [rows]; a row with one sentence connects it with itself.

    It works in rounds until nothing changes: both sentences of a row, and their representatives of the round before,
    take the smaller of these; then every sentence takes its representative's.
    """
    ids, places = np.unique(np.concatenate([first, second]), return_inverse=True)
    a, b = np.split(places.reshape(-1), 2)
    smallest = np.arange(len(ids))
    while True:
        before = smallest.copy()
        joined = np.minimum(smallest[a], smallest[b])
        # The representatives are updated too, or a chain would take about as many rounds as it has links.
        for end in (a, b):
            np.minimum.at(smallest, before[end], joined)
            np.minimum.at(smallest, end, joined)
        smallest = smallest[smallest]
        if np.array_equal(smallest, before):
            return ids, smallest


def held_out_sentences(
    first: np.ndarray, second: np.ndarray, *, salt: str, share: float
) -> tuple[np.ndarray, dict[str, int]]:
    """(the ids of the held-out sentences, uint64 ascending; counts of the components); see above."""
    ids, representative = components(first, second)
    present, of_sentence = np.unique(representative, return_inverse=True)
    of_row = of_sentence[np.searchsorted(ids, first)]
    num_rows = np.bincount(of_row, minlength=len(present))
    is_out = held_out((f"{each:016x}" for each in ids[present].tolist()), salt=salt, share=share)
    is_whole = num_rows > share * len(first)
    counts = {
        "components": len(present),
        "largest_component_rows": int(num_rows.max(initial=0)),
        "components_too_large_to_hold_out": int((is_whole & is_out).sum()),
    }
    return ids[(is_out & ~is_whole)[of_sentence]], counts
