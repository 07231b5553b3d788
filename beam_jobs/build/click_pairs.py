"""Queries with their clicks -> pairs behind the privacy gate, and a fate for every line they came from."""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.compiled.log_library import keyed_hashes
from beam_jobs.engine.beam_stage import Tally
from beam_jobs.ingest.content_filters import CONTENT_FATES, content_fates
from schemas.search_log import PEOPLE_CAP

# A pair is unique by query and title: two documents with one title clicked for a query are one pair, clicks added up.
# `excluded`: pool rows of every document that any person clicked for the query, before the gate and the split; in the
# first of the pairs of a query, null in the others.
CLICK_PAIRS = pa.schema(
    {
        "query": pa.string(),
        "title": pa.string(),
        "clicks": pa.int64(),
        "dev": pa.bool_(),
        "excluded": pa.list_(pa.int32()),
    }
)

# What is left at other values of k is reported beside the chosen one, since on a small log the gate decides much.
# 0 stands for no gate at all.
REPORTED_K = (0, 1, 2, 3, 5, 10, 20)


def click_pairs(
    queries: pa.Table,
    shown: pa.Table,
    judged: pa.Array,
    *,
    k: int,
    split_salt: str,
    dev_share: float,
    adult_terms: tuple[str, ...] | None = None,
) -> tuple[pa.Table, Tally]:
    """CLICK_PAIRS of the queries that at least k people issued, and the tally of all their lines.

    `queries`: day.QUERIES; `shown`: SHOWN_TITLED; both hold all rows of each of their queries, from any number
    of days. `judged`: normalised queries that are kept aside for evaluation. The fate of a line is decided by its
    query first (content, then judged, then below k) and then by its document (unknown). `adult_terms` stand in for
    the shipped list.
    """
    people = count_people(queries)
    query_of_row = pc.index_in(shown["query"], value_set=people["query"]).combine_chunks()
    if query_of_row.null_count:
        raise AssertionError("a day holds exposures of a query that it does not hold")
    query_of_row = query_of_row.to_numpy()
    num_people = people["num_people"].to_numpy()
    texts = people["query"].to_pylist()
    content = np.array(content_fates(texts, adult_terms), object)
    is_judged = pc.is_in(people["query"], value_set=judged).to_numpy() & (content == None)  # noqa: E711 (element-wise)
    is_set_aside = is_judged | (content != None)  # noqa: E711
    is_published = ~is_set_aside & (num_people >= k)
    is_dev = held_out(texts, salt=split_salt, share=dev_share)

    searches = people["searches"].to_numpy()
    impressions, clicks = shown["impressions"].to_numpy(), shown["clicks"].to_numpy()
    is_titled = pc.is_valid(shown["title"]).to_numpy()
    fates = {}
    of_queries = {fate: content == fate for fate in CONTENT_FATES}
    of_queries |= {"query_judged": is_judged, "query_below_k": ~is_set_aside & ~is_published}
    for fate, of_query in of_queries.items():
        of_row = of_query[query_of_row]
        fates[fate] = searches[of_query].sum() + impressions[of_row].sum() + clicks[of_row].sum()
    published, dev = is_published[query_of_row], is_dev[query_of_row]
    unknown = published & ~is_titled
    fates["document_unknown"] = impressions[unknown].sum() + clicks[unknown].sum()
    fates["search"] = searches[is_published].sum()
    fates["impression"] = impressions[published & is_titled].sum()
    fates["click_train"] = clicks[published & is_titled & ~dev].sum()
    fates["click_dev"] = clicks[published & is_titled & dev].sum()

    usable = is_titled & (clicks > 0) & ~is_set_aside[query_of_row]
    titles = shown["title"].filter(pa.array(usable))
    clicked = pa.table({"at": query_of_row[usable], "title": titles, "clicks": clicks[usable]})
    pairs = clicked.group_by(["at", "title"]).aggregate([("clicks", "sum")])
    at, pair_clicks = pairs["at"].to_numpy(), pairs["clicks_sum"].to_numpy()
    counts = {}
    for other_k in {*REPORTED_K, k}:
        passed = num_people[at] >= other_k
        counts[f"queries_at_{other_k}"] = (~is_set_aside & (num_people >= other_k)).sum()
        counts[f"clicks_at_{other_k}"] = pair_clicks[passed].sum()
        counts[f"pairs_at_{other_k}"] = passed.sum()

    passed = is_published[at]
    at = at[passed]
    is_repeated = np.ones(len(at), bool)  # a query holds what is excluded for it once
    is_repeated[np.unique(at, return_index=True)[1]] = False
    excluded = _excluded_rows(query_of_row[clicks > 0], shown["pool_row"].to_numpy()[clicks > 0], len(people))
    table = pa.table(
        [
            people["query"].take(pa.array(at)),
            pairs["title"].filter(pa.array(passed)),
            pair_clicks[passed],
            is_dev[at],
            excluded.take(pa.array(at, mask=is_repeated)),
        ],
        schema=CLICK_PAIRS,
    )
    return table, Tally(
        fates={fate: int(lines) for fate, lines in fates.items()},
        counts={name: int(count) for name, count in counts.items()},
    )


