"""Documents: their published titles, the pool that negatives are drawn from, and the join of exposures by id.

Titles come from the documents file, which is public, and not from the log: the k-gate does not apply to them, neither
in pairs nor in the pool.

The pool consists of the `pool_size` documents with the smallest keyed hash of their id, one document per distinct title
(the one with the smallest hash). The key is fixed: the pool depends on the documents alone, not on days, seed or salt,
and a new document leaves the order of the others unchanged (docs/model.md section 6).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clicktower.beam_jobs.compiled.log_library import keyed_hashes
from clicktower.beam_jobs.sources.read_lines import Unit, plan_reading, read_blocks
from clicktower.schemas import storage
from clicktower.schemas.documents import (
    DocumentsBlock,
    code_of_form,
    document_blocks,
    parse_documents,
    require_documents,
)
from clicktower.schemas.search_log import COUNTS
from clicktower.schemas.text_contract import normalise_column

# A document with a title. `title`: normalised. `hash`: determines its place in the pool.
HASHED = pa.schema({"document_id": pa.string(), "title": pa.string(), "hash": pa.uint64()})

# As HASHED, with `first_hash`, the hash of the first document with its title, and `is_first`, whether it is that one.
GROUPED = pa.schema([*HASHED, ("first_hash", pa.uint64()), ("is_first", pa.bool_())])

# A document for the join. `pool_row`: the row of its title in the pool, -1 if it is not there; a title is there once,
# so excluding this row excludes by document id and by title at the same time.
TITLED = pa.schema({"document_id": pa.string(), "title": pa.string(), "pool_row": pa.int32()})

# The counts by query and document, all positions together.
_COUNT_COLUMNS = [(name, pa.int64()) for name in COUNTS]
SHOWN = pa.schema([("query", pa.string()), ("document_id", pa.string()), *_COUNT_COLUMNS])

# A document whose title a bucket of queries requests. There is one row per bucket, however often the document was
# shown: a document in every third result has no more rows than there are buckets.
WANTED = pa.schema({"document_id": pa.string(), "bucket": pa.int64(), "clicked": pa.bool_()})

# The answer. A title is null if the document is unknown and "" if it is known but was not clicked in that bucket (an
# impression needs no title, and titles are most of the exchanged bytes).
ANSWERED = pa.schema({"bucket": pa.int64(), "document_id": pa.string(), "title": pa.string(), "pool_row": pa.int32()})

SHOWN_TITLED = pa.schema([("query", pa.string()), ("title", pa.string()), ("pool_row", pa.int32()), *_COUNT_COLUMNS])


# The pool is cut off by counting documents in this many equal ranges of their hashes.
HASH_RANGES = 4096
_RANGE_SHIFT = np.uint64(64 - 12)


def hashed_documents(documents: pa.Table) -> pa.Table:
    """HASHED: the documents (documents.DOCUMENT, a title may be null) whose title has a word."""
    titles = normalise_column(documents["title"].fill_null(""))
    table = pa.table({"document_id": documents["id"], "title": titles})
    table = table.filter(pc.not_equal(table["title"], ""))
    hashes = keyed_hashes(table["document_id"].combine_chunks(), key=b"clicktower", person=b"pool")
    return table.append_column("hash", pa.array(hashes)).combine_chunks().cast(HASHED)


def group_by_title(hashed: pa.Table) -> pa.Table:
    """GROUPED, from all HASHED rows of some titles."""
    in_order = hashed.sort_by([("hash", "ascending"), ("document_id", "ascending")])
    titles = in_order["title"].combine_chunks().dictionary_encode().indices.to_numpy()
    _, first_row = np.unique(titles, return_index=True)  # codes count titles in order of first appearance
    is_first = np.zeros(len(titles), bool)
    is_first[first_row] = True
    first_hash = in_order["hash"].to_numpy()[first_row][titles]
    return pa.table([*in_order.columns, pa.array(first_hash), pa.array(is_first)], schema=GROUPED)


def count_hash_ranges(grouped: pa.Table) -> np.ndarray:
    """How many titles begin in each range of hashes, int64 [HASH_RANGES]; the counts of several tables add up."""
    return np.bincount(_hash_range(grouped["hash"].filter(grouped["is_first"])), minlength=HASH_RANGES)


def pool_candidates(grouped: pa.Table, num_in_range: np.ndarray, pool_size: int) -> pa.Table:
    """HASHED: the first document of each title that may be in the pool: the whole pool and at most one more range.

    `num_in_range`: the sum of `count_hash_ranges` over all documents.
    """
    last_range = int(np.searchsorted(np.cumsum(num_in_range), pool_size))
    first = grouped.filter(grouped["is_first"]).select(HASHED.names)
    return first.filter(pa.array(_hash_range(first["hash"]) <= last_range))


def pool_of(candidates: pa.Table, pool_size: int) -> pa.Table:
    """HASHED: the pool in order, from all its candidates."""
    return candidates.sort_by([("hash", "ascending"), ("document_id", "ascending")]).slice(0, pool_size)


def find_pool_rows(grouped: pa.Table, pool: pa.Table) -> pa.Table:
    """TITLED: each document with the row of its title in the pool."""
    first_hashes, titles = grouped["first_hash"].to_numpy(), grouped["title"]
    hashes, pool_titles = pool["hash"].to_numpy(), pool["title"]
    row = np.searchsorted(hashes, first_hashes)
    pool_rows = np.full(len(first_hashes), -1, np.int32)
    open_ = np.flatnonzero(row < len(hashes))
    while len(open_):  # more than once only if two ids have one 64-bit hash
        open_ = open_[hashes[row[open_]] == first_hashes[open_]]
        same = pc.equal(titles.take(open_), pool_titles.take(row[open_])).to_numpy()
        pool_rows[open_[same]] = row[open_[same]]
        row[open_] += 1
        open_ = open_[~same & (row[open_] < len(hashes))]
    return pa.table([grouped["document_id"], titles, pa.array(pool_rows)], schema=TITLED)


def sum_positions(exposures: pa.Table) -> pa.Table:
    """SHOWN: exposures (search_log.EXPOSURES) added up by query and document."""
    sums = exposures.group_by(["query", "document_id"]).aggregate([(name, "sum") for name in COUNTS])
    return pa.table(sums.columns, schema=SHOWN)


def wanted_titles(shown: pa.Table, bucket_of_row: np.ndarray) -> pa.Table:
    """WANTED: the distinct documents of each bucket of queries. `bucket_of_row`: int64, the bucket of each SHOWN row's
    query.
    """
    rows = pa.table(
        {
            "document_id": shown["document_id"],
            "bucket": pa.array(bucket_of_row),
            "clicked": pc.greater(shown["weight"], 0),
        }
    )
    return _any_clicked(rows).cast(WANTED)


def answer_titles(requests: pa.Table, titled: pa.Table) -> tuple[pa.Table, int, int]:
    """ANSWERED, the number of distinct clicked documents, and how many of them have a title.

    Both tables hold all rows of their documents: the join is per document id.
    """
    requests = _any_clicked(requests)
    at = pc.index_in(requests["document_id"], value_set=titled["document_id"])
    title = pc.if_else(requests["clicked"], titled["title"].take(at), pa.scalar(""))
    title = pc.if_else(pc.is_valid(at), title, pa.scalar(None, pa.string()))
    pool_row = pc.fill_null(titled["pool_row"].take(at), -1)
    answered = pa.table([requests["bucket"], requests["document_id"], title, pool_row], schema=ANSWERED)
    clicked_ids = pc.unique(requests["document_id"].filter(requests["clicked"]))
    num_titled = pc.sum(pc.is_in(clicked_ids, value_set=titled["document_id"])).as_py() or 0
    return answered, len(clicked_ids), num_titled


def title_rows(shown: pa.Table, answered: pa.Table) -> pa.Table:
    """SHOWN_TITLED, from the rows of a bucket of queries and the titles it requested."""
    at = pc.index_in(shown["document_id"], value_set=answered["document_id"])
    columns = [
        shown["query"],
        answered["title"].take(at),
        pc.fill_null(answered["pool_row"].take(at), -1),
        *(shown[name] for name in COUNTS),
    ]
    return pa.table(columns, schema=SHOWN_TITLED)


def _any_clicked(rows: pa.Table) -> pa.Table:
    """Rows of WANTED, one for each document and bucket."""
    return rows.group_by(["document_id", "bucket"]).aggregate([("clicked", "any")]).rename_columns(WANTED.names)


def _hash_range(hashes: pa.ChunkedArray) -> np.ndarray:
    return (hashes.to_numpy() >> _RANGE_SHIFT).astype(np.int64)


# The parts of a documents file that workers read: byte ranges of lines, a whole compressed file or CSV, row groups of
# Parquet.


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentsPart:
    """What one worker reads at a time: a unit of lines, a row group of a Parquet file, or all of a CSV file."""

    uri: str
    form: str  # one of documents.FORMS
    lines: Unit | None = None
    row_group: int = -1


def plan_documents(uri: str) -> list[DocumentsPart]:
    """The parts of a documents file; planning reads at most its footer. Raises UsageError and StageError."""
    form = require_documents(uri)
    if form == ".csv":
        return [DocumentsPart(uri=uri, form=form)]
    if form != ".parquet":
        return [DocumentsPart(uri=uri, form=form, lines=unit) for unit in plan_reading([uri]).units]
    with storage.open_read(uri) as file:
        num_row_groups = code_of_form("open_parquet")(uri, file).num_row_groups
    return [DocumentsPart(uri=uri, form=form, row_group=number) for number in range(num_row_groups)]


def read_documents_part(part: DocumentsPart) -> Iterator[DocumentsBlock]:
    """The documents of one part, as `read_documents` has them. Raises StageError if the bytes have another format."""
    if part.lines is not None:
        for block in read_blocks(part.lines):
            yield parse_documents(part.uri, part.form, block.data, block.offset)
    elif part.form == ".csv":
        yield from document_blocks(part.uri)
    else:
        with storage.open_read(part.uri) as file:
            rows = code_of_form("open_parquet")(part.uri, file)
            yield from code_of_form("read_row_group")(part.uri, rows, part.row_group)
