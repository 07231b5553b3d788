"""The draw of unclicked negatives: which rows of the pool stand against a pair (docs/model.md section 6).

A pure function of the pair, the seed and the epoch: it does not know of shards, workers or order. The shards
hold the draw of epoch 0; training may draw again with the epoch in the key, from the exclusions and the
pool's size.

The j-th negative of a pair is the pool row `hash(pair key, seed, epoch, j, retry) mod pool size` of the smallest
`retry` whose row is neither excluded nor an earlier negative of that pair. The hash is the finaliser of splitmix64
(Steele, Lea & Flood 2014) over the five 64-bit numbers in that order. After MAX_RETRIES refusals the choice is made
among the rows that are left, by the next hash: still uniform, and it ends however few are left.
"""

import hashlib
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from schemas.errors import StageError

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
    keys: np.ndarray,
    exclusion: np.ndarray,
    exclusions: pa.ListArray,
    *,
    pool_size: int,
    n: int,
    seed: int = 0,
    epoch: int = 0,
) -> np.ndarray:
    """Pool rows of the n negatives of each pair, int32 [pairs, n]: distinct within a pair, none excluded.

    `keys`: uint64 [pairs], from `pair_keys`. `exclusion`: int [pairs], which list of `exclusions` holds for each pair.
    `exclusions`: lists of pool rows, ascending, without repeats (schemas.shard).
    Raises StageError where a pair has fewer than n rows to draw from.
    """
    num_pairs = len(keys)
    if num_pairs != len(exclusion):
        raise ValueError(f"{num_pairs} pair keys and {len(exclusion)} indices of exclusions")
    exclusion = exclusion.astype(np.int64)
    offsets, rows = _offsets_and_rows(exclusions)
    _require_enough((pool_size - np.diff(offsets))[exclusion], pool_size, n)

    # One sorted column of list * pool_size + row answers "is it excluded?" for all pairs at once.
    list_of_row = np.repeat(np.arange(len(exclusions), dtype=np.int64), np.diff(offsets))
    excluded_codes = list_of_row * pool_size + rows
    drawn = np.full((num_pairs, n), -1, np.int32)
    state = _absorb(_absorb(keys.astype(np.uint64), seed), epoch)
    for j in range(n):
        slot_state = _absorb(state, j)
        pending = np.arange(num_pairs)
        for retry in range(MAX_RETRIES):
            row = (_absorb(slot_state[pending], retry) % np.uint64(pool_size)).astype(np.int64)
            repeated = (drawn[pending, :j] == row[:, None]).any(axis=1)
            refuse = repeated | _contains(excluded_codes, exclusion[pending] * pool_size + row)
            drawn[pending[~refuse], j] = row[~refuse]
            pending = pending[refuse]
            if not len(pending):
                break
        for pair in pending:
            begin, end = offsets[exclusion[pair]], offsets[exclusion[pair] + 1]
            taken = np.concatenate([rows[begin:end], drawn[pair, :j]])
            left = np.setdiff1d(np.arange(pool_size), taken)
            choice = _absorb(slot_state[pair : pair + 1], MAX_RETRIES)[0]
            drawn[pair, j] = left[int(choice % np.uint64(len(left)))]
    return drawn


def sampling_probability(exclusion: np.ndarray, exclusions: pa.ListArray, pool_size: int) -> np.ndarray:
    """The probability with which one draw for a pair gives a certain allowed row, float64 [pairs].

    The pool is uniform, and a row that is refused is drawn again: 1 / (pool size - number of excluded rows).
    """
    offsets, _ = _offsets_and_rows(exclusions)
    return 1.0 / (pool_size - np.diff(offsets))[exclusion]


def _absorb(state: np.ndarray, number: int) -> np.ndarray:
    """Splitmix64's finaliser over a state and one more number."""
    mixed = (state ^ np.uint64(number & _MASK)) + _GAMMA
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX_1
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX_2
    return mixed ^ (mixed >> np.uint64(31))


def _contains(ascending: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    if not len(ascending):
        return np.zeros(len(wanted), bool)
    at = np.searchsorted(ascending, wanted)
    return ascending[np.minimum(at, len(ascending) - 1)] == wanted


def _offsets_and_rows(lists: pa.ListArray) -> tuple[np.ndarray, np.ndarray]:
    offsets = lists.offsets.to_numpy().astype(np.int64)
    return offsets - offsets[0], lists.values.to_numpy()[offsets[0] : offsets[-1]].astype(np.int64)


def _require_enough(num_allowed: np.ndarray, pool_size: int, n: int) -> None:
    short = int((num_allowed < n).sum())
    if short:
        raise StageError(
            asked=f"each pair needs {n} unclicked negatives from a pool of {pool_size:,} documents",
            found=f"{short:,} of {len(num_allowed):,} pairs have fewer than that once the documents"
            f" clicked for their query are left out (the least: {max(0, int(num_allowed.min()))})",
            follows="a clicked document would stand as its own negative",
            do="give more documents, or draw fewer negatives",
        )
