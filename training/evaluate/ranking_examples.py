"""Queries to look at: where ours gained, where it lost, and where query and relevant titles share no word."""

import hashlib
from collections.abc import Mapping

from schemas.text_contract import words
from training.ranking.measure import JudgedCollection, Measured

_COMPARED = "collection_ndcg@10"


def examples(
    collection: JudgedCollection,
    systems: Mapping[str, Measured],
    *,
    ours: str,
    baseline: str,
    num_examples: int = 10,
    num_titles: int = 10,
    relevant_grade: int = 1,
    seed: int = 0,
) -> list[dict]:
    """Up to `num_examples` queries with the best titles of both systems over the full collection, and their
    grades.

    Four in ten gained most in NDCG@10 over the collection, three in ten lost most, three in ten are drawn
    from the queries that share no word with any relevant title (a keyed draw, so not the flattering ones);
    the rest is drawn. `why` says which.
    """
    gained_Q = systems[ours].per_query[_COMPARED] - systems[baseline].per_query[_COMPARED]
    difference = dict(zip(collection.qrels, gained_Q.tolist(), strict=True))
    drawn = sorted(collection.searchable, key=lambda query_id: _draw(query_id, seed))
    unshared = [query_id for query_id in drawn if _shares_no_word(collection, query_id, relevant_grade)]
    by_gain = sorted(drawn, key=lambda query_id: -difference[query_id])
    wishes = [
        ("gain", [q for q in by_gain if difference[q] > 0], round(0.4 * num_examples)),
        ("loss", [q for q in reversed(by_gain) if difference[q] < 0], round(0.3 * num_examples)),
        ("no shared word", unshared, round(0.3 * num_examples)),
        ("drawn", drawn, num_examples),
    ]
    chosen: dict[str, str] = {}
    for why, candidates, wanted in wishes:
        fresh = [query_id for query_id in candidates if query_id not in chosen]
        chosen |= dict.fromkeys(fresh[: min(wanted, num_examples - len(chosen))], why)
    row_of_query = {query_id: row for row, query_id in enumerate(collection.qrels)}
    return [
        {
            "query_id": query_id,
            "query": collection.queries[query_id],
            "why": why,
            "measures": {
                name: {m: round(float(v[row_of_query[query_id]]), 4) for m, v in systems[name].per_query.items()}
                for name in (ours, baseline)
            },
            "rankings": {name: _ranking(collection, systems[name], query_id, num_titles) for name in (ours, baseline)},
        }
        for query_id, why in chosen.items()
    ]


def _ranking(collection: JudgedCollection, system: Measured, query_id: str, num_titles: int) -> list[dict]:
    results = list(system.retrieved[query_id].items())[:num_titles]
    return [
        {
            "rank": rank,
            "id": document_id,
            "title": collection.titles[collection.row_of[document_id]],
            "score": round(score, 4),
            "grade": collection.qrels[query_id].get(document_id),  # None: not judged
        }
        for rank, (document_id, score) in enumerate(results, start=1)
    ]


def _shares_no_word(collection: JudgedCollection, query_id: str, relevant_grade: int) -> bool:
    relevant = [d for d, grade in collection.qrels[query_id].items() if grade >= relevant_grade]
    titles = [collection.titles[collection.row_of[d]] for d in relevant if d in collection.row_of]
    in_query = set(words(collection.queries[query_id]))
    return bool(titles) and not any(in_query.intersection(words(title)) for title in titles)


def _draw(query_id: str, seed: int) -> bytes:
    key = seed.to_bytes(8, "big", signed=True)
    return hashlib.blake2b(query_id.encode(), digest_size=8, key=key, person=b"examples").digest()
