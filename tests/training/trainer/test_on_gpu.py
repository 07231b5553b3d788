"""What only a GPU can show: `pytest -m gpu`. Left out where there is none (docs/running.md has what it showed)."""

import json
import time
from dataclasses import replace

import numpy as np
import pytest
import safetensors.torch
import torch

from clicktower.schemas import storage
from clicktower.training.model.forward import encode_batch
from clicktower.training.model.parameters import CPU, Device, Encoder, initial_parameters, layout_of
from clicktower.training.model.recipe import Recipe
from clicktower.training.towers.text_batch import text_batch
from clicktower.training.trainer.click_loss import PairBatch, pair_batch, pair_gradient
from clicktower.training.trainer.gpu_check import open_device
from clicktower.training.trainer.shard_data import apart
from tests.recipes import recipe_with
from tests.training.small_shards import write_shop
from tests.training.texts import random_texts
from tests.training.towers.dense import dense
from tests.training.trainings import train

pytestmark = pytest.mark.gpu
TRIGRAMS = 400
TOWERS = {
    "lstm": {},
    "full lstm": {"forget_gate": True, "peepholes": True},
    "bilstm": {"tower": "bilstm"},
    "rnn": {"tower": "rnn"},
    "dssm": {"tower": "dssm", "hidden": 64},
    "clsm": {"tower": "clsm", "hidden": 64, "window": 3},
    "self_attentive": {"tower": "self_attentive", "attention_units": 32, "hops": 4, "penalty": 0.5},
    "max_pooled": {"tower": "max_pooled"},
    "variational": {"tower": "variational", "latent": 32},
}
FUSED = ("lstm", "full lstm", "bilstm")
SMALL = recipe_with(name="small", cells=32, epochs=3, minibatch=32, micro_batch=8, step=0.02, clip_norm=20.0)


def of(tower: str, **changes) -> Recipe:
    return recipe_with(name="on a GPU", initial_range=0.1, **{"cells": 96, **TOWERS[tower], **changes})


def batch_of(num_pairs: int, n: int = 4) -> PairBatch:
    table, _ = random_texts(np.random.default_rng(5), num_pairs * (n + 2), longest=12, num_trigrams=TRIGRAMS)
    index = np.arange(num_pairs * (n + 2)).reshape(num_pairs, n + 2)
    return pair_batch(apart((table, index[:, 0]), (table, index[:, 1]), (table, index[:, 2:])))


def encoder(recipe: Recipe, device: Device) -> Encoder:
    layout = layout_of(recipe, TRIGRAMS)
    matrices = {side: initial_parameters(layout, side).to(device.place) for side in ("query", "document")}
    return Encoder.of(layout, matrices, device)


def gradient(batch: PairBatch, recipe: Recipe, device: Device) -> dict[str, np.ndarray]:
    gradients, loss = pair_gradient(batch.to(device.place), encoder(recipe, device))
    layout = layout_of(recipe, TRIGRAMS)
    return {"loss": loss.cpu().numpy(), **{name: dense(values, layout).cpu().numpy() for name, values in gradients}}


def check_close(found: dict[str, np.ndarray], expected: dict[str, np.ndarray], share: float) -> None:
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=0, atol=share * np.abs(values).max(), err_msg=name)


@pytest.mark.parametrize("tower", TOWERS)
def test_the_reference_path_on_a_gpu_is_the_one_on_the_cpu(tower):
    batch = batch_of(64)
    for dtype, share in (("float64", 1e-11), ("float32", 2e-5)):
        recipe = of(tower, dtype=dtype)
        check_close(gradient(batch, recipe, open_device("cuda-eager")), gradient(batch, recipe, CPU), share)


@pytest.mark.parametrize("tower", FUSED)
def test_fused_kernels_give_what_eager_steps_give(tower):
    batch, recipe = batch_of(300), of(tower, truncate_steps=7)
    fused = open_device("cuda")
    assert fused.tower(recipe) != open_device("cuda-eager").tower(recipe)
    check_close(gradient(batch, recipe, fused), gradient(batch, recipe, open_device("cuda-eager")), 2e-5)


@pytest.mark.parametrize("device", ["cuda", "cuda-eager"])
@pytest.mark.parametrize("tower", TOWERS)
def test_the_same_micro_batch_gives_the_same_bytes_again(tower, device):
    batch, recipe = batch_of(300), of(tower)
    first = gradient(batch, recipe, open_device(device))
    for _ in range(5):
        again = gradient(batch, recipe, open_device(device))
        assert all(np.array_equal(again[name], first[name]) for name in first)


