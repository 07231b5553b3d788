"""The pairs of a micro-batch as indices: which texts, and which documents are each query's candidates.

Shapes: B pairs, N documents, C = 1 + n candidates with the clicked one first.
"""

from dataclasses import dataclass

import numpy as np

from training.data.order import MicroBatch
from training.data.shard_data import Shard, ShardData
from training.data.shared_pool import all_of_pool, n_of_pool, shared_pool, without_unused
from training.data.text_batch import TextTable
from training.recipes.objectives import Pool, Redrawn
from training.recipes.recipe import Recipe

Texts = tuple[TextTable, np.ndarray]  # a table, and which of its texts


@dataclass(frozen=True, kw_only=True, slots=True)
class Pairs:
    """Queries and documents to encode, and the candidates of each query in the loss (click_loss)."""

    queries: Texts  # [B]
    documents: tuple[Texts, ...]  # [N] numbered from 0, one part after the other
    candidates: np.ndarray  # int32 [B, C] numbers of documents, the clicked one first; -1: none
    weights: np.ndarray | None  # float32 [B]; None: each pair counts once
    taught: np.ndarray | None = None  # float32 [B, C], a teacher's probabilities (teacher)


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


def _sharing(micro_batch: MicroBatch, shard: Shard, data: ShardData, recipe: Recipe, pool: Pool, epoch: int) -> Pairs:
    """Pairs with negatives from one shared pool. Each drawn title is encoded once, any other not at all."""
    pairs, seed = micro_batch.pairs, recipe.seed
    assert shard.excluded_by is not None
    size = pool.size or recipe.micro_batch
    rows = shared_pool(len(data.pool), size, seed=seed, epoch=epoch, place=micro_batch.place)
    lists, of_pair = np.unique(shard.exclusion[pairs], return_inverse=True)
    exclusions = shard.excluded_by.among(rows, lists)
    n = recipe.clicks.num_negatives
    if pool.softmax:
        places = all_of_pool(of_pair, exclusions)
    else:
        places = n_of_pool(shard.keys[pairs], of_pair, exclusions, n=n, seed=seed, epoch=epoch)

    titles, clicked = np.unique(shard.clicked[pairs], return_inverse=True)
    used, negatives = without_unused(places, len(rows))
    return Pairs(
        queries=(shard.texts, shard.query[pairs]),
        documents=((data.pool_texts, data.pool[rows[used]]), (shard.texts, titles)),
        candidates=np.concatenate([(len(used) + clicked[:, None]).astype(np.int32), negatives], axis=1),
        weights=shard.weighed(pairs),
    )
