"""What is drawn for a micro-batch in an epoch: a function of the seed, the epoch and its place, whoever computes it.

Each use has a stream of its own, so that no draw repeats those of the order or of the first parameters.
"""

import numpy as np

from training.order import MicroBatch
from training.recipe import Recipe

_STREAM = 1 << 63  # apart from the order's own draws, whose second word stays below
_HELD_OUT = 1 << 61


def draws(recipe: Recipe, micro_batch: MicroBatch, epoch: int) -> np.random.Generator:
    """The numbers of a micro-batch in an epoch."""
    key = [recipe.seed, _STREAM | epoch << 32 | micro_batch.place]
    return np.random.Generator(np.random.Philox(key=np.array(key, np.uint64)))


def held_out_draws(recipe: Recipe, shard: int, start: int) -> np.random.Generator:
    """The numbers of some held-out examples of a shard, the same after every epoch."""
    key = [recipe.seed, _HELD_OUT | shard << 32 | start]
    return np.random.Generator(np.random.Philox(key=np.array(key, np.uint64)))
