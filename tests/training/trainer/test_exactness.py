"""One model, whoever computes it: 1, 2, 3 or 5 workers, killed at any moment, with any number of workers afterwards.

The workers are processes with gloo between them (tests.training.trainer.gloo_workers); the same through Ray is in
test_ray_training.
"""

import hashlib
import random
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch

from clicktower.schemas.stage import open_result, silent
from clicktower.training.model.kernel_towers import can_encode
from clicktower.training.model.recipe import Recipe, Sources
from clicktower.training.trainer.job import COMPILED, REFERENCE, TrainingJob, arithmetic_of
from clicktower.training.trainer.large_update import Workers
from clicktower.training.trainer.shard_data import Order, load_shards, pair_lengths
from clicktower.training.trainer.worker import work
from tests.recipes import recipe_with, varied
from tests.training.small_shards import write_shop
from tests.training.trainer.gloo_workers import Death, run_workers

torch.set_num_threads(1)
# Micro-batches of 8, six to a minibatch: five workers share them unevenly, and so do two and three at an epoch's end.
RECIPE = recipe_with(name="small", cells=16, epochs=4, minibatch=48, micro_batch=8, step=0.01, momentum_middle=0.95,
                clip_norm=5.0)  # fmt: skip
FAST_TOLERANCE = 1e-5  # of the largest parameter; 4e-7 was found


@pytest.fixture(scope="module")
def shop_shards(tmp_path_factory) -> str:
    return write_shop(str(tmp_path_factory.mktemp("build")), 268, 20, first=150)


@pytest.fixture(params=[REFERENCE, COMPILED])
def arithmetic(request) -> str:
    if request.param == COMPILED and not can_encode(RECIPE):
        pytest.skip("the compiled path is not available here")
    return request.param


def job(
    shop_shards: str, folder: Path, *, arithmetic: str = REFERENCE, recipe: Recipe = RECIPE, seconds: float = 60.0
) -> TrainingJob:
    folder.mkdir(parents=True, exist_ok=True)
    return TrainingJob(
        shards=open_result(shop_shards).data,
        shard_files=(),
        recipe=recipe,
        judged=None,
        threads=1,
        digest="the same",
        checkpoints=str(folder / "checkpoints"),
        output=str(folder / "model"),
        checkpoint_seconds=seconds,
        arithmetic=arithmetic,
    )


@pytest.mark.slow
def test_word_vectors_are_read_alike_by_every_worker(shop_shards, tmp_path):
    file = tmp_path / "vectors.txt"
    numbers = np.random.default_rng(3).normal(size=(4, 3)).astype(np.float32)
    file.write_text("".join(f"{word} {' '.join(map(str, row))}\n" for word, row in zip(
        ("steel", "hammer", "unheard", "no"), numbers.tolist(), strict=True)))  # fmt: skip
    recipe = varied(RECIPE, epochs=1, word_vectors="frozen", word_columns=3)
    one, two = (
        replace(job(shop_shards, tmp_path / n, recipe=recipe), sources=Sources(word_vectors=str(file)))
        for n in ("one", "two")
    )
    expected = alone(one, tmp_path / "one")
    run_workers(two, 2, tmp_path / "two")
    assert sha256(tmp_path / "two") == expected


def sha256(folder: Path) -> str:
    return hashlib.sha256((folder / "model" / "model.safetensors").read_bytes()).hexdigest()


def alone(asked: TrainingJob, folder: Path) -> str:
    work(asked, Workers(), silent)
    return sha256(folder)


def test_the_last_minibatch_of_these_runs_is_uneven(shop_shards):
    data = load_shards(open_result(shop_shards).data, RECIPE)
    lengths = [pair_lengths(shard) for shard in data.train]
    minibatches = Order(lengths=lengths, micro_batch=8, minibatch=48, seed=1).epoch(0)
    # 150 and 118 pairs are 19 micro-batches (the last of 6 pairs) and 15 (the last of 6): 34 = 5 x 6 + 4.
    assert [len(minibatch) for minibatch in minibatches] == [6] * 5 + [4]
    assert sorted({len(m.pairs) for minibatch in minibatches for m in minibatch}) == [6, 8]


