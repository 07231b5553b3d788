"""What is drawn for a micro-batch in an epoch: a function of the seed, the epoch and its place, whoever computes it."""

import numpy as np

from training.order import MicroBatch
from training.recipe import Recipe

_STREAM = 1 << 63  # apart from the order's own draws, whose second word stays below


def draws(recipe: Recipe, micro_batch: MicroBatch, epoch: int) -> np.random.Generator:
    """The numbers of a micro-batch in an epoch."""
    key = [recipe.seed, _STREAM | epoch << 32 | micro_batch.place]
    return np.random.Generator(np.random.Philox(key=np.array(key, np.uint64)))
