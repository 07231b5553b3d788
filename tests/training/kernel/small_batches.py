"""Small micro-batches on both paths, of the same pairs."""

from dataclasses import replace

import numpy as np
import torch

from clicktower.training.model.kernel_towers import can_train
from clicktower.training.model.parameters import CPU, Encoder, Layout, initial_parameters, layout_of
from clicktower.training.model.recipe import Recipe
from clicktower.training.trainer.click_loss import PairBatch, pair_batch
from clicktower.training.trainer.job import COMPILED, ROWS
from clicktower.training.trainer.kernel_path import CompiledBatch, CompiledPath
from clicktower.training.trainer.shard_data import Pairs, apart
from clicktower.training.trainer.worker import path_of
from tests.recipes import recipe_with, varied
from tests.training.texts import random_texts

TRIGRAMS = 40
RECURRENT = {
    "lstm": {"tower": "lstm"},
    "lstm with forget gate": {"tower": "lstm", "forget_gate": True},
    "lstm with peepholes": {"tower": "lstm", "peepholes": True},
    "full lstm": {"tower": "lstm", "forget_gate": True, "peepholes": True},
    "bilstm": {"tower": "bilstm"},
    "full bilstm": {"tower": "bilstm", "forget_gate": True, "peepholes": True},
    "rnn": {"tower": "rnn"},
}
TOWERS = RECURRENT | {"bag": {"tower": "bag"}, "dssm": {"tower": "dssm", "hidden": 48}}
GRADIENTS_IN_TORCH = {"clsm": {"tower": "clsm", "hidden": 16, "window": 3}}


def recipe_of(tower: str, cells: int = 16, **fields) -> Recipe:
    recipe = recipe_with(
        name="small", cells=cells, gamma=4.0, num_negatives=2, minibatch=24, micro_batch=12, step=0.05,
        momentum_edge=0.5, momentum_middle=0.9, initial_range=0.4, same_start=False,
    )  # fmt: skip
    return varied(recipe, **(TOWERS | GRADIENTS_IN_TORCH)[tower], **fields)


def start(recipe: Recipe) -> tuple[Layout, dict[str, torch.Tensor]]:
    layout = layout_of(recipe, TRIGRAMS)
    return layout, {name: initial_parameters(layout, name) for name in recipe.objective.towers}


def random_pairs(seed: int, num_pairs: int, n: int, *, weights: bool = False) -> Pairs:
    """Pairs that share no document."""
    rng = np.random.default_rng(seed)
    table, _ = random_texts(rng, num_pairs * (n + 2), longest=9, num_trigrams=TRIGRAMS)
    index = np.arange(num_pairs * (n + 2)).reshape(-1, n + 2)
    weighed = rng.uniform(0.2, 3, num_pairs).astype(np.float32) if weights else None
    return apart((table, index[:, 0]), (table, index[:, 1]), (table, index[:, 2:]), weighed)


def sharing_pairs(seed: int, num_pairs: int, n: int, num_documents: int) -> Pairs:
    """Pairs whose candidates are of few documents, and of which some have none in places."""
    rng = np.random.default_rng(seed)
    table, _ = random_texts(rng, num_pairs + num_documents, longest=9, num_trigrams=TRIGRAMS)
    candidates = rng.integers(0, num_documents, (num_pairs, 1 + n)).astype(np.int32)
    candidates[:, 1:][rng.random((num_pairs, n)) < 0.3] = -1
    return Pairs(
        queries=(table, np.arange(num_pairs)),
        documents=((table, num_pairs + np.arange(num_documents)),),
        candidates=candidates,
        weights=None,
    )


def pool_pairs(seed: int, num_pairs: int, n: int, num_clicked: int, pool_size: int) -> Pairs:
    """Pairs with weights whose negatives are of a pool, in another table than the clicked titles that follow it."""
    rng = np.random.default_rng(seed)
    pool, _ = random_texts(rng, pool_size, longest=9, num_trigrams=TRIGRAMS)
    table, _ = random_texts(rng, num_pairs + num_clicked, longest=9, num_trigrams=TRIGRAMS)
    clicked = np.concatenate([np.arange(num_clicked), rng.integers(0, num_clicked, num_pairs - num_clicked)])
    negatives = np.where(rng.random((num_pairs, n)) < 0.2, -1, rng.integers(0, pool_size, (num_pairs, n)))
    return Pairs(
        queries=(table, rng.permutation(num_pairs)),
        documents=((pool, np.arange(pool_size)), (table, num_pairs + np.arange(num_clicked))),
        candidates=np.concatenate([pool_size + rng.permutation(clicked)[:, None], negatives], axis=1).astype(np.int32),
        weights=rng.random(num_pairs).astype(np.float32),
    )


def whole_pool_pairs(seed: int, num_pairs: int, pool_size: int) -> Pairs:
    """Pairs that all have the whole of a pool against them, but for some titles each."""
    pairs = pool_pairs(seed, num_pairs, pool_size, num_pairs, pool_size)
    rng = np.random.default_rng(seed)
    negatives = np.where(rng.random((num_pairs, pool_size)) < 0.1, -1, np.arange(pool_size))
    return replace(pairs, candidates=np.concatenate([pairs.candidates[:, :1], negatives], axis=1).astype(np.int32))


def compiled_path(recipe: Recipe, num_threads: int = 1) -> CompiledPath:
    path = path_of(COMPILED if can_train(recipe) else ROWS, recipe, CPU, num_threads, pair_batch)
    assert isinstance(path, CompiledPath)
    return path


def room(what: str, shape: tuple[int, ...]) -> np.ndarray:
    """Memory for TouchedRows."""
    return np.full(shape, -1, np.float32)


def both(pairs: Pairs, path: CompiledPath) -> tuple[CompiledBatch, PairBatch]:
    return path.prepare(pairs), pair_batch(pairs)


def encoder_of(layout: Layout, matrices: dict[str, torch.Tensor], dtype: torch.dtype) -> Encoder:
    exact = {name: matrix.to(dtype) for name, matrix in matrices.items()}
    return Encoder.of(layout, exact)
