"""Queries with their clicks -> pairs behind the privacy gate, and a fate for every log line -> shards."""

from collections.abc import Iterable, Set
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import AfterValidator, Field

from clicktower.beam_jobs.compiled.log_library import keyed_hashes, row_digest
from clicktower.beam_jobs.engine.arrow_files import BATCH_ROWS, write_tables
from clicktower.beam_jobs.engine.beam_stage import FolderMade, Tally
from clicktower.schemas.content_filters import CONTENT_FATES, content_fates
from clicktower.schemas.search_log import CLICK_WEIGHT, COUNTS, PEOPLE_CAP
from clicktower.schemas.shard import (
    EXCLUSIONS,
    PAIRS,
    POOL,
    TEXTS,
    WORDS,
    ListedExclusions,
    LogicalDigest,
    draw,
    pair_keys,
)
from clicktower.schemas.text_contract import comparison_forms, trigram_ids, words_of_column

# A pair is unique by query and title: if a query has clicks on two documents with one title, they are one pair with the
# sum of the clicks. `weight`: what its clicks and conversions count, in thousandths of a click. `excluded`: pool rows
# of every document that any person clicked for the query, before the gate and the split; only the first pair of a query
# has them, the others have null.
CLICK_PAIRS = pa.schema(
    {
        "query": pa.string(),
        "title": pa.string(),
        "clicks": pa.int64(),
        "weight": pa.int64(),
        "dev": pa.bool_(),
        "excluded": pa.list_(pa.int32()),
    }
)

MAX_SALT_BYTES = 64  # BLAKE2b's longest key


def _as_key(salt: str) -> str:
    if len(salt.encode()) > MAX_SALT_BYTES:
        raise ValueError(f"it must have at most {MAX_SALT_BYTES} bytes")
    return salt


# Settings that every build has.
Salt = Annotated[str, AfterValidator(_as_key)]
HeldOutShare = Annotated[float, Field(ge=0, le=0.9)]
TableRows = Annotated[int, Field(ge=1, lt=2**32)]
RowsPerShard = Annotated[int, Field(ge=1, le=2**24)]

# The result reports other values of k beside the chosen one, since on a small log the gate decides much. 0 means no
# gate at all.
REPORTED_K = (0, 1, 2, 3, 5, 10, 20)
REPORTED_PAIR_K = (1, 2, 3, 5)  # 1 is no minimum


