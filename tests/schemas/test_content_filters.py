"""Content: adult, spam and empty queries go; what merely looks like one stays."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clicktower.schemas.content_filters import (
    ADULT_ENGLISH,
    BOT_USER_AGENTS,
    by_first_run,
    content_fate,
    content_fates,
    read_list,
    shipped_list,
)
from clicktower.schemas.errors import StageError
from clicktower.schemas.text_contract import normalise

ADULT = by_first_run(shipped_list(ADULT_ENGLISH).terms)


@pytest.mark.parametrize(
    "query",
    [
        "paint stripper",
        "pipe nipple 1/2",
        "nipple",
        "stop cock",
        "ball cock",
        "wood screw",
        "stud finder",
        "strip light",
        "caulk",
        "nude lipstick",
        "wire strippers",
        "hardcore drill bit",
        "cum laude",
        "butt hinge",
        "male adapter",
        "xxxl gloves",
        "sussex",
        "sex linked chickens",
        "adult diapers",
        "essex lamp",
        "analog meter",
        "big dickson screwdriver",
        "concrete vibrator",
    ],
)
def test_everyday_words_are_not_adult(query):
    assert content_fate(normalise(query), ADULT) is None


@pytest.mark.parametrize(
    "query",
    ["free porn videos", "XXX movies", "nude  celebrity-pics", "ｐｏｒｎ", "hardcore sex dvd", "(porn)", "po\u00adrn"],
)
def test_adult_queries_are_found_however_they_are_spelt(query):
    assert content_fate(normalise(query), ADULT) == "query_adult"


@pytest.mark.parametrize("query", ["", "   ", "!!", "???", "\u200b", "-- / --", "\u200b \ufeff", "_"])
def test_a_query_without_letter_digit_or_pictograph_is_empty(query):
    assert content_fate(normalise(query), ADULT) == "query_empty"


@pytest.mark.parametrize("query", ["a", "5", "🔨", "电钻", "ドリル", "½", "дрель"])
def test_the_shortest_queries_that_say_something_stay(query):
    assert content_fate(normalise(query), ADULT) is None


@pytest.mark.parametrize(
    "query",
    [
        "http://x.example/buy",
        "see www.x.example now",
        "<a href=x>",
        "[url=x]",
        "mail me@x.example",
        "call 1-800-555-0199 now",
        "+44 20 7946 0000",
        "(555) 010-9999 plumber",
        "aaaaaaaaaaaa",
        "buy buy buy buy buy",
        "x " * 65,
        "y" * 10,
        "word-" * 150,
    ],
)
def test_spam(query):
    assert content_fate(normalise(query), ADULT) == "query_spam"


@pytest.mark.parametrize(
    "query",
    [
        "ge washer 000-767-8116",
        "flavorizer 2100000",
        "door door door",
        "1800 watt heater",
        "m12 @ 20v",
        "2x4x8 studs",
        "100,000,000 btu",
        "depot.example catalogue",
        "aaa batteries",
        "555 0142",
        "16 in. x 25 in. x 1 in. filter 4-pack",
    ],
)
def test_part_numbers_and_measures_are_not_spam(query):
    assert content_fate(normalise(query), ADULT) is None


@pytest.mark.slow
def test_no_query_or_title_of_the_real_shop_is_lost(real_data):
    files = ["queries.train.tsv", "queries.dev.tsv", "documents.tsv"]
    texts = [
        line.split("\t")[1]
        for name in files
        for line in (real_data / "homedepot" / name).read_text("utf-8").splitlines()
    ]
    assert len(texts) > 60_000
    assert sum(content_fate(normalise(text), ADULT) is not None for text in texts) == 0


def test_shipped_lists_have_terms_without_repeats():
    for name in (ADULT_ENGLISH, BOT_USER_AGENTS):
        terms = shipped_list(name).terms
        assert len(terms) == len(set(terms)) > 50


_WORDS = """
    a b ab x-a porn p0rn xxx big dick sex dvd 000-767-8116 +44 20 7946 0000 (555) 010-9999 1 800 555 1234 1-888-555-0000
    http:// x.http://y https://a www.shop.com www. < / <a> </script [url [/url] me@shop.com @ aaaaaaaaaa 9999999999
    aaaaaaaaa ___ _ !! \u200b \u7535\u94bb \U0001f528 \u00bd @ss \U0001f346
"""
_PIECES = st.sampled_from(_WORDS.split())


@given(
    st.lists(
        st.lists(_PIECES | st.text(max_size=3), max_size=8).map(lambda words: normalise(" ".join(words))), max_size=9
    ),
    st.sampled_from([None, ("@ss", "big  dick", "xxx"), ("\U0001f346",), ("_a-b", "dvd")]),
)
def test_many_queries_have_the_fates_that_each_has_alone(queries, terms):
    """Of many the patterns are asked only where a word is suspicious; alone they are always asked."""
    assert content_fates(queries, terms) == [
        content_fate(query, by_first_run(terms) if terms else ADULT) for query in queries
    ]


@pytest.mark.parametrize(
    "query", ["a " * 4 + "a", "x-a a a a a-b", "b " * 63 + "c", "b c " * 32 + "d", "c " + "ab" * 251]
)
def test_repeated_words_and_long_queries_are_looked_at_however_plain_their_words_are(query):
    assert content_fates(["drill", query]) == [None, content_fate(query, ADULT)] == [None, "query_spam"]


def test_a_list_of_terms_is_the_same_with_a_byte_order_mark_and_returns(tmp_path):
    (tmp_path / "terms.txt").write_text("# version: 1\nrude word\nruder\n")
    (tmp_path / "marked.txt").write_bytes(b"\xef\xbb\xbf# version: 1\r\nrude word \r\n\r\nruder\r\n")
    assert read_list(str(tmp_path / "marked.txt")) == read_list(str(tmp_path / "terms.txt"))
    (tmp_path / "marked.txt").write_bytes("rude word\n".encode("utf-16"))
    with pytest.raises(StageError, match="is UTF-16, not UTF-8"):
        read_list(str(tmp_path / "marked.txt"))
