"""Documents: their published titles, the pool that negatives are drawn from, and the join of exposures by id.

Titles come from the documents file, which is published anyway, and not from the log: the k-gate does not concern
them, neither in pairs nor in the pool.
"""

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.words import normalise

# A document as the join needs it. `title`: normalised. `pool_row`: where the pool holds this title, -1 where it does
# not; it holds a title once, so that excluding by this row excludes by document id and by title at the same time.
TITLED = pa.schema(
    [
        pa.field("document_id", pa.string(), nullable=False),
        pa.field("title", pa.string(), nullable=False),
        pa.field("pool_row", pa.int32(), nullable=False),
    ]
)

# What was shown and clicked, by query and document, all positions together.
SHOWN = pa.schema(
    [
        pa.field("query", pa.string(), nullable=False),
        pa.field("document_id", pa.string(), nullable=False),
        pa.field("impressions", pa.int64(), nullable=False),
        pa.field("clicks", pa.int64(), nullable=False),
    ]
)

# The same with the title, which is null where the document is unknown and "" where it is known but was not clicked
# (an impression needs no title, and titles are most of what is exchanged).
SHOWN_TITLED = pa.schema(
    [
        pa.field("query", pa.string(), nullable=False),
        pa.field("title", pa.string()),
        pa.field("pool_row", pa.int32(), nullable=False),
        pa.field("impressions", pa.int64(), nullable=False),
        pa.field("clicks", pa.int64(), nullable=False),
    ]
)


def titled_documents(documents: pa.Table, pool_size: int) -> pa.Table:
    """TITLED, pool documents first, in pool order: the first `max(pool_row) + 1` rows are the pool.

    `documents`: schemas.documents.DOCUMENT. The pool is the at most `pool_size` documents with the smallest keyed
    hash of their id, one document for each distinct title (the one with the smallest hash). The key is fixed: the
    pool depends on the documents alone, not on days, seed or salt, and a document that joins the catalogue leaves
    the order of the others as it was (docs/model.md section 6).
    """
    ids = documents["id"].combine_chunks()
    hashes = np.fromiter((_pool_hash(i) for i in ids.to_pylist()), np.uint64, len(ids))
    by_hash = documents.take(np.lexsort((ids.to_numpy(zero_copy_only=False), hashes)))
    titles = pa.array([normalise(title) for title in by_hash["title"].to_pylist()], pa.string()).dictionary_encode()
    # The codes of dictionary_encode count distinct titles in order of first appearance: the row of the pool.
    codes = titles.indices.to_numpy()
    first = np.zeros(len(codes), bool)
    first[np.unique(codes, return_index=True)[1]] = True
    in_pool = codes < pool_size
    table = pa.table(
        [by_hash["id"], titles.cast(pa.string()), pa.array(np.where(in_pool, codes, -1), pa.int32())], schema=TITLED
    )
    return table.take(np.concatenate([np.flatnonzero(first & in_pool), np.flatnonzero(~(first & in_pool))]))


def pool_of(titled: pa.Table) -> pa.Table:
    """The rows of `titled_documents` that are the pool, in its order: row i has pool_row i."""
    num_pool = pc.max(titled["pool_row"]).as_py() + 1 if len(titled) else 0
    return titled.slice(0, num_pool)


def sum_positions(exposures: pa.Table) -> pa.Table:
    """SHOWN: exposures (schemas.day.EXPOSURES) added up by query and document."""
    sums = exposures.group_by(["query", "document_id"]).aggregate([("impressions", "sum"), ("clicks", "sum")])
    columns = [sums[name] for name in ("query", "document_id", "impressions_sum", "clicks_sum")]
    return pa.table(columns, schema=SHOWN)


def join_titles(shown: pa.Table, titled: pa.Table) -> tuple[pa.Table, int, int]:
    """SHOWN_TITLED, how many distinct documents were clicked, and how many of those have a title.

    Both tables hold all rows of their documents: the join is per document id.
    """
    at = pc.index_in(shown["document_id"], value_set=titled["document_id"])
    clicked = pc.greater(shown["clicks"], 0)
    title = pc.if_else(clicked, titled["title"].take(at), pa.scalar(""))
    title = pc.if_else(pc.is_valid(at), title, pa.scalar(None, pa.string()))
    pool_row = pc.fill_null(titled["pool_row"].take(at), -1)
    joined = pa.table([shown["query"], title, pool_row, shown["impressions"], shown["clicks"]], schema=SHOWN_TITLED)
    clicked_ids = pc.unique(shown["document_id"].filter(clicked))
    num_titled = pc.sum(pc.is_in(clicked_ids, value_set=titled["document_id"])).as_py() or 0
    return joined, len(clicked_ids), num_titled


def _pool_hash(document_id: str) -> int:
    return int.from_bytes(
        hashlib.blake2b(document_id.encode(), digest_size=8, key=b"clicktower", person=b"pool").digest(), "little"
    )
