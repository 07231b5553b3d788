"""The bound of arithmetic: what this machine's fused multiply-adds would allow if they were all that training took.

A pair needs, for every word of its texts, the product of y(t-1) [d] with W_rec [d, G], and in the backward pass the
two products of the same size that give the gradients by y(t-1) and by W_rec: 3 x 2 d G floating-point operations.
Nothing else is counted: no gates, no gather, no scatter, no update.

The compiled path computes a word that texts of a micro-batch begin with once, and does not multiply y(0) = 0, so it
makes fewer products than that; `flops_made` counts those.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch

from clicktower.training.kernel.kernel_library import library, status
from clicktower.training.model.recipe import Recipe
from clicktower.training.trainer.kernel_path import CompiledPath
from clicktower.training.trainer.shard_data import MicroBatch, Shard, ShardData, pairs_of

PRODUCTS = 3
PEAK_SECONDS = 0.2


@dataclass(frozen=True, kw_only=True, slots=True)
class Needs:
    """What pairs need."""

    words_per_pair: float
    flops_per_pair: float
    # A text's first word meets y(0) = 0, whose product nobody needs to compute: the stricter count leaves it out.
    flops_per_pair_without_first_words: float


def needs_of(shard: Shard, pairs: np.ndarray, cells: int, columns: int) -> Needs:
    """Of some pairs with their own negatives."""
    lengths = shard.texts.words.lengths
    texts = np.column_stack([shard.query[pairs], shard.clicked[pairs], shard.negatives[pairs]])
    words = lengths[texts].sum() / len(pairs)
    each = PRODUCTS * 2 * cells * columns
    return Needs(
        words_per_pair=float(words),
        flops_per_pair=float(words * each),
        flops_per_pair_without_first_words=float((words - texts.shape[1]) * each),
    )


def flops_made(
    path: CompiledPath, micro_batches: Sequence[MicroBatch], data: ShardData, recipe: Recipe, columns: int
) -> float:
    """The products that the compiled path makes for a pair of some micro-batches."""
    products = pairs = 0
    for micro_batch in micro_batches:
        prepared = path.prepare(pairs_of(micro_batch, data, recipe, epoch=0))
        for batch in (prepared.queries, prepared.documents):
            products += len(batch.array("packed_words")) - int((batch.array("begins") < 0).sum())
        pairs += len(micro_batch.pairs)
    return products * PRODUCTS * 2 * recipe.tower.cells * columns / pairs


def peak_gflops(threads: int) -> tuple[float, str]:
    """(GFLOP/s of `threads` threads at once, what was run): the kernel's own loop, or a matrix product without it."""
    if status().available:
        with ThreadPoolExecutor(threads) as pool:
            peak = sum(pool.map(library().kernel_fma_peak, [PEAK_SECONDS] * threads))
        return peak, f"fused multiply-adds, {status().instructions}"
    return _product_gflops(threads), "torch.mm of 1,024 x 1,024, as there is no kernel to measure with"


def _product_gflops(threads: int) -> float:
    side, before = 1024, torch.get_num_threads()
    left, right = torch.rand(side, side), torch.rand(side, side)
    torch.set_num_threads(threads)
    try:
        best = float("inf")
        for _ in range(10):
            started = time.perf_counter()
            torch.mm(left, right)
            best = min(best, time.perf_counter() - started)
    finally:
        torch.set_num_threads(before)
    return 2 * side**3 / best / 1e9
