"""What a client did, as rows that add up in any order and stay few however much it did.

For one client and one table of lines at most MAX_HOURS + RANKS + 2 * QUERIES_KEPT rows and two, whatever the log says.
Of a client with many different queries the QUERIES_KEPT with the smallest hashes stand for all: a fair sample, with all
their searches, since the smallest of a union are among the smallest of its parts.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.compiled.hashes import keyed_hashes
from schemas.log_row import KINDS

MS_PER_HOUR = 3_600_000
HOURS_PER_DAY = 24
MAX_HOURS = 1024 * HOURS_PER_DAY  # hours are counted on a clock of 1,024 days, so that a wild one cannot fill memory
RANKS = 200  # deeper clicks count as clicks on this rank
QUERIES_KEPT = 128
NO_QUERY = 0
NO_TIME = 2**63 - 1

# Searches carry the hour (-1 unknown, or for events); they, and events that own their query, carry it; clicks carry
# their rank (-1 unknown, or for others). `asked` are the lines that a row counts for its query, the other numbers what
# it counts for its hour and the total: one row does both for a client that asked little, different ones for others.
STATISTICS = pa.schema(
    [
        pa.field("person", pa.uint64(), nullable=False),
        pa.field("hour", pa.int32(), nullable=False),
        pa.field("position", pa.int32(), nullable=False),
        pa.field("query", pa.uint64(), nullable=False),
        pa.field("first_ms", pa.int64(), nullable=False),  # of what was asked, NO_TIME unknown
        pa.field("searches", pa.int64(), nullable=False),
        pa.field("asked", pa.int64(), nullable=False),
        pa.field("impressions", pa.int64(), nullable=False),
        pa.field("clicks", pa.int64(), nullable=False),
        pa.field("named", pa.int64(), nullable=False),  # lines that own their query, under a bot's user agent
    ]
)
KEYS = ("person", "hour", "position", "query")
SUMS = ("searches", "asked", "impressions", "clicks", "named")
_READ = ["kind", "query", "person", "names_bot", "position", "time", "owns_query"]


def client_statistics(joined: pa.Table) -> pa.Table:
    """STATISTICS of some JOINED rows; lines of nobody are in none."""
    known = joined.select(_READ).filter(joined["person"].is_valid())
    kind, person = known["kind"].to_numpy(), known["person"].to_numpy()
    time = pc.fill_null(pc.cast(known["time"], pa.int64()), NO_TIME).to_numpy()
    is_search, is_impression, is_click = (kind == KINDS.index(name) for name in ("search", "impression", "click"))
    asks = known["owns_query"].to_numpy()
    hour = np.where(is_search & (time != NO_TIME), time // MS_PER_HOUR % MAX_HOURS, -1)
    rows = {
        "person": person,
        "hour": hour.astype(np.int32),
        "position": np.where(is_click, np.minimum(known["position"].to_numpy(), RANKS), -1).astype(np.int32),
        "query": np.where(asks, _query_hashes(known["query"].combine_chunks()), np.uint64(NO_QUERY)),
        "first_ms": np.where(asks, time, NO_TIME),
        "searches": is_search.astype(np.int64),
        "asked": asks.astype(np.int64),
        "impressions": is_impression.astype(np.int64),
        "clicks": is_click.astype(np.int64),
        "named": (asks & known["names_bot"].to_numpy()).astype(np.int64),
    }
    heavy = asks & _asks_much(person, asks)
    if not heavy.any():
        return _add_up(pa.table(rows))
    light = _add_up(pa.table({name: column[~heavy] for name, column in rows.items()}))
    of_heavy = {name: column[heavy] for name, column in rows.items()}
    none, nothing = np.full(int(heavy.sum()), -1, np.int32), np.zeros(int(heavy.sum()), np.int64)
    by_hour = of_heavy | {"query": nothing.astype(np.uint64) + np.uint64(NO_QUERY), "asked": nothing}
    by_query = of_heavy | dict.fromkeys(SUMS, nothing) | {"hour": none, "position": none, "asked": of_heavy["asked"]}
    return pa.concat_tables([light, _add_up(pa.table(by_hour)), keep_smallest(_add_up(pa.table(by_query)))])


def keep_smallest(rows: pa.Table) -> pa.Table:
    """Of the rows, one for each person and query, those of each person's QUERIES_KEPT smallest query hashes."""
    rows = rows.sort_by([("person", "ascending"), ("query", "ascending")])
    person = rows["person"].to_numpy()
    first = np.append(True, person[1:] != person[:-1]) if len(person) else np.zeros(0, bool)
    number_within = np.arange(len(person)) - np.flatnonzero(first)[np.cumsum(first) - 1]
    return rows.filter(pa.array(number_within < QUERIES_KEPT))


def _asks_much(person: np.ndarray, asks: np.ndarray) -> np.ndarray:
    """For each row whether its person asks more than QUERIES_KEPT times here."""
    distinct, code = np.unique(person, return_inverse=True)
    return np.bincount(code[asks], minlength=len(distinct))[code] > QUERIES_KEPT


def _query_hashes(queries: pa.DictionaryArray) -> np.ndarray:
    """A 64-bit hash of each query, never NO_QUERY."""
    hashes = keyed_hashes(queries.dictionary)
    hashes[hashes == NO_QUERY] = NO_QUERY + 1
    return hashes[queries.indices.to_numpy(zero_copy_only=False)]


def _add_up(rows: pa.Table) -> pa.Table:
    added = rows.group_by(list(KEYS)).aggregate([("first_ms", "min"), *((name, "sum") for name in SUMS)])
    return added.rename_columns([*KEYS, "first_ms", *SUMS]).select(STATISTICS.names).cast(STATISTICS)
