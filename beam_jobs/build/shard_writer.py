"""Pairs -> the files of a shard (schemas.shard), and the digest of its logical rows."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.compiled.log_library import row_digest
from beam_jobs.engine.arrow_files import BATCH_ROWS, write_tables
from beam_jobs.engine.beam_stage import FolderMade
from schemas.negatives import draw, pair_keys, sampling_probability
from schemas.shard import EXCLUSIONS, PAIRS, POOL, TEXTS, WORDS, LogicalDigest
from schemas.text_contract import trigram_ids, words_of_column


def write_shard(
    pairs: pa.Table, pool: pa.Table, folder: str, name: str, *, num_negatives: int, seed: int, table_rows: int
) -> FolderMade:
    """Write the words, texts, pairs and exclusions of one shard below `folder`, in the order of the pairs' keys.

    `pairs`: click_pairs.CLICK_PAIRS, all pairs of their queries, all of one split. `pool`: TITLED, in pool
    order. What is written depends on these rows alone, not on their order. Raises StageError where the pool is too
    small to draw from.
    """
    keys = pair_keys(pairs["query"].to_pylist(), pairs["title"].to_pylist())
    order = np.lexsort((pairs["title"].to_numpy(), pairs["query"].to_numpy(), keys))
    pairs, keys = pairs.take(order).combine_chunks(), keys[order]
    exclusion, exclusions = _exclusions_of_queries(pairs)
    negatives = draw(keys, exclusion, exclusions, pool_size=len(pool), n=num_negatives, seed=seed)
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
            pa.array(np.ones(len(pairs)), pa.float32()),
            sampling_probability(exclusion, exclusions, len(pool)),
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
    """For each pair the index of its query's exclusions, int32 [pairs], and these, in order of first appearance."""
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
    """Each pair as the texts it stands for, so that no index, file or order shows in the digest."""
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
    """Each query with the titles that are excluded for it, in the order of their code points."""
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
    """Each row as one text for a digest; null is no field. No normalised text holds a line end, and none is empty."""
    return pc.binary_join_element_wise(*fields, "\n", null_handling="skip")