def _excluded_rows(query_of_row: np.ndarray, pool_row: np.ndarray, num_queries: int) -> pa.ListArray:
    """Of each query its distinct pool rows, ascending."""
    in_pool = pool_row >= 0
    distinct = np.unique(np.stack([query_of_row[in_pool], pool_row[in_pool]], axis=1), axis=0)
    offsets = np.searchsorted(distinct[:, 0], np.arange(num_queries + 1))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(distinct[:, 1], pa.int32()))


# The privacy gate: how many distinct people issued a query over all days of the window.
#
# A query's published form leaves the private aggregate only if at least k people issued it. A day keeps the smallest
# PEOPLE_CAP person hashes of a query; the smallest PEOPLE_CAP of a union are in the union of the smallest, so the count
# below is exact up to PEOPLE_CAP, however many people there were.


PEOPLE_COUNTED = pa.schema(
    {
        "query": pa.string(),
        "num_people": pa.int64(),  # PEOPLE_CAP stands for "at least as many"
        "searches": pa.int64(),
    }
)


def count_people(queries: pa.Table) -> pa.Table:
    """PEOPLE_COUNTED: one row per query of day.QUERIES rows of any number of days, in order of appearance.

    All rows of a query must be there. People in several days count once, and a line without a client id is nobody.
    """
    encoded = pc.dictionary_encode(queries["query"].combine_chunks())
    num_queries = len(encoded.dictionary)
    code_of_row = encoded.indices.to_numpy()
    people = queries["people"].combine_chunks()
    issued = pa.table(
        {"query": code_of_row[pc.list_parent_indices(people).to_numpy()], "person": pc.list_flatten(people)}
    )
    distinct = issued.group_by(["query", "person"]).aggregate([])
    num_people = np.bincount(distinct["query"].to_numpy(), minlength=num_queries)
    searches = np.zeros(num_queries, np.int64)
    np.add.at(searches, code_of_row, queries["searches"].to_numpy())
    return pa.table([encoded.dictionary, np.minimum(num_people, PEOPLE_CAP), searches], schema=PEOPLE_COUNTED)


# The split of queries into training and held-out ones: by a keyed hash of the query alone.
#
# The key is a permanent salt and not the run's seed: a sweep over seeds would otherwise move the held-out queries into
# training, and adding a day of log would too.


MAX_SALT_BYTES = 64  # BLAKE2b's longest key


def held_out(queries: Iterable[str], *, salt: str, share: float) -> np.ndarray:
    """Whether each normalised query is held out for dev, bool [queries]; about `share` of all queries are.

    A larger share holds out the same queries and more. `salt`: up to 64 bytes; `share`: below 1.
    """
    texts, limit = pa.array(queries, pa.string()), np.uint64(share * 2**64)
    return keyed_hashes(texts, key=salt.encode(), person=b"split") < limit
