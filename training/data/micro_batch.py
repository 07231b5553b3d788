"""A micro-batch: which pairs are computed together, and which documents are each query's candidates.

    Order.epoch -> MicroBatch -> pairs_of -> Pairs

Shapes: B pairs, N documents, C = 1 + n candidates with the clicked one first; of a shared pool K lists of exclusions,
one for each query of the micro-batch, and S titles.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from schemas.negatives import absorb, draw_allowed
from training.data.shard_data import PoolExclusions, Shard, ShardData
from training.data.text_batch import TextTable
from training.recipes.objectives import Pool, Redrawn
from training.recipes.recipe import Recipe

WINDOW = 16  # micro-batches within which texts are grouped by length


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Pairs that are computed together, rows of one shard."""

    shard: int
    pairs: np.ndarray  # int64
    place: int  # in the order of the epoch


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """The order of training: a function of the data, the seed and the epoch alone (docs/model.md section 5).

    Each shard's pairs are permuted, a window of them is sorted by length and cut into micro-batches of fixed size (the
    last of a shard may be shorter), the micro-batches of all shards are permuted, and consecutive runs of them are the
    minibatches. The order does not depend on the workers.

    lengths: for each shard the number of words of each pair's query and clicked title together.
    """

    lengths: Sequence[np.ndarray]
    micro_batch: int
    minibatch: int
    seed: int

    @property
    def num_pairs(self) -> int:
        return sum(len(lengths) for lengths in self.lengths)

    @property
    def num_minibatches(self) -> int:
        """Large updates in an epoch, the same in every epoch."""
        num_micro_batches = sum(-(-len(lengths) // self.micro_batch) for lengths in self.lengths)
        return -(-num_micro_batches // (self.minibatch // self.micro_batch))

    def epoch(self, epoch: int) -> list[list[MicroBatch]]:
        """The minibatches of an epoch, each a list of micro-batches; every pair is in exactly one."""
        micro_batches = [
            (shard, pairs)
            for shard, lengths in enumerate(self.lengths)
            for pairs in self._micro_batches(shard, lengths, epoch)
        ]
        permuted = self._random(epoch, len(self.lengths)).permutation(len(micro_batches))
        in_order = (micro_batches[at] for at in permuted)
        shuffled = [MicroBatch(shard, pairs, place) for place, (shard, pairs) in enumerate(in_order)]
        run = self.minibatch // self.micro_batch
        return [shuffled[start : start + run] for start in range(0, len(shuffled), run)]

    def _micro_batches(self, shard: int, lengths: np.ndarray, epoch: int) -> list[np.ndarray]:
        permuted = self._random(epoch, shard).permutation(len(lengths))
        window = np.arange(len(lengths)) // (WINDOW * self.micro_batch)
        grouped = permuted[np.lexsort((lengths[permuted], window))]
        return [grouped[start : start + self.micro_batch] for start in range(0, len(grouped), self.micro_batch)]

    def _random(self, epoch: int, stream: int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(key=np.array([self.seed, epoch << 32 | stream], np.uint64)))


def pair_lengths(shard: Shard) -> np.ndarray:
    """The number of words of each pair's query and clicked title together."""
    words = shard.texts.words.lengths
    return words[shard.query] + words[shard.clicked]


Texts = tuple[TextTable, np.ndarray]  # a table, and which of its texts


@dataclass(frozen=True, kw_only=True, slots=True)
class Pairs:
    """Queries and documents to encode, and the candidates of each query in the loss (click_loss)."""

    queries: Texts  # [B]
    documents: tuple[Texts, ...]  # [N] numbered from 0, one part after the other
    candidates: np.ndarray  # int32 [B, C] numbers of documents, the clicked one first; -1: none
    weights: np.ndarray | None  # float32 [B]; None: each pair counts once
    taught: np.ndarray | None = None  # float32 [B, C], a teacher's probabilities (objectives.clicks)


def pairs_of(micro_batch: MicroBatch, data: ShardData, recipe: Recipe, epoch: int) -> Pairs:
    """A micro-batch's pairs with the negatives of an epoch; a function of its arguments alone."""
    shard, pairs, n = data.train[micro_batch.shard], micro_batch.pairs, recipe.clicks.num_negatives
    if isinstance(pool := recipe.clicks.negatives, Pool):
        return _sharing(micro_batch, shard, data, recipe, pool, epoch)
    if isinstance(recipe.clicks.negatives, Redrawn):
        negatives = (data.pool_texts, data.redraw(shard, pairs, n=n, seed=recipe.seed, epoch=epoch))
    else:
        negatives = (shard.texts, shard.negatives[pairs, :n])
    query, clicked = (shard.texts, shard.query[pairs]), (shard.texts, shard.clicked[pairs])
    return apart(query, clicked, negatives, shard.weighed(pairs))


def apart(query: Texts, clicked: Texts, negatives: Texts, weights: np.ndarray | None = None) -> Pairs:
    """Pairs that do not share negatives: queries [B], clicked titles [B], and their own negatives [B, n]."""
    num_pairs, n = negatives[1].shape
    numbers = np.arange(num_pairs * (1 + n), dtype=np.int32)
    return Pairs(
        queries=query,
        documents=(clicked, (negatives[0], negatives[1].ravel())),
        candidates=np.concatenate([numbers[:num_pairs, None], numbers[num_pairs:].reshape(num_pairs, n)], axis=1),
        weights=weights,
    )


# Shared negatives: a small pool, drawn again for each micro-batch (docs/model.md section 6).

_KEY = int.from_bytes(b"shared", "little")  # where the hash starts: never the key of a pair's own draw, but by chance


def _sharing(micro_batch: MicroBatch, shard: Shard, data: ShardData, recipe: Recipe, pool: Pool, epoch: int) -> Pairs:
    """Pairs with negatives from one shared pool. Each drawn title is encoded once, any other not at all."""
    pairs, seed = micro_batch.pairs, recipe.seed
    assert shard.excluded_by is not None
    size = pool.size or recipe.micro_batch
    rows = shared_pool(len(data.pool), size, seed=seed, epoch=epoch, place=micro_batch.place)
    lists, of_pair = np.unique(shard.exclusion[pairs], return_inverse=True)
    exclusions = shard.excluded_by.among(rows, lists)
    if pool.softmax:
        places = all_of_pool(of_pair, exclusions)
    else:
        n = recipe.clicks.num_negatives
        places = n_of_pool(shard.keys[pairs], of_pair, exclusions, n=n, seed=seed, epoch=epoch)

    titles, clicked = np.unique(shard.clicked[pairs], return_inverse=True)
    used, negatives = _without_unused(places, len(rows))
    return Pairs(
        queries=(shard.texts, shard.query[pairs]),
        documents=((data.pool_texts, data.pool[rows[used]]), (shard.texts, titles)),
        candidates=np.concatenate([(len(used) + clicked[:, None]).astype(np.int32), negatives], axis=1),
        weights=shard.weighed(pairs),
    )


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
        rows, tried = np.concatenate([rows, drawn.astype(np.int64)]), tried + 2 * size
        first = np.unique(rows, return_index=True)[1]
        rows = rows[np.sort(first)]
    return rows[:size]


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


def _without_unused(places: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """(which of `size` places stand in `places`, ascending; `places` as int32 numbers of those, -1 as it is)."""
    used = np.zeros(size + 1, bool)
    used[places] = True
    used[-1] = False  # where -1 points to
    if used[:-1].all():
        return np.arange(size), places.astype(np.int32, copy=False)
    number = np.full(size + 1, -1, np.int32)
    number[used] = np.arange(used.sum())
    return np.flatnonzero(used), number[places]
