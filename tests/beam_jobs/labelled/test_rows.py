import numpy as np
import pyarrow as pa
import pytest

from clicktower.beam_jobs.labelled.labelled_rows import (
    LabelledColumns,
    LabelledConfig,
    LabelledMapping,
    add_keys,
    distinct,
    format_of,
    labelled_rows,
    read_label,
)
from clicktower.schemas.errors import UsageError
from clicktower.schemas.section import changed

PAIRS = LabelledMapping(columns=LabelledColumns(first=1, second=2, label=3), header=False)


def _rows(first, second, label, **config):
    made = LabelledConfig(mapping=PAIRS, **config)
    hashes = pa.array([b"\0" * 16] * len(label), pa.binary(16))
    return labelled_rows(hashes, {"first": first, "second": second, "label": label}, PAIRS, config=made)[:3]


def test_texts_are_normalised_and_a_line_without_a_field_a_word_or_a_label_has_its_fate():
    first = ["Big  Dog", None, "  ", "dog", "dog"]
    rows, others, fates = _rows(first, ["ｄog", "cat", "cat", "cat", ""], ["1", "1", "0", " ", "1"])
    assert rows.select(["first", "second", "label"]).to_pylist() == [
        {"first": "big dog", "second": "dog", "label": "1"}
    ]
    assert dict(zip(others.tolist(), fates, strict=True)) == {
        1: "unreadable_field", 2: "sentence_empty", 3: "unreadable_label", 4: "sentence_empty",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("value", "read"),
    [("4", "4.0"), ("4.000", "4.0"), (" 2.5 ", "2.5"), ("-0", "0.0"), (5, "5.0"), ("5.01", None), ("-0.1", None),
     ("nan", None), ("inf", None), ("four", None), (True, None), (None, None)],
)  # fmt: skip
def test_a_value_is_a_number_within_its_bounds_in_one_spelling(value, read):
    assert read_label(value, LabelledConfig(mapping=PAIRS, label="value", lowest=0, highest=5)) == read


@pytest.mark.parametrize(
    ("value", "read"), [("1", "1"), (1, "1"), (1.0, "1"), (" no ", "no"), (True, "true"), ("", None), (0.5, "0.5")]
)
def test_a_class_is_its_name(value, read):
    assert read_label(value, LabelledConfig(mapping=PAIRS)) == read


def test_labels_that_python_holds_equal_are_told_apart_as_classes():
    rows, _, _ = _rows(["a", "b", "c"], ["x", "y", "z"], [1, True, 0.0])
    assert rows["label"].to_pylist() == ["1", "true", "0"]


def test_a_class_that_was_not_named_is_unreadable():
    _, others, fates = _rows(["a", "b"], ["x", "y"], ["1", "-"], classes=("0", "1"))
    assert (others.tolist(), fates) == ([1], ["unreadable_label"])


@pytest.mark.parametrize(
    "config",
    [{"lowest": 0}, {"label": "value", "classes": ("a",)}, {"label": "value", "lowest": 5, "highest": 0},
     {"dev_share": 0.95}, {"table_rows": 0}, {"split_salt": "s" * 65}],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(config):
    with pytest.raises(UsageError):
        changed(LabelledConfig(mapping=PAIRS), config)


@pytest.mark.parametrize("columns", [{}, {"first": 1, "label": 2}, {"text": 1}, {"text": 1, "first": 2, "label": 3}])
def test_columns_that_are_neither_of_pairs_nor_of_texts_are_refused(columns):
    with pytest.raises(UsageError, match="Name first, second and label"):
        LabelledMapping(columns=LabelledColumns(**columns))


def test_repeats_count_once_and_conflicts_not_at_all():
    # a-b: twice the same. c-d: 0 and 1, and 1 again: three lines dropped. d-c: another pair, as order counts.
    lines, _, _ = _rows(list("aacccd"), list("bbdddc"), ["1", "1", "0", "1", "1", "0"])
    rows, fates = distinct(add_keys(lines, ordered=True, dev=False))
    assert sorted(zip(*(rows[name].to_pylist() for name in ("first", "second", "label")), strict=True)) == [
        ("a", "b", "1"), ("d", "c", "0"),
    ]  # fmt: skip
    assert fates == {"label_conflict": 3, "label_repeated": 1}


def test_without_order_a_pair_the_other_way_round_is_the_same_pair():
    lines, _, _ = _rows(["b", "a", "é"], ["a", "b", "z"], ["1", "1", "0"])
    table = add_keys(lines, ordered=False, dev=False)
    rows, fates = distinct(table)
    assert sorted(zip(rows["first"].to_pylist(), rows["second"].to_pylist(), strict=True)) == [("a", "b"), ("z", "é")]
    assert fates["label_repeated"] == 1
    assert np.array_equal(table["key"].to_numpy()[:1], table["key"].to_numpy()[1:2])


def test_the_form_of_a_file_is_told_by_its_name():
    names = ("a.tsv", "a.jsonl.gz", "a.NDJSON", "a.json.zst", "a.parquet", "a")
    assert [format_of(name) for name in names] == ["delimited", "jsonl", "jsonl", "jsonl", "parquet", "delimited"]