@pytest.mark.slow
def test_the_number_of_workers_does_not_show_in_the_bytes(shop_shards, arithmetic, tmp_path):
    asked = partial(job, shop_shards, arithmetic=arithmetic, recipe=replace(RECIPE, epochs=2))
    expected = alone(asked(tmp_path / "alone"), tmp_path / "alone")
    for size in (1, 2, 3, 5):
        run_workers(asked(tmp_path / f"{size}"), size, tmp_path / f"{size}")
        assert sha256(tmp_path / f"{size}") == expected, f"{size} workers"


@pytest.mark.slow
def test_threads_and_checkpoint_intervals_do_not_show_in_the_bytes(shop_shards, arithmetic, tmp_path):
    def trained(name: str, threads: int, seconds: float) -> str:
        short = replace(RECIPE, epochs=1)  # 6 updates
        asked = job(shop_shards, tmp_path / name, arithmetic=arithmetic, recipe=short, seconds=seconds)
        return alone(replace(asked, threads=threads), tmp_path / name)

    expected = trained("alone", 1, 60.0)
    assert trained("threads", 3, 60.0) == expected
    assert trained("each update", 1, 0.0) == expected
    assert trained("now and then", 2, 0.05) == expected


@pytest.mark.slow
def test_any_history_of_kills_and_numbers_of_workers_gives_the_same_bytes(shop_shards, tmp_path):
    """kill -9 of a random worker at a random moment, before a sum, after one, and while the first worker writes a
    checkpoint (the steps since, the state, and that it is whole): each with every number of workers."""
    asked = partial(job, shop_shards, arithmetic=arithmetic_of("auto", RECIPE, "cpu"))
    expected = alone(asked(tmp_path / "alone"), tmp_path / "alone")
    rng, folder = random.Random(7), tmp_path / "killed"
    kills = [(size, when) for size in (1, 2, 3, 5) for when in ("before a sum", "after a sum", "writing")]
    rng.shuffle(kills)
    history = []
    for size, when in kills:
        if when == "writing":
            death, seconds = Death(rank=0, writes=rng.randint(1, 6)), 0.0
        else:
            death = Death(rank=rng.randrange(size), sums=rng.randint(1, 20), after=when == "after a sum")
            seconds = rng.choice([0.0, 60.0])  # a checkpoint after each update, or none while it lives
        history.append((size, death, seconds))
        assert run_workers(asked(folder, seconds=seconds), size, folder, death) is None, history
    metrics = run_workers(asked(folder), 2, folder)
    assert sha256(folder) == expected, history
    assert metrics["resumed_at"] > 10
    assert metrics["refused_checkpoints"] == []
    assert metrics["updates"] == 24


@pytest.mark.slow
def test_a_start_that_is_read_off_the_shards_is_the_same_for_all_workers_and_after_a_kill(shop_shards, tmp_path):
    recipe = varied(RECIPE, tower="bag", start="idf", tie_towers=True, epochs=1)  # 6 updates
    expected = alone(job(shop_shards, tmp_path / "alone", recipe=recipe), tmp_path / "alone")
    uniform = varied(recipe, start="uniform")
    assert alone(job(shop_shards, tmp_path / "uniform", recipe=uniform), tmp_path / "uniform") != expected
    folder = tmp_path / "killed"
    asked = job(shop_shards, folder, recipe=recipe, seconds=0.0)
    assert run_workers(asked, 3, folder, Death(rank=1, sums=8, after=True)) is None
    metrics = run_workers(asked, 2, folder)
    assert sha256(folder) == expected
    assert 0 < metrics["resumed_at"] < 6


@pytest.mark.slow
def test_fast_reduction_is_within_a_tolerance_of_exact(shop_shards, tmp_path):
    def weights(name: str, reduction: str, size: int) -> dict[str, np.ndarray]:
        recipe = replace(RECIPE, epochs=2, reduction=reduction)
        run_workers(job(shop_shards, tmp_path / name, recipe=recipe), size, tmp_path / name)
        return safetensors.numpy.load_file(tmp_path / name / "model" / "model.safetensors")

    exact = weights("exact", "exact", 1)
    for size in (1, 2, 3):
        for name, values in weights(f"fast-{size}", "fast", size).items():
            assert np.abs(values - exact[name]).max() <= FAST_TOLERANCE * np.abs(exact[name]).max(), (size, name)
