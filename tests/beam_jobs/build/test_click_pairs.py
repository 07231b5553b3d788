from collections import Counter

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from clicktower.beam_jobs.build.click_shards import REPORTED_K, REPORTED_PAIR_K, click_pairs, held_out
from clicktower.beam_jobs.build.nothing_left import no_pairs
from clicktower.beam_jobs.build.titles import SHOWN_TITLED
from clicktower.beam_jobs.ingest.pair_people import PAIR_PEOPLE
from clicktower.schemas.ledger import Ledger
from clicktower.schemas.search_log import QUERIES

_QUERY = st.sampled_from(["a", "b", "c", "d e", "é", "porn", "www.a.example", "a rude word"])
_TITLE = st.sampled_from([(None, -1), ("hose", 4), ("paint", 0), ("screw", -1)])  # screw is not in the pool
_CLICKERS = st.sets(st.integers(0, 5), max_size=3)
_ROWS = st.lists(st.tuples(_QUERY, _TITLE, *[st.integers(0, 3)] * 3, _CLICKERS), max_size=15)
_PEOPLE = st.lists(st.tuples(_QUERY, st.sets(st.integers(0, 9), max_size=6)), max_size=8)


@settings(deadline=None)  # the word list is read at the first call
@given(_PEOPLE, _ROWS, st.sets(_QUERY, max_size=2), st.integers(1, 5), st.integers(1, 3))
def test_pairs_and_fates_are_those_of_a_reference_that_takes_a_row_at_a_time(issued, shown, judged, k, pair_k):
    issued = [*issued, *((query, set()) for query, *_ in shown)]  # a query that was shown was searched
    people, searches = {}, Counter()
    for query, some in issued:
        people.setdefault(query, set()).update(some)
        searches[query] += len(some) + 1
    dev = dict(zip(people, held_out(people, salt="s", share=0.4), strict=True))

    def set_aside(query):
        content = {"www.a.example": "query_spam", "a rude word": "query_adult"}.get(query)
        return content or ("query_judged" if query in judged else None)

    def fate_of_query(query):
        return set_aside(query) or ("query_below_k" if len(people[query]) < k else None)

    clickers = {}
    for query, (title, _), _, num_clicks, num_bought, some in shown:
        if num_clicks + num_bought and title is not None:
            clickers.setdefault((query, title), set()).update(some)

    fates, clicks, excluded, ungated = Counter(), Counter(), {}, Counter()
    for query, count in searches.items():
        fates[fate_of_query(query) or "search"] += count
    weights = Counter()
    for query, (title, pool_row), num_shown, num_clicks, num_bought, _ in shown:
        num_lines, weight = num_shown + num_clicks + num_bought, 1000 * num_clicks + 3500 * num_bought
        too_few = pair_k > 1 and len(clickers.get((query, title), ())) < pair_k
        if weight and pool_row >= 0 and not too_few:
            excluded.setdefault(query, set()).add(pool_row)
        if weight and title is not None and not set_aside(query):
            ungated[query, title] += num_clicks
        if fate := fate_of_query(query):
            fates[fate] += num_lines
        elif title is None:
            fates["document_unknown"] += num_lines
        else:
            fates["impression"] += num_shown
            if too_few:
                fates["pair_below_k"] += num_clicks + num_bought
                continue
            fates["click_dev" if dev[query] else "click_train"] += num_clicks
            fates["conversion_dev" if dev[query] else "conversion_train"] += num_bought
            if weight:
                clicks[query, title] += num_clicks
                weights[query, title] += weight

    pairs, tally = click_pairs(
        pa.Table.from_pylist(
            [{"query": q, "people": sorted(some), "searches": len(some) + 1} for q, some in issued], schema=QUERIES
        ),
        pa.Table.from_pylist(
            [
                # as the join leaves it: a known document that nobody clicked has the title ""
                {
                    "query": query,
                    "title": title if title is None or num_clicks + num_bought else "",
                    "pool_row": row,
                    "impressions": num_shown,
                    "clicks": num_clicks,
                    "conversions": num_bought,
                    "weight": 1000 * num_clicks + 3500 * num_bought,
                }
                for query, (title, row), num_shown, num_clicks, num_bought, _ in shown
            ],
            schema=SHOWN_TITLED,
        ),
        judged,
        k=k,
        split_salt="s",
        dev_share=0.4,
        adult_terms=("rude word",),  # and no longer what the shipped list holds
        pair_k=pair_k,
        pair_people=pa.Table.from_pylist(
            [{"query": q, "title": t, "person": who} for (q, t), some in clickers.items() for who in some] * 2,
            schema=PAIR_PEOPLE,
        ),
    )
    assert {(row["query"], row["title"]): row["clicks"] for row in pairs.to_pylist()} == clicks
    assert {(row["query"], row["title"]): row["weight"] for row in pairs.to_pylist()} == weights
    assert len(pairs) == len(clicks)
    assert all(row["dev"] == dev[row["query"]] for row in pairs.to_pylist())
    held = [(row["query"], row["excluded"]) for row in pairs.to_pylist() if row["excluded"] is not None]
    assert sorted(query for query, _ in held) == sorted({query for query, _ in clicks})  # once for each query
    assert all(rows == sorted(excluded.get(query, ())) for query, rows in held)
    assert +Counter(tally.fates) == +fates
    for other_k in {*REPORTED_K, k}:
        passed = {pair: number for pair, number in ungated.items() if len(people[pair[0]]) >= other_k}
        assert [tally.counts[f"{unit}_at_{other_k}"] for unit in ("queries", "clicks", "pairs")] == [
            sum(not set_aside(query) and len(some) >= other_k for query, some in people.items()),
            sum(passed.values()),
            len(passed),
        ]
    published = {pair: number for pair, number in ungated.items() if len(people[pair[0]]) >= k}
    for other in {*REPORTED_PAIR_K, pair_k}:
        passed = [n for pair, n in published.items() if other == 1 or len(clickers[pair]) >= other]
        assert [tally.counts[f"{unit}_at_pair_{other}"] for unit in ("clicks", "pairs")] == [sum(passed), len(passed)]


