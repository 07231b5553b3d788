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

`draw` says which rows of the pool are a pair's negatives (docs/model.md section 6). It is a pure function of the pair,
the seed and the epoch, independent of shards, workers and order. The shards hold the draw of epoch 0; training may draw
again with the epoch in the key, from the exclusions and the pool's size.

The j-th negative of a pair is the pool row `hash(pair key, seed, epoch, j, retry) mod pool size` of the smallest
`retry` whose row is neither excluded nor an earlier negative of that pair. The hash is the finaliser of splitmix64
(Steele, Lea & Flood 2014) over the five 64-bit numbers in that order. After MAX_RETRIES refusals the next hash chooses
among the remaining rows: the draw is still uniform, and it ends however few rows remain.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from clicktower.schemas.errors import StageError, require_major
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


# The pool rows that must not be negatives of a query, and their lookup, which runs millions of times.
#
# Shapes: P pairs, n draws for each.


class Exclusions(Protocol):
    """Lists of excluded rows. A pair is identified by the list that applies to it."""

    @property
    def num_rows(self) -> int:
        """The number of rows, excluded or not."""

    def num_allowed(self, of_pair: np.ndarray) -> np.ndarray:
        """The number of allowed rows of each pair, int64 [P]."""

    def holds(self, of_pair: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Whether each of the rows [P, n] is excluded for its pair, bool [P, n]."""

    def allowed(self, of_pair: int) -> np.ndarray:
        """The allowed rows of one pair, ascending, int64."""


@dataclass(frozen=True, slots=True)
class ListedExclusions:
    """Concatenated lists, as Arrow holds them: list i is rows[offsets[i]:offsets[i + 1]], ascending, without
    repeats.
    """

    offsets: np.ndarray  # int64 [lists + 1]
    rows: np.ndarray  # integers
    num_rows: int

    @classmethod
    def of(cls, lists: pa.ListArray, num_rows: int) -> "ListedExclusions":
        offsets = lists.offsets.to_numpy().astype(np.int64)
        rows = lists.values.to_numpy()[offsets[0] : offsets[-1]].astype(np.int64)
        return cls(offsets - offsets[0], rows, num_rows)

    def num_allowed(self, of_pair: np.ndarray) -> np.ndarray:
        return self.num_rows - (self.offsets[of_pair + 1] - self.offsets[of_pair])

    def holds(self, of_pair: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """A binary search in all lists at once, by steps that halve: a few places of each list are read."""
        if not rows.size or not len(self.rows):
            return np.zeros(rows.shape, bool)
        begin, end = self.offsets[of_pair], self.offsets[of_pair + 1][:, None]
        first = np.repeat(begin[:, None], rows.shape[1], axis=1)  # all rows of the list before it are below
        for power in reversed(range(int((end[:, 0] - begin).max()).bit_length())):
            further = first + (1 << power)
            below = self.rows.take(further - 1, mode="clip") < rows
            below &= further <= end
            np.copyto(first, further, where=below)
        return (first < end) & (self.rows.take(first, mode="clip") == rows)

    def allowed(self, of_pair: int) -> np.ndarray:
        free = np.ones(self.num_rows, bool)
        free[self.rows[self.offsets[of_pair] : self.offsets[of_pair + 1]]] = False
        return np.flatnonzero(free)


MAX_RETRIES = 64

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_MASK = (1 << 64) - 1


def pair_keys(queries: Iterable[str], clicked_titles: Iterable[str]) -> np.ndarray:
    """The 64-bit keys of pairs of normalised texts: BLAKE2b of query, zero byte, title; uint64 [pairs].

    The digest's 8 bytes are read as a little-endian number.
    """
    digests = (
        hashlib.blake2b(f"{query}\0{title}".encode(), digest_size=8, person=b"pair").digest()
        for query, title in zip(queries, clicked_titles, strict=True)
    )
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)


def draw(
    keys: np.ndarray, exclusion: np.ndarray, exclusions: Exclusions, *, n: int, seed: int = 0, epoch: int = 0
) -> np.ndarray:
    """Pool rows of the n negatives of each pair, int32 [pairs, n]: distinct within a pair, none excluded.

    `keys`: uint64 [pairs], from `pair_keys`. `exclusion`: int [pairs], each pair's list in `exclusions`. Raises
    StageError if a pair has fewer than n allowed rows.
    """
    if len(keys) != len(exclusion):
        raise ValueError(f"{len(keys)} pair keys and {len(exclusion)} indices of exclusions")
    exclusion = exclusion.astype(np.int64)
    _require_enough(exclusions.num_allowed(exclusion), exclusions.num_rows, n)

    # Most pairs can keep their first n rows: those of retry 0. The others are drawn again, one negative at a time.
    slots = absorb(absorb(absorb(keys.astype(np.uint64), seed), epoch)[:, None], np.arange(n))
    drawn = _rows(slots, 0, exclusions.num_rows)
    refused = exclusions.holds(exclusion, drawn).any(axis=1)
    for j in range(1, n):
        refused |= (drawn[:, :j] == drawn[:, j : j + 1]).any(axis=1)
    again = np.flatnonzero(refused)
    drawn[again] = _draw_in_turn(slots[again], exclusion[again], exclusions)
    return drawn.astype(np.int32)


def _draw_in_turn(slots: np.ndarray, exclusion: np.ndarray, exclusions: Exclusions) -> np.ndarray:
    """The rows of some pairs, int64 [pairs, n], from the state of each draw: negative by negative, retry by retry."""
    drawn = np.full(slots.shape, -1, np.int64)
    for j in range(slots.shape[1]):
        pending = np.arange(len(slots))
        for retry in range(MAX_RETRIES):
            if not len(pending):
                break
            row = _rows(slots[pending, j], retry, exclusions.num_rows)
            refuse = (drawn[pending, :j] == row[:, None]).any(axis=1)
            refuse |= exclusions.holds(exclusion[pending], row[:, None])[:, 0]
            drawn[pending[~refuse], j] = row[~refuse]
            pending = pending[refuse]
        for pair in pending:
            left = np.setdiff1d(exclusions.allowed(exclusion[pair]), drawn[pair, :j], assume_unique=True)
            drawn[pair, j] = left[_rows(slots[[pair], j], MAX_RETRIES, len(left))[0]]
    return drawn


def absorb(state: np.ndarray, number: int | np.ndarray) -> np.ndarray:
    """Splitmix64's finaliser over states and one more number, or one number per state: uint64, same shape."""
    mixed: np.ndarray = state ^ (np.uint64(number & _MASK) if isinstance(number, int) else number.astype(np.uint64))
    mixed += _GAMMA
    mixed ^= mixed >> np.uint64(30)
    mixed *= _MIX_1
    mixed ^= mixed >> np.uint64(27)
    mixed *= _MIX_2
    mixed ^= mixed >> np.uint64(31)
    return mixed


def _rows(slots: np.ndarray, retry: int, num_rows: int) -> np.ndarray:
    return (absorb(slots, retry) % np.uint64(num_rows)).astype(np.int64)


def _require_enough(num_allowed: np.ndarray, pool_size: int, n: int) -> None:
    short = int((num_allowed < n).sum())
    if short:
        raise StageError(
            f"{short:,} of {len(num_allowed):,} pairs have fewer than {n} unclicked documents in the pool of"
            f" {pool_size:,} (the least: {max(0, int(num_allowed.min()))}).",
            "Give more documents (of a build with pool = clicked: more days, or pool = documents), or draw fewer"
            " negatives.",
        )
