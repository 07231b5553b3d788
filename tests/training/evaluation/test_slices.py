from pathlib import Path

import pyarrow as pa
import pytest

from clicktower.schemas.documents import DOCUMENT, Documents
from clicktower.schemas.errors import StageError
from clicktower.training.evaluation.compare_stage import slices_by_training, training_clicks
from clicktower.training.evaluation.evaluate_stage import read_frequencies, slices
from clicktower.training.ranking.measure import judged_collection
from tests.training.small_shards import write_build

TITLES = {"d1": "steel angle bracket", "d2": "garden hose", "d3": "copper pipe"}
QUERIES = {
    "a": "Bracket",
    "b": "garden hose",
    "c": "angel bracket",
    "d": "hoze",
    "e": "copper pipe for garden hose",
    "f": "",
}


def judged():
    documents = Documents(table=pa.table([list(TITLES), list(TITLES.values())], schema=DOCUMENT), num_untitled=0)
    return judged_collection(documents, QUERIES, {query_id: {"d1": 1, "d2": 0} for query_id in QUERIES})


def parts(found, name):
    _, part_of = found[name]
    return dict(zip(QUERIES, part_of, strict=True))


def test_queries_are_told_apart_by_length_and_by_words_that_no_title_has():
    found = slices(judged())
    assert parts(found, "query length") == {
        "a": "1 word", "b": "2 words", "c": "2 words", "d": "1 word", "e": "4 words and more", "f": None,
    }  # fmt: skip
    assert parts(found, "spelling") == {
        "a": "all words known", "b": "all words known", "c": "a word in no title", "d": "no word in any title",
        "e": "a word in no title", "f": None,
    }  # fmt: skip
    assert set(found) == {"query length", "spelling"}, "what cannot be known is no slice"


@pytest.mark.parametrize(
    ("query", "intent"),
    [
        ("www.example", "navigational"), ("Example.com hours", "navigational"), ("my account log in", "navigational"),
        ("buy a hose at example.com", "navigational"), ("cheapest garden hose", "transactional"),
        ("hose For Sale", "transactional"), ("garden hose", "other"), ("wholesale", "other"), ("3.5 in. hose", "other"),
    ],
)  # fmt: skip
def test_the_intent_of_a_query_follows_from_its_words_alone(query, intent):
    documents = Documents(table=pa.table([list(TITLES), list(TITLES.values())], schema=DOCUMENT), num_untitled=0)
    queries = {"asked": query, "bought": "order copper pipe", "empty": ""}
    collection = judged_collection(documents, queries, {query_id: {"d1": 1, "d2": 0} for query_id in queries})
    _, part_of = slices(collection)["intent"]
    assert part_of == [intent, "transactional", None]


def test_a_query_counts_as_trained_on_in_whatever_case_it_was_typed():
    found = slices_by_training(judged(), {"bracket": 3, "garden hose": 1}, None)
    assert parts(found, "training") == {
        "a": "trained on", "b": "trained on", "c": "not trained on", "d": "not trained on", "e": "not trained on",
        "f": None,
    }  # fmt: skip


def test_head_and_tail_are_thirds_of_all_searches_not_of_the_queries():
    # 90 searches in all. a: none before it, head. b: 40 before it, 40 / 90 is past the first third, torso.
    # c: 65 before it, 65 / 90 > 2/3, tail; d and e after it too.
    frequencies = {"a": 40, "b": 25, "c": 15, "d": 5, "e": 5}
    found = slices(judged(), frequencies=frequencies)
    assert parts(found, "frequency") == {"a": "head", "b": "torso", "c": "tail", "d": "tail", "e": "tail", "f": None}


def test_without_a_file_the_training_clicks_say_how_frequent_a_query_is():
    found = slices_by_training(judged(), {"bracket": 9, "garden hose": 1}, None)
    assert parts(found, "frequency") == {"a": "head", "b": "tail", "c": None, "d": None, "e": None, "f": None}
    assert "frequency" not in slices_by_training(judged(), {"something else": 9}, None)


def test_training_clicks_are_those_of_the_training_shards_alone(tmp_path):
    pairs = [("bracket", "steel bracket", ["garden hose"]), ("bracket", "angle bracket", ["garden hose"])]
    held_out = [("hose", "garden hose", ["steel bracket"])]
    folder = write_build(str(tmp_path), {"train-00000": pairs, "train-00001": pairs[:1], "dev-00000": held_out}, ["x"])
    assert training_clicks(folder) == {"bracket": 3}
    assert training_clicks(folder, "clicked") == {"steel bracket": 2, "angle bracket": 1}


def test_a_frequency_that_is_no_number_is_named(tmp_path: Path):
    (tmp_path / "frequencies.tsv").write_text("a\t12\nb\tmany\n")
    with pytest.raises(StageError, match="line of b ends in no whole number"):
        read_frequencies(str(tmp_path / "frequencies.tsv"))
    (tmp_path / "frequencies.tsv").write_text("a\t12\nb\t0\n")
    assert read_frequencies(str(tmp_path / "frequencies.tsv")) == {"a": 12, "b": 0}
