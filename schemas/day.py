"""The private daily aggregate of one ingested log, without any text of a line and without raw client ids.

Private: it contains queries that a single person may have typed, and keyed person hashes. It never leaves the store;
only the output of `build` does, behind the k-gate. Days merge: rows of one query are added up, sets of people united.

Two Arrow IPC file sets, both split by hash bucket of the query, so that all rows of a query are in one bucket:

    queries-BBBBB.arrow     QUERIES: one row per normalised query
    exposures-BBBBB.arrow   EXPOSURES: one row per query, document and position

and `rejects-BBBBB.arrow` (log_row.REJECT), split by the place of the line.
"""

import pyarrow as pa

SCHEMA_VERSION = "1.0"
VERSION_KEY = b"clicktower.day"

# A day keeps at most this many distinct person hashes of a query (the smallest ones): enough to answer "at least k?"
# exactly for every k up to it, after any merging of days, in constant size for the hottest query.
PEOPLE_CAP = 32

_METADATA = {VERSION_KEY: SCHEMA_VERSION.encode()}

# `people`: the smallest PEOPLE_CAP distinct keyed person hashes, ascending. `searches`: search lines.
QUERIES = pa.schema(
    [
        pa.field("query", pa.string(), nullable=False),
        pa.field("people", pa.list_(pa.uint64()), nullable=False),
        pa.field("searches", pa.int64(), nullable=False),
    ],
    metadata=_METADATA,
)

# `position` as in the log, -1 unknown. `impressions` and `clicks` are lines: each counts for the ledger.
# `dwell_ms`: the sum over clicks whose dwell is known, -1 where none is.
EXPOSURES = pa.schema(
    [
        pa.field("query", pa.string(), nullable=False),
        pa.field("document_id", pa.string(), nullable=False),
        pa.field("position", pa.int32(), nullable=False),
        pa.field("impressions", pa.int64(), nullable=False),
        pa.field("clicks", pa.int64(), nullable=False),
        pa.field("dwell_ms", pa.int64(), nullable=False),
    ],
    metadata=_METADATA,
)
