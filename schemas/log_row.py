"""One line of a search log in the common form that every source produces."""

import pyarrow as pa

KINDS = ("search", "impression", "click", "other")

# `line_hash` identifies the line's bytes (SHA-256, its first 16 bytes, without the line end), to detect exact repeats.
# `query_id` is derived from it where the log has none. `query` is null on an event that does not repeat it.
# `position` is the rank shown, counted as the log counts it, -1 where the log does not say.
# `time` is None where the line has none. Texts are as in the log: nothing is normalised yet.
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
        pa.field("line_hash", pa.binary(16), nullable=False),
    ]
)

# A line that could not be read. Its text may be private and can no longer be counted, so only its place is kept.
# `offset` is in bytes of the uncompressed file, in rows of a Parquet file.
REJECT = pa.schema(
    [
        pa.field("file", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),  # a fate of schemas.ledger
    ]
)

# Every line made by the simulator says so in its `application` field, and what is made from it inherits the label.
SIMULATED_APPLICATION = "clicktower-simulated"
