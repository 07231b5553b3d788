import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from clicktower.beam_jobs.build.click_shards import count_people
from clicktower.schemas.search_log import PEOPLE_CAP, QUERIES

_DAY = st.dictionaries(st.sampled_from(["a", "b c", "ü"]), st.sets(st.integers(0, 60), max_size=60))


def _rows(days: list[dict[str, set[int]]]) -> pa.Table:
    rows = [
        {"query": query, "people": sorted(people)[:PEOPLE_CAP], "searches": len(people) + 1}
        for day in days
        for query, people in day.items()
    ]
    return pa.Table.from_pylist(rows, schema=QUERIES)


@given(st.lists(_DAY, max_size=5))
def test_people_of_capped_days_are_counted_as_sets_would_be(days):
    counted = count_people(_rows(days))
    expected = {}
    for day in days:
        for query, people in day.items():
            union, searches = expected.get(query, (set(), 0))
            expected[query] = (union | people, searches + len(people) + 1)
    assert {row["query"]: (row["num_people"], row["searches"]) for row in counted.to_pylist()} == {
        query: (min(len(people), PEOPLE_CAP), searches) for query, (people, searches) in expected.items()
    }
    assert len(counted) == len(expected)


def test_a_person_in_two_days_counts_once_and_lines_of_nobody_count_for_no_one():
    counted = count_people(_rows([{"q": {1, 2}}, {"q": {2, 3}}, {"q": set()}]))
    assert counted.to_pylist() == [{"query": "q", "num_people": 3, "searches": 3 + 3 + 1}]


def test_sliced_tables_are_counted_by_their_own_rows():
    table = _rows([{"a": {1, 2, 3}, "b c": {4}}, {"b c": {5, 6}}])
    assert count_people(table.slice(1)).to_pylist() == [{"query": "b c", "num_people": 3, "searches": 5}]