def click_pairs(
    queries: pa.Table,
    shown: pa.Table,
    judged: Set[str],
    *,
    k: int,
    split_salt: str,
    dev_share: float,
    adult_terms: tuple[str, ...] | None = None,
    pair_k: int = 1,
    pair_people: pa.Table | None = None,
) -> tuple[pa.Table, Tally]:
    """CLICK_PAIRS of the queries that at least k people issued, and the tally of all their lines.

    With a `pair_k` above 1 only pairs that at least as many people clicked. It needs `pair_people` (PAIR_PEOPLE, all
    rows of these queries), with which the tally also counts what other values of it would leave.

    `queries`: search_log.QUERIES; `shown`: SHOWN_TITLED; both hold all rows of each of their queries, from any number
    of days. `judged`: comparison forms of the queries that are reserved for evaluation. The fate of a line depends
    first on its query (content, then judged, then below k), then on its document (unknown) and then on its pair (below
    pair_k). `adult_terms` replace the built-in list.
    """
    people = count_people(queries)
    query_of_row = pc.index_in(shown["query"], value_set=people["query"]).combine_chunks()
    if query_of_row.null_count:
        raise AssertionError("a day holds exposures of a query that it does not hold")
    query_of_row = query_of_row.to_numpy()
    num_people = people["num_people"].to_numpy()
    content = np.array(content_fates(people["query"].to_pylist(), adult_terms), object)
    forms = comparison_forms(people["query"])
    is_judged = pc.is_in(forms, value_set=pa.array(sorted(judged), pa.string())).to_numpy(zero_copy_only=False)
    is_judged &= content == None  # noqa: E711 (element-wise)
    is_set_aside = is_judged | (content != None)  # noqa: E711
    is_published = ~is_set_aside & (num_people >= k)
    is_dev = held_out(forms, salt=split_salt, share=dev_share)

    searches = people["searches"].to_numpy()
    impressions, clicks, conversions, weight = (shown[name].to_numpy() for name in COUNTS)
    lines = impressions + clicks + conversions
    is_titled = pc.is_valid(shown["title"]).to_numpy()
    fates = {}
    of_queries = {fate: content == fate for fate in CONTENT_FATES}
    of_queries |= {"query_judged": is_judged, "query_below_k": ~is_set_aside & ~is_published}
    for fate, of_query in of_queries.items():
        of_row = of_query[query_of_row]
        fates[fate] = searches[of_query].sum() + lines[of_row].sum()
    published, dev = is_published[query_of_row], is_dev[query_of_row]
    fates["document_unknown"] = lines[published & ~is_titled].sum()
    fates["search"] = searches[is_published].sum()
    fates["impression"] = impressions[published & is_titled].sum()

    usable = is_titled & (weight > 0) & ~is_set_aside[query_of_row]
    titles = shown["title"].filter(pa.array(usable))
    clicked = pa.table(
        {"at": query_of_row[usable], "title": titles, "clicks": clicks[usable], "weight": weight[usable]}
    )
    pairs = clicked.group_by(["at", "title"]).aggregate([("clicks", "sum"), ("weight", "sum")])
    at, pair_clicks = pairs["at"].to_numpy(), pairs["clicks_sum"].to_numpy()

    counts = {}
    is_enough, too_few = np.ones(len(at), bool), np.zeros(len(shown), bool)
    if pair_people is not None:
        from clicktower.beam_jobs.ingest.pair_people import count_clickers, pair_of_rows

        num_clickers = count_clickers(pairs, people["query"], pair_people)
        is_enough = (pair_k == 1) | (num_clickers >= pair_k)
        too_few[usable] = ~is_enough[pair_of_rows(clicked, pairs)]
        too_few &= published
        for other in {*REPORTED_PAIR_K, pair_k}:
            passed = is_published[at] & ((other == 1) | (num_clickers >= other))
            counts[f"clicks_at_pair_{other}"] = pair_clicks[passed].sum()
            counts[f"pairs_at_pair_{other}"] = passed.sum()
    elif pair_k > 1:
        raise AssertionError("pair_k without the people of each pair")
    fates["pair_below_k"] = (clicks + conversions)[too_few].sum()
    for split, in_split in (("train", ~dev), ("dev", dev)):
        of_pairs = published & is_titled & ~too_few & in_split
        fates[f"click_{split}"] = clicks[of_pairs].sum()
        fates[f"conversion_{split}"] = conversions[of_pairs].sum()

    for other_k in {*REPORTED_K, k}:
        passed = num_people[at] >= other_k
        counts[f"queries_at_{other_k}"] = (~is_set_aside & (num_people >= other_k)).sum()
        counts[f"clicks_at_{other_k}"] = pair_clicks[passed].sum()
        counts[f"pairs_at_{other_k}"] = passed.sum()

    passed = is_published[at] & is_enough
    at = at[passed]
    is_repeated = np.ones(len(at), bool)  # a query has its exclusions once
    is_repeated[np.unique(at, return_index=True)[1]] = False
    clicked_rows = (weight > 0) & ~too_few  # a list of exclusions would tell of the pairs that are kept back
    excluded = _excluded_rows(query_of_row[clicked_rows], shown["pool_row"].to_numpy()[clicked_rows], len(people))
    table = pa.table(
        [
            people["query"].take(pa.array(at)),
            pairs["title"].filter(pa.array(passed)),
            pair_clicks[passed],
            pairs["weight_sum"].filter(pa.array(passed)),
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
    """The distinct pool rows of each query, ascending."""
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
    """PEOPLE_COUNTED: one row per query of search_log.QUERIES rows of any number of days, in order of appearance.

    The input must hold all rows of a query. A person who appears on several days counts once, and a line without a
    client id counts for nobody.
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


# The split of queries into training and held-out ones: by a keyed hash of the query's comparison form alone.
#
# The key is a permanent salt and not the run's seed: a sweep over seeds would otherwise move the held-out queries into
# training, and adding a day of log would too.


def held_out(queries: Iterable[str], *, salt: str, share: float) -> np.ndarray:
    """Whether each query is held out for dev, bool [queries]: about `share` of all queries. `queries`: their comparison
    forms, so that all spellings of a question are on one side.

    A larger share holds out the same queries and more. `salt`: at most 64 bytes; `share`: below 1.
    """
    texts, limit = pa.array(queries, pa.string()), np.uint64(share * 2**64)
    return keyed_hashes(texts, key=salt.encode(), person=b"split") < limit


# Pairs -> the files of a shard (schemas.shard), and the digest of its logical rows.


def write_shard(
    pairs: pa.Table, pool: pa.Table, folder: str, name: str, *, num_negatives: int, seed: int, table_rows: int
) -> FolderMade:
    """Write the words, texts, pairs and exclusions of one shard below `folder`, in the order of the pairs' keys.

    `pairs`: CLICK_PAIRS, all pairs of their queries, all in one split. `pool`: TITLED, in pool order. The files depend
    on these rows but not on their order. Raises StageError if the pool is too small.
    """
    keys = pair_keys(pairs["query"].to_pylist(), pairs["title"].to_pylist())
    order = np.lexsort((pairs["title"].to_numpy(), pairs["query"].to_numpy(), keys))
    pairs, keys = pairs.take(order).combine_chunks(), keys[order]
    exclusion, exclusions = _exclusions_of_queries(pairs)
    listed = ListedExclusions.of(exclusions, len(pool))
    negatives = draw(keys, exclusion, listed, n=num_negatives, seed=seed)
    negative_titles = pool["title"].take(pa.array(negatives.ravel()))

    every_text = pa.chunked_array(
        [chunk for column in (pairs["query"], pairs["title"], negative_titles) for chunk in column.chunks], pa.string()
    )
    encoded = every_text.combine_chunks().dictionary_encode()
    queries, clicked, unclicked = np.split(encoded.indices.to_numpy(), [len(pairs), 2 * len(pairs)])
    table = pa.table(
        [
            queries,
            clicked,
            _lists(np.arange(len(pairs) + 1) * num_negatives, pa.array(unclicked, pa.int32())),
            pairs["clicks"],
            pa.array(pairs["weight"].to_numpy() / CLICK_WEIGHT, pa.float32()),
            1.0 / listed.num_allowed(exclusion),  # the pool is uniform, and a refused row is drawn again
            pa.array(exclusion, pa.int32()),
        ],
        schema=PAIRS,
    )
    words, texts = index_words(encoded.dictionary, table_rows)
    excluded = pa.table([exclusions], schema=EXCLUSIONS)
    return FolderMade(
        folder=folder,
        name=name,
        files=write_tables({"words": words, "texts": texts, "pairs": table, "exclusions": excluded}, folder),
        counts={
            "pairs": len(table),
            "queries": len(np.unique(queries)),
            "clicks": pc.sum(table["clicks"]).as_py() or 0,
            "texts": len(texts),
            "words": len(words),
        },
        logical_digest=_logical_digest(name.partition("-")[0], table, texts, exclusions, pool),
    )


def write_pool(pool: pa.Table, folder: str, name: str, *, table_rows: int) -> FolderMade:
    """Write the words, texts and documents of the pool below `folder`. `pool`: TITLED, in pool order.

    The pool is uniform: each document has the probability 1 / (number of documents).
    """
    words, texts = index_words(pool["title"], table_rows)  # titles are distinct: text i is pool row i
    rows = np.arange(len(pool))
    table = pa.table([pool["document_id"], rows, np.full(len(pool), 1 / max(1, len(pool)))], schema=POOL)
    pool_rows = joined_fields("pool", pa.array(rows).cast(pa.string()), pool["title"], pool["document_id"])
    return FolderMade(
        folder=folder,
        name=name,
        files=write_tables({"words": words, "texts": texts, "pool": table}, folder),
        counts={"documents": len(pool), "texts": len(texts), "words": len(words)},
        logical_digest=row_digest(pool_rows),
    )


def index_words(texts: pa.Array | pa.ChunkedArray, table_rows: int) -> tuple[pa.Table, pa.Table]:
    """WORDS and TEXTS of distinct normalised texts, each in order of first appearance."""
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    word_offsets, encoded = words_of_column(texts)
    trigram_offsets, ids = trigram_ids(encoded.dictionary, table_rows)
    words = pa.table([encoded.dictionary, _lists(trigram_offsets, pa.array(ids, pa.uint32()))], schema=WORDS)
    return words, pa.table([texts, _lists(word_offsets, encoded.indices)], schema=TEXTS)


def _lists(offsets: np.ndarray, values: pa.Array) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)


def _exclusions_of_queries(pairs: pa.Table) -> tuple[np.ndarray, pa.ListArray]:
    """The index of each pair's exclusions, int32 [pairs], and the exclusions, in order of first appearance."""
    query = pairs["query"].combine_chunks().dictionary_encode()
    of_pair = query.indices.to_numpy()
    excluded = pairs["excluded"].combine_chunks()
    holders = np.flatnonzero(excluded.is_valid().to_numpy(zero_copy_only=False))
    holder_of_query = np.full(len(query.dictionary), -1)
    holder_of_query[of_pair[holders]] = holders
    if len(holders) != len(holder_of_query) or (holder_of_query < 0).any():
        raise AssertionError("one pair of each query holds its exclusions")
    return of_pair, excluded.take(pa.array(holder_of_query))


def _logical_digest(split: str, pairs: pa.Table, texts: pa.Table, exclusions: pa.ListArray, pool: pa.Table) -> str:
    digest = LogicalDigest()
    for begin in range(0, len(pairs), BATCH_ROWS):  # a pair's texts are long, so not all pairs at once
        digest.merge(row_digest(_logical_pairs(split, pairs.slice(begin, BATCH_ROWS), texts)))
    digest.merge(row_digest(_logical_exclusions(split, pairs, texts, exclusions, pool)))
    return digest.hexdigest()


def _logical_pairs(split: str, pairs: pa.Table, texts: pa.Table) -> pa.Array:
    """Each pair as its texts, so that the digest does not depend on indices, files or order."""
    text = texts["text"].combine_chunks()
    num_negatives = len(pairs["negatives"][0])
    negatives = pairs["negatives"].combine_chunks().flatten().to_numpy().reshape(len(pairs), num_negatives)
    weights = pairs["weight"].combine_chunks().dictionary_encode()
    return joined_fields(
        split,
        text.take(pairs["query"].combine_chunks()),
        text.take(pairs["clicked"].combine_chunks()),
        pairs["clicks"].cast(pa.string()),
        pa.array(map(str, weights.dictionary.to_pylist()), pa.string()).take(weights.indices),
        *(text.take(pa.array(column)) for column in negatives.T),
    )


def _logical_exclusions(
    split: str, pairs: pa.Table, texts: pa.Table, exclusions: pa.ListArray, pool: pa.Table
) -> pa.Array:
    """Each query with its excluded titles, in code point order."""
    query = np.zeros(len(exclusions), np.int32)
    query[pairs["exclusion"].to_numpy()] = pairs["query"].to_numpy()
    titles = pool["title"].take(exclusions.flatten()).combine_chunks()
    lengths = exclusions.value_lengths().to_numpy()
    rows = pa.table({"of": np.repeat(np.arange(len(exclusions)), lengths), "title": titles})
    in_order = rows.sort_by([("of", "ascending"), ("title", "ascending")])["title"].combine_chunks()
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    joined = pc.if_else(pa.array(lengths > 0), pc.binary_join(_lists(offsets, in_order), "\n"), None)
    return joined_fields(split, "excluded", texts["text"].take(pa.array(query)), joined)


def joined_fields(*fields: str | pa.Array | pa.ChunkedArray) -> pa.Array:
    """Each row as one text for a digest; a null adds no field. No normalised text contains a line end, and none is
    empty.
    """
    return pc.binary_join_element_wise(*fields, "\n", null_handling="skip")
