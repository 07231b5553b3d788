"""Published data sets in their original form: which lines are rows, which words they have, splits as published."""

import json
from dataclasses import replace

import pyarrow as pa
import pytest

from clicktower.beam_jobs.labelled.labelled_rows import labelled_request, space_words
from clicktower.beam_jobs.labelled.labelled_stage import PUBLISHED, build_labelled_shards
from tests.beam_jobs.labelled.test_build_labelled import CONFIG, _lines, _read

SNLI = [
    {"annotator_labels": ["neutral"], "captionID": "1.jpg#0", "gold_label": "neutral", "pairID": "1.jpg#0r1n",
     "sentence1": "A person on a horse jumps.", "sentence1_parse": "(ROOT)", "sentence2": "It's a contest."},
    {"annotator_labels": ["x", "y"], "gold_label": "-", "sentence1": "A person on a horse jumps.", "sentence2": "No."},
    {"gold_label": "entailment", "sentence1": "A man (old) sleeps", "sentence2": "Someone sleeps"},
]  # fmt: skip
YELP = [{"review_id": "a", "stars": 5.0, "date": "2011-01-26", "text": "Great!\n\nReally, don't miss it.", "cool": 0},
        {"review_id": "b", "stars": 1, "text": "$12.50 wasted", "useful": 2}]  # fmt: skip
QUORA = (
    "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    '0\t1\t2\t"What is ""AI""?"\tWhat does AI mean?\t1\n'
    '1\t3\t4\t"Two\nlines?"\tOne line?\t0\n'
)
BIMPM = '1\twhat is ai ?\twhat does ai mean ?\t0\n0\twhy " ?\tone line ?\t1\n'
ROWS = {
    "snli": [("a man ( old ) sleeps", "someone sleeps", "entailment"),
             ("a person on a horse jumps .", "it's a contest .", "neutral")],
    "yelp": [("$ 12.50 wasted", "1"), ("great ! really , don't miss it .", "5")],
    "quora": [('two lines ?', "one line ?", "0"), ('what is " ai " ?', "what does ai mean ?", "1")],
    "quora-bimpm": [("what is ai ?", "what does ai mean ?", "1"), ('why " ?', "one line ?", "0")],
}  # fmt: skip
CONTENT = {
    "snli": "".join(json.dumps(line) + "\n" for line in SNLI),
    "yelp": "".join(json.dumps(line) + "\n" for line in YELP),
    "quora": QUORA,
    "quora-bimpm": BIMPM,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_the_original_files_are_read(name, tmp_path):
    file = tmp_path / "original"
    file.write_text(CONTENT[name], encoding="utf-8")
    config = replace(PUBLISHED[name], dev_share=0.0, max_unreadable_share=0.5)
    made = build_labelled_shards([str(file)], store=str(tmp_path / "store"), config=config)
    assert [row[1:] for row in _read(made)[1]] == ROWS[name]
    fates = dict(made.manifest.outcome.ledger.lines)
    assert fates == {"labelled_train": 2} | ({"unreadable_label": 1} if name == "snli" else {})


def test_words_are_cut_as_the_unicode_standard_shows_it():
    """The example of UAX #29, Figure 1 (Word Boundaries)."""
    text = "The quick (\u201cbrown\u201d) fox can\u2019t jump 32.3 feet, right?"
    expected = ["The", "quick", "(", "\u201c", "brown", "\u201d", ")", "fox", "can\u2019t", "jump", "32.3", "feet", ",",
                "right", "?"]  # fmt: skip
    assert space_words(pa.array([text, "", " \t"])).to_pylist() == [" ".join(expected), "", ""]


def test_a_split_as_published_keeps_training_lines_with_a_sentence_of_the_dev_file(tmp_path):
    train = [("a", "b", 0), ("b", "c", 1), ("d", "e", 1), ("f", "g", 0), ("b", "x", 1)]
    dev = [("B", "x", 1), ("y", "f", 0)]
    files = {"files": _lines(tmp_path / "train.tsv", train), "dev": _lines(tmp_path / "dev.tsv", dev)}
    made = build_labelled_shards(**files, store=str(tmp_path), config=replace(CONFIG, keep_shared=True))
    rows = [("dev", "b", "x", "1"), ("dev", "y", "f", "0"), *(("train", a, b, str(label)) for a, b, label in train)]
    assert _read(made)[1] == sorted(rows)
    assert made.manifest.outcome.ledger.lines == {"labelled_train": 5, "labelled_dev": 2}


def test_the_split_of_bimpm_keeps_training_lines_with_a_sentence_of_its_dev_file(tmp_path):
    (tmp_path / "train.tsv").write_text(BIMPM, encoding="utf-8")
    (tmp_path / "dev.tsv").write_text("1\twhat is ai ?\tone line ?\t7\n", encoding="utf-8")  # a sentence of each line
    files = {"files": [str(tmp_path / "train.tsv")], "dev": [str(tmp_path / "dev.tsv")]}
    made = build_labelled_shards(**files, store=str(tmp_path), config=PUBLISHED["quora-bimpm"])
    assert dict(made.manifest.outcome.ledger.lines) == {"labelled_train": 2, "labelled_dev": 1}


def test_what_was_built_before_there_were_these_choices_has_the_same_request():
    plain = labelled_request([], [], CONFIG).config
    assert not {"words", "keep_shared"} & set(plain)
    assert labelled_request([], [], replace(CONFIG, words="unicode")).config == plain | {"words": "unicode"}