@pytest.mark.parametrize("tower", FUSED)
def test_batch_mates_do_not_change_a_bit_of_what_the_kernels_give_for_a_text(tower):
    recipe, device = of(tower), open_device("cuda")
    table, _ = random_texts(np.random.default_rng(6), 200, longest=12, num_trigrams=TRIGRAMS)

    def embed(index: np.ndarray) -> np.ndarray:
        batch = text_batch([(table, index)]).to(device.place)
        return encode_batch(batch, "query", encoder(recipe, device)).cpu().numpy()

    together = embed(np.arange(200))
    for _ in range(5):
        some = np.random.default_rng(1).permutation(200)[:77]
        np.testing.assert_array_equal(embed(some), together[some])


@pytest.mark.parametrize("device", ["cuda", "cuda-eager"])
@pytest.mark.parametrize("tower", TOWERS)
def test_nothing_waits_for_the_gpu_between_a_batch_and_its_gradient(tower, device):
    place = open_device(device)
    batch, recipe = batch_of(100), of(tower)
    towers = encoder(recipe, place)
    pair_gradient(batch.to(place.place), towers)  # compiles the kernels
    torch.cuda.set_sync_debug_mode("error")
    try:
        pair_gradient(batch.to(place.place), towers)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.fixture(scope="module")
def shop_shards(tmp_path_factory) -> str:
    return write_shop(str(tmp_path_factory.mktemp("build")), 300, 40)


def weights(result) -> bytes:
    return storage.read_bytes(f"{result.data}/model.safetensors")


@pytest.mark.parametrize("reduction", ["exact", "fast"])
@pytest.mark.parametrize("device", ["cuda", "cuda-eager"])
def test_a_run_on_a_gpu_gives_the_same_bytes_again_and_nearly_the_cpus_model(device, reduction, shop_shards, tmp_path):
    recipe = replace(SMALL, reduction=reduction)
    runs = [train(shop_shards, store=str(tmp_path / name), recipe=recipe, device=device) for name in "ab"]
    assert weights(runs[0]) == weights(runs[1])
    found, expected = (
        safetensors.torch.load(weights(run))
        for run in (runs[0], train(shop_shards, store=str(tmp_path / "cpu"), recipe=recipe, device="cpu"))
    )
    for name, values in expected.items():
        torch.testing.assert_close(found[name], values, rtol=0, atol=1e-3 * values.abs().max().item())
    points = json.loads(storage.read_bytes(f"{runs[0].data}/curves.json"))
    assert points[-1]["dev_ndcg@1"] > 0.8


@pytest.mark.engine
def test_two_workers_on_gpus_give_the_bytes_of_one(shop_shards, tmp_path):
    """Over NCCL with a GPU each where there are two, else both on one GPU over gloo."""
    alone = train(shop_shards, store=str(tmp_path / "one"), recipe=SMALL, device="cuda")
    both = train(shop_shards, store=str(tmp_path / "two"), recipe=SMALL, device="cuda", workers=2, threads=1)
    assert weights(alone) == weights(both)


def test_a_killed_run_goes_on_from_its_checkpoint_to_the_same_bytes(shop_shards, tmp_path):
    expected = weights(train(shop_shards, store=str(tmp_path / "whole"), recipe=SMALL, device="cuda"))

    def stop(message: str, done: int, total: int | None) -> None:
        if total and done > total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(
            shop_shards, store=str(tmp_path / "cut"), recipe=SMALL, device="cuda", progress=stop, checkpoint_seconds=0.0
        )
    assert weights(train(shop_shards, store=str(tmp_path / "cut"), recipe=SMALL, device="cuda")) == expected


def test_throughput_is_printed(capsys):
    """pairs/s of forward and backward for a micro-batch of 1,024 pairs; benchmarks/training.py has the whole step."""
    recipe = of("lstm")
    for name in ("cuda-eager", "cuda"):
        device = open_device(name)
        batch, towers = batch_of(1024).to(device.place), encoder(recipe, device)
        for _ in range(3):
            pair_gradient(batch, towers)
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(20):
            pair_gradient(batch, towers)
        torch.cuda.synchronize()
        seconds = (time.perf_counter() - started) / 20
        with capsys.disabled():
            print(f"\n{torch.cuda.get_device_name()}, {name}: {seconds * 1e3:.2f} ms, {1024 / seconds:,.0f} pairs/s")
        assert seconds > 0
