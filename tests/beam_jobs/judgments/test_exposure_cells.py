import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from clicktower.beam_jobs.judgments.judge_clicks import (
    CELLS,
    FATES,
    gated_cells,
    merge_samples,
    number_groups,
    sample_of,
)
from clicktower.schemas.content_filters import ADULT_ENGLISH, shipped_list
from clicktower.schemas.search_log import EXPOSURES, QUERIES

TERMS = shipped_list(ADULT_ENGLISH).terms


def gate(queries, shown, k=2, max_rank=5):
    query_rows = [{"query": q, "people": sorted(people), "searches": s} for q, people, s in queries]
    rows = [
        {
            "query": q,
            "document_id": d,
            "position": p,
            "impressions": i,
            "clicks": c,
            "conversions": 0,
            "weight": 1000 * c,
        }
        for q, d, p, i, c in shown
    ]
    tables = pa.Table.from_pylist(query_rows, schema=QUERIES), pa.Table.from_pylist(rows, schema=EXPOSURES)
    cells, counts = gated_cells(*tables, k=k, max_rank=max_rank, adult_terms=TERMS)
    return [tuple(row.values()) for row in cells.to_pylist()], {name: n for name, n in counts.items() if n}


def test_cells_and_counts_worked_by_hand():
    cells, counts = gate(
        # Two days: of "bracket" 1 and 2 together are two people, "my secret" has one in both.
        [
            ("bracket", [1], 3),
            ("bracket", [2], 1),
            ("my secret", [7], 2),
            ("my secret", [7], 1),
            ("www.x.com", [1, 2], 2),
        ],
        [
            ("bracket", "d1", 1, 3, 2),
            ("bracket", "d1", 1, 1, 1),  # another day
            ("bracket", "d1", 2, 0, 1),  # clicked, and no impression was logged
            ("bracket", "d2", -1, 4, 1),
            ("bracket", "d2", 6, 2, 0),
            ("bracket", "d 3", 1, 3, 1),
            ("bracket", "d\u00a03", 1, 1, 0),
            ("bracket", "d\x1c3", 1, 1, 0),
            ("my secret", "d1", 1, 7, 2),
            ("www.x.com", "d1", 1, 9, 0),
        ],
    )
    assert cells == [("bracket", "d1", 1, 4, 3), ("bracket", "d1", 2, 1, 1)]
    assert counts == {
        "impressions:all": 31, "clicks:all": 8, "queries": 3, "queries_at_k": 1, "clicks_unseen": 1,
        "impressions:content": 9, "impressions:below_k": 7, "clicks:below_k": 2,
        "impressions:rank_unknown": 4, "clicks:rank_unknown": 1, "impressions:rank_too_deep": 2,
        "impressions:id_with_space": 5, "clicks:id_with_space": 1,
    }  # fmt: skip
    left = sum(n for name, n in counts.items() if name.removeprefix("clicks:") in FATES)
    assert counts["clicks:all"] - left == sum(clicks for *_, clicks in cells)


ROWS = st.lists(
    st.tuples(st.sampled_from("abcdefgh"), st.sampled_from("xyz"), st.integers(1, 4), st.integers(1, 9)),
    max_size=40,
    unique_by=lambda row: row[:3],
)


@given(ROWS, st.integers(1, 30), st.integers(1, 4))
@settings(deadline=None)
def test_a_sample_is_of_whole_queries_and_the_same_however_its_parts_are_merged(rows, max_cells, num_parts):
    table = pa.table([list(c) for c in zip(*sorted((*row, 0) for row in rows), strict=True)] or [[]] * 5, schema=CELLS)
    whole = merge_samples([sample_of(table)], max_cells)
    parts = []
    for part in range(num_parts):
        of_part = pa.array([ord(query) % num_parts == part for query in table["query"].to_pylist()], pa.bool_())
        parts.append(merge_samples([sample_of(table.filter(of_part).combine_chunks())], max_cells))
    half = merge_samples(parts[: num_parts // 2], max_cells)
    assert merge_samples([half, *parts[num_parts // 2 :]], max_cells) == whole
    everything = sample_of(table)["query"].to_pylist()
    last = max(whole["query"].to_pylist(), default=None)
    assert len(whole) - whole["query"].to_pylist().count(last) < max_cells
    assert len(whole) >= min(max_cells, len(rows))
    for query in set(whole["query"].to_pylist()):
        assert whole["query"].to_pylist().count(query) == everything.count(query)
    if len(rows) <= max_cells:
        assert len(whole) == len(rows)


def test_rows_are_numbered_by_group():
    first, second = pa.chunked_array([["a", "a", "b"], ["b"]]), pa.chunked_array([["x", "y", "y"], ["y"]])
    assert [array.tolist() for array in number_groups(first, second)] == [[0, 1, 2, 2], [0, 1, 2]]
    assert [array.tolist() for array in number_groups(first.slice(0, 0))] == [[], []]
