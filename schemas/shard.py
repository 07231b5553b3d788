"""A shard: training pairs and everything they refer to, as memory-mapped Arrow IPC files.

Below the data folder of a build:

    train-00000/words.arrow   WORDS   each distinct word once, as its letter-trigram ids
    train-00000/texts.arrow   TEXTS   each distinct query and title once, as indices into words
    train-00000/pairs.arrow   PAIRS   query, clicked title and n unclicked titles, as indices into texts
    train-00000/exclusions.arrow EXCLUSIONS  what may not stand against the pairs of a query, once for each query
    dev-00000/...                     the same for the held-out queries
    pool/words.arrow, pool/texts.arrow, pool/pool.arrow
                              POOL    the documents negatives are drawn from, in the order of their keyed hash
    catalogue.json            text contract, table rows, n, counts: see `build_shards`

All pairs of a query are in one shard. Indices are local to the folder, except `exclusions`, which refer to the pool.
Text `i` of `texts` has the words words[texts.words[i]]; its trigram counts are the repeats in the ids.
"""

import hashlib
from collections.abc import Iterable
from typing import Literal

import numpy as np
import pyarrow as pa

from clicktower.schemas.errors import require_major
from clicktower.schemas.search_log import not_null

SCHEMA_VERSION = "3.0"  # version 1 repeated the exclusions in every pair of a query; in version 2 each weight was 1
VERSION_KEY = b"clicktower.shard"
_METADATA = {VERSION_KEY: SCHEMA_VERSION.encode()}

WORDS = not_null(_METADATA, word=pa.string(), trigrams=pa.list_(pa.uint32()))
TEXTS = not_null(_METADATA, text=pa.string(), words=pa.list_(pa.int32()))  # normalised texts

# `clicks`: click lines behind the pair. `weight`: what they and its conversions count, in clicks: equal to `clicks`
# unless the log's mapping names conversions. `sampling_probability`: of each
# negative, under the pool's distribution over allowed rows. `exclusion`: the row of EXCLUSIONS for the pair's query.
PAIRS = not_null(
    _METADATA, query=pa.int32(), clicked=pa.int32(), negatives=pa.list_(pa.int32()),
    clicks=pa.int64(), weight=pa.float32(), sampling_probability=pa.float64(), exclusion=pa.int32(),
)  # fmt: skip

# `rows`: the rows of the pool that may not be a negative of a query, because a person clicked them (by id or by title),
# ascending. They are stored once per query: in pairs, a query with clicks on everything would take the square of its
# clicks.
EXCLUSIONS = not_null(_METADATA, rows=pa.list_(pa.int32()))
POOL = not_null(_METADATA, document_id=pa.string(), text=pa.int32(), probability=pa.float64())


def open_table(path: str, schema: pa.Schema) -> pa.Table:
    """A shard's table, memory-mapped from a local file, with every offset validated, since compiled code follows them.

    The major version must match that of the schema. Raises UnknownVersionError, or ValueError for an invalid table,
    other columns, and lists or texts that lie outside the file.
    """
    try:
        with pa.memory_map(path) as source:
            table = pa.ipc.open_file(source).read_all()
            table.validate(full=True)
    except pa.ArrowException as error:  # not all of them are ValueErrors: an unknown Arrow type is not
        raise ValueError(f"{path} cannot be read: {error}") from None
    version, known = ((table.schema.metadata or {}).get(VERSION_KEY, b"none"), schema.metadata[VERSION_KEY])
    require_major(path, version.decode(), known.decode(), stage="build")
    if not table.schema.equals(schema):
        raise ValueError(f"{path} has the columns {_columns(table.schema)}; a shard has {_columns(schema)}")
    return table


def require_within(indices: np.ndarray, num_rows: int, subject: str) -> None:
    """Raise ValueError if an index is not one of `num_rows` rows."""
    if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < num_rows:
        raise ValueError(f"{subject} points to rows {indices.min():,} to {indices.max():,} of {num_rows:,}")


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} ({field.type})" for field in schema)


class LogicalDigest:
    """A digest of rows in any order: the sum of the rows' SHA-256, modulo 2^256.

    Sums merge, so every bucket of a job digests its own rows; the digest does not depend on the buckets.
    """

    def __init__(self) -> None:
        self._sum = 0

    def add(self, rows: Iterable[bytes]) -> None:
        digests = b"".join([hashlib.sha256(row).digest() for row in rows])
        lanes = np.frombuffer(digests, ">u4").reshape(-1, 8).sum(axis=0, dtype=np.uint64).tolist()
        self._sum += sum(lane << (32 * (7 - place)) for place, lane in enumerate(lanes))  # eight 32-bit digits each

    def merge(self, name: str) -> None:
        self._sum += int(name, 16)

    def hexdigest(self) -> str:
        return f"{self._sum % (1 << 256):064x}"


# Labelled shards: texts or pairs of texts, each with a label. Below the data folder of a `build-labelled`:
#
#     train-00000/words.arrow, train-00000/texts.arrow     as in click shards, so that the same code encodes both
#     train-00000/labelled.arrow   `labelled_schema`       the rows, as indices into texts
#     dev-00000/...                the same for the held-out rows
#     labelled.json                what the rows are, their classes, text contract, table rows, shards
#     rejects.json                 the first unreadable lines, as file, offset and reason
#
# No text of a dev row is a text of a train row.

LABELLED_VERSION = "1.0"
LABELLED_CATALOGUE = "labelled.json"

Unit = Literal["pairs", "texts"]
LabelKind = Literal["class", "value"]


def labelled_schema(unit: Unit, label: LabelKind) -> pa.Schema:
    """The columns of labelled.arrow: `first` and `second`, or `text`, as int32 indices into texts; `label`.

    A class is an int32 index into the catalogue's `classes`, a value a float64.
    """
    texts = dict.fromkeys(("first", "second") if unit == "pairs" else ("text",), pa.int32())
    kind = pa.int32() if label == "class" else pa.float64()
    return not_null({VERSION_KEY: LABELLED_VERSION.encode()}, **texts, label=kind)
