"""Mapped columns -> labelled lines: normalised texts, ids of sentences, and a label in one spelling."""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.sources.log_rows import texts
from beam_jobs.sources.source import Values
from schemas.labelled import LabelKind
from schemas.negatives import absorb
from schemas.text_columns import normalise_column

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