def test_a_judged_query_is_kept_out_in_every_disguise_and_all_disguises_are_on_one_side():
    disguises = ["deck screw", "deck scr\u200bew", "\u2060deck screw", "d\u0435ck s\u0441rew", "deck\u00ad screw"]
    queries = pa.Table.from_pylist(
        [{"query": query, "people": [1, 2], "searches": 3} for query in [*disguises, "deck screws"]], schema=QUERIES
    )
    row = {"title": "screw", "pool_row": 1, "impressions": 1, "clicks": 1, "conversions": 0, "weight": 1000}
    shown = pa.Table.from_pylist(
        [{"query": query} | row for query in queries["query"].to_pylist()], schema=SHOWN_TITLED
    )
    pairs, tally = click_pairs(queries, shown, frozenset({"deck screw"}), k=2, split_salt="s", dev_share=0.0)
    assert pairs["query"].to_pylist() == ["deck screws"]
    assert tally.fates["query_judged"] == len(disguises) * (3 + 1 + 1)
    for salt in "abcdefgh":
        pairs, _ = click_pairs(queries, shown, frozenset(), k=2, split_salt=salt, dev_share=0.5)
        sides = {row["query"]: row["dev"] for row in pairs.to_pylist()}
        assert len({sides[query] for query in disguises}) == 1


def test_days_without_pairs_are_told_by_what_took_most_of_their_lines():
    erased = no_pairs(Ledger(total=9, lines={"erased": 6, "repeat": 2, "search": 1}))
    lost = "Of 9 lines these were lost: 6 erased with a person who asked; 2 exact repeat of another line."
    assert erased.problem.endswith(lost)
    assert erased.fix.startswith("Add days on which others asked")
    searches = no_pairs(Ledger(total=4, lines={"search": 4}))
    assert searches.problem == "No click of these days gives a pair of a query and a title, at any k."
    assert "clicktower check" in searches.fix
