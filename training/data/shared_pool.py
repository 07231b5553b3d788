"""Shared negatives: a small pool, drawn again for each micro-batch (docs/model.md section 6).

Shapes: B pairs, K lists of exclusions (one for each of their queries), S titles of the shared pool, n negatives.
"""

from dataclasses import dataclass

import numpy as np

from schemas.negatives import absorb, draw_allowed
from training.data.ragged import Ragged, starts

_KEY = int.from_bytes(b"shared", "little")  # where the hash starts: never the key of a pair's own draw, but by chance
_LOW = np.int64(0xFFFFFFFF)


def shared_pool(num_rows: int, size: int, *, seed: int, epoch: int, place: int) -> np.ndarray:
    """The rows of the build's pool that a micro-batch shares, int64 [S]: distinct, all of them where size is no less.

    The first distinct ones of hash(seed, epoch, place, k) mod num_rows for k = 0, 1, ..., with the hash of
    schemas.negatives. `place`: the micro-batch's place in the order of the epoch.
    """
    size = min(size, num_rows)
    state = absorb(absorb(absorb(np.array([_KEY], np.uint64), seed), epoch), place)
    rows, tried = np.empty(0, np.int64), 0
    while len(rows) < size:
        drawn = absorb(state, np.arange(tried, tried + 2 * size)) % np.uint64(num_rows)
        rows, tried = _distinct(np.concatenate([rows, drawn.astype(np.int64)])), tried + 2 * size
    return rows[:size]


@dataclass(frozen=True, slots=True)
class ExcludedBy:
    """A shard's exclusions, inverted: for each row of the build's pool the lists that contain it.

    What excludes a shared pool's few rows is read off here; a query's own list may be as long as its clicks are many.
    """

    codes: np.ndarray  # int64, ascending: row * 2^32 + list

    @classmethod
    def of(cls, exclusions: Ragged) -> "ExcludedBy":
        codes = exclusions.values[exclusions.offsets[0] : exclusions.offsets[-1]].astype(np.int64) << 32
        codes |= np.repeat(np.arange(len(exclusions)), exclusions.lengths)
        codes.sort()
        return cls(codes)

    def among(self, rows: np.ndarray, lists: np.ndarray) -> "PoolExclusions":
        """Whether each of these lists [K] (ascending) contains each of these rows of the pool [S]."""
        begin, end = np.searchsorted(self.codes, rows << 32), np.searchsorted(self.codes, (rows + 1) << 32)
        at = np.repeat(begin - starts(end - begin)[:-1], end - begin)
        found = self.codes[at + np.arange(len(at))] & _LOW
        column = np.repeat(np.arange(len(rows)), end - begin)
        line = np.minimum(np.searchsorted(lists, found), len(lists) - 1)
        wanted = lists[line] == found
        line, column = line[wanted], column[wanted]
        excluded_KS = np.zeros((len(lists), len(rows)), bool)
        excluded_KS[line, column] = True
        return PoolExclusions(excluded_KS, len(rows) - np.bincount(line, minlength=len(lists)))


@dataclass(frozen=True, slots=True)
class PoolExclusions:
    """The excluded rows within a shared pool, as negatives.Exclusions."""

    excluded_KS: np.ndarray  # bool
    allowed_K: np.ndarray  # int64, the number of rows that each list does not contain

    @property
    def num_rows(self) -> int:
        return self.excluded_KS.shape[1]

    def num_allowed(self, of_pair: np.ndarray) -> np.ndarray:
        return self.allowed_K[of_pair]

    def holds(self, of_pair: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return self.excluded_KS[of_pair[:, None], rows]

    def allowed(self, of_pair: int) -> np.ndarray:
        return np.flatnonzero(~self.excluded_KS[of_pair])


def n_of_pool(
    keys: np.ndarray, of_pair: np.ndarray, exclusions: PoolExclusions, *, n: int, seed: int, epoch: int
) -> np.ndarray:
    """n places in the shared pool per pair, int64 [B, n]: distinct, unclicked for its query, drawn by the pair's key.

    A pair with fewer unclicked ones in the pool has all of those, and -1 for the rest.
    """
    enough = exclusions.num_allowed(of_pair) >= n
    places = np.full((len(keys), n), -1, np.int64)
    places[enough] = draw_allowed(keys[enough], of_pair[enough], exclusions, n=n, seed=seed, epoch=epoch)
    for pair in np.flatnonzero(~enough):
        allowed = exclusions.allowed(of_pair[pair])
        places[pair, : len(allowed)] = allowed
    return places


def all_of_pool(of_pair: np.ndarray, exclusions: PoolExclusions) -> np.ndarray:
    """All places in the shared pool for each pair, int32 [B, S]; -1 where the title was clicked for its query."""
    places = np.arange(exclusions.num_rows, dtype=np.int32)
    return np.where(exclusions.excluded_KS, np.int32(-1), places)[of_pair]


def without_unused(places: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """(which of `size` places stand in `places`, ascending; `places` as int32 numbers of those, -1 as it is)."""
    used = np.zeros(size + 1, bool)
    used[places] = True
    used[-1] = False  # where -1 points to
    if used[:-1].all():
        return np.arange(size), places.astype(np.int32, copy=False)
    number = np.full(size + 1, -1, np.int32)
    number[used] = np.arange(used.sum())
    return np.flatnonzero(used), number[places]


def _distinct(values: np.ndarray) -> np.ndarray:
    """Each value where it comes first."""
    first = np.unique(values, return_index=True)[1]
    return values[np.sort(first)]
