"""Which names of fields an error or a check may show: none that only the log knows."""

import pytest

from clicktower.beam_jobs.sources.field_names import listed, may_be_shown, nearest


@pytest.mark.parametrize(
    "name",
    [
        "user_query", "queryId", "Search Term", "event_attributes.object.object_id", "query_attributes.user_agent",
        "hit.sku", "@timestamp", "gold_label",
    ],
)  # fmt: skip
def test_usual_names_are_shown(name):
    assert may_be_shown(name)


@pytest.mark.parametrize(
    "name",
    [
        "alice", "red lamp", "alice@example.org", "query_attributes.alice@example.org", "alice.user_id", "user_4711",
        "query 12345678", "a" * 70, "größe", "query\x1b[2J", "", "query..alice", "q u e r y \u202e", "мария",
    ],
)  # fmt: skip
def test_what_may_be_text_of_the_log_is_not(name):
    assert not may_be_shown(name)


def test_a_name_that_the_user_wrote_is_shown_and_so_is_one_like_it():
    assert may_be_shown("clicked product", typed=["clicked product"])
    assert may_be_shown("warehose.bin", typed=["warehouse.bin"])
    assert not may_be_shown("warehouse7.bin", typed=["warehouse.bin"])  # of `user12`, the digits are a person's
    assert not may_be_shown("alice.bin", typed=["alex.bin"])
    assert not may_be_shown("query_attributes.alice", typed=["query_attributes.agent"])


def test_a_list_counts_what_it_does_not_show():
    hidden, one = "that are not shown, since they may be text of the log", "1 that is not shown, since it may be"
    assert listed(["query", "sku"]) == "'query', 'sku'"
    assert listed(["query", "alice", "red lamp"]) == f"'query' and 2 {hidden}"
    assert listed(["alice", "c1"]) == f"2 {hidden}"
    assert listed(["query", "alice"]) == f"'query' and {one} text of the log"
    assert listed(f"rank_{n:02d}" for n in range(9)) == f"9 {hidden}"


def test_a_hint_quotes_no_text_of_the_log():
    assert nearest("skuu", ["sku", "alice"]) == " (did you mean 'sku'?)"
    assert nearest("warehouse", ["warehoused"]) == " (did you mean 'warehoused'?)"
    assert nearest("alice@example.com", ["alice@example.org"]) == ""
    assert nearest("user 12", ["user 13"]) == ""
