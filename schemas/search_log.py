"""Tables of a search log: its lines as rows of one common form, and the private daily aggregate made from them.

A day has no text of a line and no raw client ids. It is private all the same: it contains queries that a single person
may have typed, and keyed person hashes. It never leaves the store; only the output of `build` does, behind the k-gate.
Days merge: rows of one query are added up, sets of people united.

Two Arrow IPC file sets, both split by hash bucket of the query, so that all rows of a query are in one bucket:

    queries-BBBBB.arrow     QUERIES: one row per normalised query
    exposures-BBBBB.arrow   EXPOSURES: one row per query, document and position

and `rejects-BBBBB.arrow` (REJECT), split by the place of the line. With the setting `pair_people` of ingest also

    clickers-BBBBB.arrow    CLICKERS: one row per query, document and person
"""

import pyarrow as pa


def not_null(metadata: dict[bytes, bytes] | None = None, **columns: pa.DataType) -> pa.Schema:
    """A schema of these columns, without nulls."""
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns.items()], metadata=metadata)


LINE_HASH_BYTES = 16
KINDS = ("search", "impression", "click", "other", "conversion")  # conversion: what follows a click, a purchase say
CLICK_WEIGHT = 1000  # weights are whole thousandths of a click, so that their sums do not depend on the order

# `line_hash` identifies the line's bytes (the first of its SHA-256, without the line end), to detect exact repeats.
# `query_id` is derived from it if the log has none. `query` is null on an event that does not repeat it. `position` is
# the rank in the log's own counting, -1 if unknown. `time` is null for a line without one. `weight`: what a click or a
# conversion counts; 0 for a click that does not count, and for other lines. Texts are as in the log, not normalised.
LOG_ROW = pa.schema(
    [
        pa.field("kind", pa.dictionary(pa.int8(), pa.string()), nullable=False),
        pa.field("query_id", pa.string(), nullable=False),
        pa.field("client_id", pa.string()),
        pa.field("query", pa.string()),
        pa.field("document_id", pa.string()),
        pa.field("position", pa.int32(), nullable=False),
        pa.field("time", pa.timestamp("ms", tz="UTC")),
        pa.field("user_agent", pa.string()),
        pa.field("application", pa.dictionary(pa.int16(), pa.string())),
        pa.field("weight", pa.int32(), nullable=False),
        pa.field("line_hash", pa.binary(LINE_HASH_BYTES), nullable=False),
    ]
)

# An unreadable line. Its text may be private and can no longer be counted, so only its place is kept. `offset` is in
# bytes of the uncompressed file, in rows of a Parquet file. `reason` is a fate (ledger).
REJECT = not_null(file=pa.string(), offset=pa.int64(), reason=pa.string())

# Every simulated line says so in its `application` field, and everything made from it inherits the label.
SIMULATED_APPLICATION = "clicktower-simulated"

# A day.

SCHEMA_VERSION = "2.0"  # version 1 had neither conversions nor weights
VERSION_KEY = b"clicktower.day"

# A day keeps at most this many distinct person hashes of a query (the smallest ones): enough to answer "at least k?"
# exactly for every k up to it, after any merging of days, in constant size for the most frequent query.
PEOPLE_CAP = 32

_METADATA = {VERSION_KEY: SCHEMA_VERSION.encode()}

# The counts of lines in a day, and the fate of these lines (schemas.ledger).
DAY_FATES = {
    "searches": "day_search",
    "impressions": "day_impression",
    "clicks": "day_click",
    "conversions": "day_conversion",
}

# `people`: the smallest PEOPLE_CAP distinct keyed person hashes, ascending. `searches`: search lines.
QUERIES = not_null(_METADATA, query=pa.string(), people=pa.list_(pa.uint64()), searches=pa.int64())

# `position` as in the log, -1 if unknown. `impressions`, `clicks` and `conversions` count lines, for the ledger.
# `weight`: the sum over clicks and conversions.
COUNTS = ("impressions", "clicks", "conversions", "weight")
EXPOSURES = not_null(
    _METADATA, query=pa.string(), document_id=pa.string(), position=pa.int32(), **dict.fromkeys(COUNTS, pa.int64())
)

# Who clicked what: the smallest PEOPLE_CAP distinct person hashes of each query and document, for a minimum of people
# behind each pair. Clicks do not tell it: three may be of one person.
CLICKERS = not_null(_METADATA, query=pa.string(), document_id=pa.string(), person=pa.uint64())
