import pyarrow as pa

from clicktower.beam_jobs.judgments.judge_clicks import CELLS, JUDGED, logged_ranking


def cells(*rows: tuple[str, str, int, int]) -> pa.Table:
    """CELLS of (query, document, rank, impressions), as the job makes them."""
    named = [
        {"query": q, "document_id": d, "rank": rank, "impressions": shown, "clicks": 0} for q, d, rank, shown in rows
    ]
    keys = [("query", "ascending"), ("document_id", "ascending"), ("rank", "ascending")]
    return pa.Table.from_pylist(named, schema=CELLS).sort_by(keys).combine_chunks()


def judged(ids: dict[str, str]) -> pa.Table:
    """JUDGED with two judgments of each query."""
    rows = [
        {"query_id": i, "query": q, "document_id": d, "grade": g}
        for q, i in ids.items()
        for d, g in (("a", 0), ("b", 1))
    ]
    return pa.Table.from_pylist(rows, schema=JUDGED)


def ranked(found: pa.Table) -> list[tuple[str, str, int]]:
    return [(row["query_id"], row["document_id"], row["place"]) for row in found.to_pylist()]


def test_hand_worked():
    # Exposure: impressions / log2(rank + 2); log2(3) = 1.584963, log2(4) = 2, log2(5) = 2.321928.
    #   all:    90 at rank 2                  90 / 2 = 45
    #   first:  60 at rank 1, 20 at rank 3    60 / 1.584963 + 20 / 2.321928 = 37.855773 + 8.613532 = 46.469305
    #   rare:   10 at rank 1                  10 / 1.584963 = 6.309296: the best mean rank, and the last place
    #   third:  80 at rank 3                  80 / 2.321928 = 34.454127
    shown = cells(
        ("q", "all", 2, 90), ("q", "first", 1, 60), ("q", "first", 3, 20), ("q", "rare", 1, 10), ("q", "third", 3, 80)
    )
    assert ranked(logged_ranking(shown, judged({"q": "id"}), min_impressions=10)) == [
        ("id", "first", 1), ("id", "all", 2), ("id", "third", 3), ("id", "rare", 4)
    ]  # fmt: skip


def test_documents_shown_alike_share_a_place_and_those_shown_too_seldom_have_none():
    # "b" and "c" swapped their ranks half of the time; "seldom" has 4 + 5 impressions.
    shown = cells(
        ("q", "a", 1, 30), ("q", "b", 2, 15), ("q", "b", 3, 15), ("q", "c", 2, 15), ("q", "c", 3, 15),
        ("q", "d", 9, 30), ("q", "seldom", 1, 4), ("q", "seldom", 2, 5),
    )  # fmt: skip
    found = ranked(logged_ranking(shown, judged({"q": "id"}), min_impressions=10))
    assert found == [("id", "a", 1), ("id", "c", 2), ("id", "b", 2), ("id", "d", 4)]


def test_only_judged_queries_are_ranked_each_by_its_own_exposures():
    shown = cells(
        ("p", "a", 1, 20), ("p", "b", 2, 20), ("q", "a", 2, 900), ("q", "b", 1, 900), ("unjudged", "a", 1, 50)
    )
    found = ranked(logged_ranking(shown, judged({"q": "id-1", "p": "id-2"}), min_impressions=1))
    assert found == [("id-1", "b", 1), ("id-1", "a", 2), ("id-2", "a", 1), ("id-2", "b", 2)]
    assert ranked(logged_ranking(shown, judged({}), min_impressions=1)) == []


def test_ranks_counted_from_0_give_the_same_order():
    rows = [("q", "a", 3, 20), ("q", "b", 1, 10), ("q", "b", 4, 10), ("q", "c", 2, 18)]
    from_0 = cells(*((q, d, rank - 1, shown) for q, d, rank, shown in rows))
    ids = judged({"q": "id"})
    assert ranked(logged_ranking(from_0, ids, min_impressions=1)) == ranked(
        logged_ranking(cells(*rows), ids, min_impressions=1)
    )
