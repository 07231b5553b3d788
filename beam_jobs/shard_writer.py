"""Pairs -> the files of a shard (schemas.shard), and the digest of its logical rows."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.arrow_files import write_table
from schemas.negatives import draw, pair_keys, sampling_probability
from schemas.shard import EXCLUSIONS, PAIRS, POOL, TEXTS, WORDS, LogicalDigest
from schemas.text_columns import words_of_column
from schemas.trigrams import trigram_ids


@dataclass(frozen=True, kw_only=True, slots=True)
class FolderMade:
    """A folder that was written: what the catalogue says of it, and the digest of its logical rows."""

    folder: str  # where it was written, under a name of this attempt
    name: str  # the name it is to have, as `train-00000`
    counts: dict[str, int]
    logical_digest: str

    @property
    def split(self) -> str:
        return self.name.partition("-")[0]


def write_shard(
    pairs: pa.Table, pool: pa.Table, folder: str, name: str, *, num_negatives: int, seed: int, table_rows: int
) -> FolderMade:
    """Write the words, texts, pairs and exclusions of one shard below `folder`, in the order of the pairs' keys.

    `pairs`: beam_jobs.click_pairs.CLICK_PAIRS, all pairs of their queries, all of one split. `pool`: TITLED, in pool
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
    for name_of_table, content in (("words", words), ("texts", texts), ("pairs", table), ("exclusions", excluded)):
        write_table(content, folder, name_of_table)
    return FolderMade(
        folder=folder,
        name=name,
        counts={
            "pairs": len(table),
            "queries": len(np.unique(queries)),
            "clicks": pc.sum(table["clicks"]).as_py() or 0,
            "texts": len(texts),
            "words": len(words),
        },
        logical_digest=digest_of(_logical_rows(name.partition("-")[0], table, texts, exclusions, pool)),
    )


def write_pool(pool: pa.Table, folder: str, name: str, *, table_rows: int) -> FolderMade:
    """Write the words, texts and documents of the pool below `folder`. `pool`: TITLED, in pool order.

    The pool is uniform: each document has the probability 1 / (number of documents).
    """
    words, texts = index_words(pool["title"], table_rows)  # titles are distinct: text i is pool row i
    rows = np.arange(len(pool))
    table = pa.table([pool["document_id"], rows, np.full(len(pool), 1 / max(1, len(pool)))], schema=POOL)
    for name_of_table, content in (("words", words), ("texts", texts), ("pool", table)):
        write_table(content, folder, name_of_table)
    pool_rows = (
        digest_row("pool", str(row), title, document_id)
        for row, (title, document_id) in enumerate(
            zip(pool["title"].to_pylist(), pool["document_id"].to_pylist(), strict=True)
        )
    )
    return FolderMade(
        folder=folder,
        name=name,
        counts={"documents": len(pool), "texts": len(texts), "words": len(words)},
        logical_digest=digest_of(pool_rows),
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


def _logical_rows(
    split: str, pairs: pa.Table, texts: pa.Table, exclusions: pa.ListArray, pool: pa.Table
) -> Iterable[bytes]:
    """Each pair as the texts it stands for, so that no index, file or order shows in the digest; the exclusions."""
    text, title = texts["text"].to_pylist(), pool["title"].to_pylist()
    columns = ("query", "clicked", "clicks", "weight", "negatives")
    for query, clicked, clicks, weight, negatives in zip(*(pairs[name].to_pylist() for name in columns), strict=True):
        yield digest_row(split, text[query], text[clicked], str(clicks), str(weight), *(text[i] for i in negatives))
    query_of_exclusion = dict(zip(pairs["exclusion"].to_pylist(), pairs["query"].to_pylist(), strict=True))
    for exclusion, rows in enumerate(exclusions.to_pylist()):
        yield digest_row(split, "excluded", text[query_of_exclusion[exclusion]], *sorted(title[i] for i in rows))


def digest_row(*fields: str) -> bytes:
    """One row for a digest. No normalised text holds a line end, and none is empty."""
    return "\n".join(fields).encode()


def digest_of(rows: Iterable[bytes]) -> str:
    """The digest of some rows, in any order."""
    digest = LogicalDigest()
    digest.add(rows)
    return digest.hexdigest()
