"""Queries to begin with: from the titles alone, the same every time."""

import pyarrow as pa

from clicktower.flows.serve.live import example_queries

TITLES = [
    "Harina Lavender Trash Bags, 8 oz. (2-Pack)",
    "Kelham 4 ft. 1/2 in. Insulated Garden Hose",
    "Tallin Brushed Nickel Modern Ceiling Fan, 24 in.",
    "Mardera Citrus Puppy Pads, 1/4 in.",
    "2x4 in.",
    "",
]


def test_a_query_is_the_end_of_the_longest_run_of_longer_words_and_the_last_one_is_misspelled():
    found = example_queries(TITLES)
    queries = {one["query"] for one in found if not one["note"]}
    expected = {"lavender trash bags", "insulated garden hose", "nickel modern ceiling", "citrus puppy pads"}
    assert len(queries) == 3
    assert queries < expected
    (misspelled,) = [one["query"] for one in found if one["note"] == "misspelled on purpose"]
    (meant,) = expected - queries
    assert misspelled != meant
    assert sorted(misspelled) == sorted(meant)  # the same letters
    assert sum(a != b for a, b in zip(misspelled, meant, strict=True)) == 2


def test_they_share_no_word_and_are_the_same_every_time():
    titles = [f"white garden {thing}" for thing in ("hinge", "bench", "table")] * 50
    assert [one["query"] for one in example_queries(titles)] == [example_queries(titles)[0]["query"]]
    assert example_queries(pa.array(TITLES, pa.large_string())) == example_queries(TITLES)


def test_of_a_large_catalogue_titles_from_all_over_are_looked_at():
    titles = ["2x4"] * 9_000 + ["lavender trash bags"] * 1_000
    assert [one["query"] for one in example_queries(pa.array(titles))] == ["lavender trash bags"]


def test_titles_of_other_scripts_are_taken_whole_and_no_titles_give_none():
    assert {one["query"] for one in example_queries(["東京の金槌", "x" * 50])} == {"東京の金槌"}
    assert example_queries(["", " "]) == []
    assert example_queries([]) == []
