"""The fused kernels against the towers they stand for: compiled where there is a GPU, else in Triton's interpreter."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from clicktower.training.model.parameters import Device, Encoder, initial_parameters, layout_of, tower_of
from clicktower.training.model.recipe import DEFAULT, Recipe, recipe
from clicktower.training.towers import gpu_recurrent
from clicktower.training.towers.text_batch import TextBatch, text_batch
from clicktower.training.towers.tower import Tower
from clicktower.training.trainer.click_loss import pair_batch, pair_gradient
from clicktower.training.trainer.shard_data import apart
from tests.recipes import recipe_with, varied
from tests.training.finite_differences import by_autograd
from tests.training.texts import random_texts, table_of
from tests.training.towers.dense import dense

torch.set_num_threads(1)
TRIGRAMS = 30
RECIPE = recipe_with(name="small", cells=16, initial_range=0.4, num_negatives=2)
TOWERS = {
    "lstm, two blocks of cells": {"cells": 32},  # of 32, and 48 is three of 16
    "lstm, three blocks of cells": {"cells": 48},
    "lstm with forget gate": {"forget_gate": True},
    "lstm with peepholes": {"peepholes": True},
    "full lstm": {"forget_gate": True, "peepholes": True},
    "bilstm": {"tower": "bilstm", "forget_gate": True, "peepholes": True},
}
every_tower = pytest.mark.parametrize("tower", TOWERS)


@pytest.fixture
def device(place) -> Device:
    return Device(place, fused=True)


def of(tower: str, **changes) -> Recipe:
    return varied(RECIPE, **TOWERS[tower], **changes)


def inputs(
    recipe: Recipe, batch: TextBatch, seed: int = 4
) -> tuple[torch.Tensor, dict[str, torch.Tensor], torch.Tensor]:
    """(W l of each word, the parts, a gradient of the embeddings), random, in float64."""
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=random, dtype=torch.float64)

    parts = {name: normal(*shape) * 0.3 for name, shape in recipe.tower_parts}
    dimensions = recipe.tower.dimensions
    return normal(len(batch.word_offsets), recipe.columns), parts, normal(len(batch.order), dimensions)


def both_ways(tower: Tower, batch: TextBatch, word_UG, parts, by_Nd) -> dict[str, np.ndarray]:
    """Everything a tower gives: embeddings, and the gradients by words and parts."""

    def embeddings(words: torch.Tensor, *of_parts: torch.Tensor) -> torch.Tensor:
        return tower.forward(words, dict(zip(parts, of_parts, strict=True)), batch)[0]

    vectors_Nd, by_words, *by_parts = by_autograd(embeddings, word_UG, *parts.values(), by_value=by_Nd)
    found = {"y": vectors_Nd, "words": by_words, **dict(zip(parts, by_parts, strict=True))}
    return {k: v.cpu().numpy() for k, v in found.items()}


def check_against_float64(recipe: Recipe, batch: TextBatch, device: Device) -> None:
    """Kernels give in float32 what the plain tower gives in float64, to a few float32 roundings of the largest."""
    plain, fused = tower_of(recipe), device.tower(recipe)
    assert fused != plain
    word_UG, parts, by_Nd = inputs(recipe, batch)
    expected = both_ways(plain, batch, word_UG, parts, by_Nd)
    there = [{k: v.float().to(device.place) for k, v in parts.items()}]
    there += [x.float().to(device.place) for x in (word_UG, by_Nd)]
    found = both_ways(fused, batch.to(device.place), there[1], there[0], there[2])
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=0, atol=4e-6 * abs(values).max(), err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [0, 3])
@every_tower
def test_fused_towers_equal_the_plain_ones_forward_and_backward(tower, steps, device):
    # 39 texts are one block of 32 and a part of another; texts of 1 to 7 words begin at seven different steps.
    table, texts = random_texts(np.random.default_rng(3), 39, longest=7, num_trigrams=TRIGRAMS)
    assert {len(text) for text in texts} == set(range(1, 8))
    check_against_float64(of(tower, truncate_steps=steps), text_batch([(table, np.arange(39))]), device)


@pytest.mark.parametrize("num_texts", [1, 32, 33])
def test_texts_of_one_word_have_no_recurrence(num_texts, device):
    table = table_of([[w] for w in range(num_texts)], [[w % TRIGRAMS] for w in range(num_texts)])
    check_against_float64(of("full lstm"), text_batch([(table, np.arange(num_texts))]), device)


def test_one_long_text_among_short_ones_begins_alone_in_its_block(device):
    table = table_of([[0, 1] * 8, *[[2, 0]] * 40], [[1, 2], [3], [4, 4]])
    check_against_float64(of("full lstm"), text_batch([(table, np.arange(41))]), device)


@pytest.mark.parametrize("steps", [1, 5, 6, 100])
def test_truncation_of_any_length_is_the_same_cut(steps, device):
    table, _ = random_texts(np.random.default_rng(9), 20, longest=6, num_trigrams=TRIGRAMS)
    check_against_float64(of("full lstm", truncate_steps=steps), text_batch([(table, np.arange(20))]), device)


@pytest.mark.parametrize("tower", ["full lstm", "bilstm"])
def test_gradient_equals_finite_differences_of_the_float64_tower(tower, device):
    """Along random directions v through all parts at once: dL/dv = <gradient, v>, for L = Σ by ∘ y."""
    recipe = of(tower)
    table, _ = random_texts(np.random.default_rng(7), 35, longest=5, num_trigrams=TRIGRAMS)
    batch = text_batch([(table, np.arange(35))])
    plain = tower_of(recipe)
    word_UG, parts, by_Nd = inputs(recipe, batch)
    there = {k: v.float().to(device.place) for k, v in parts.items()}
    found = both_ways(
        device.tower(recipe), batch.to(device.place), word_UG.float().to(device.place), there,
        by_Nd.float().to(device.place),
    )  # fmt: skip
    random = torch.Generator().manual_seed(1)
    for _ in range(5):
        moves = {
            k: torch.randn(v.shape, generator=random, dtype=v.dtype) for k, v in {"words": word_UG, **parts}.items()
        }

        def loss(size: float, moves: dict[str, torch.Tensor] = moves) -> float:
            moved = {k: v + size * moves[k] for k, v in parts.items()}
            return (plain.forward(word_UG + size * moves["words"], moved, batch)[0] * by_Nd).sum().item()

        slope = (loss(1e-6) - loss(-1e-6)) / 2e-6
        terms = np.concatenate([(found[k] * moves[k].numpy()).ravel() for k in moves])
        assert abs(terms.sum() - slope) < 1e-5 * np.linalg.norm(terms)


def test_a_micro_batch_gives_the_same_gradient_and_loss_with_fused_towers(device):
    recipe = of("lstm, two blocks of cells", truncate_steps=4)
    table, _ = random_texts(np.random.default_rng(8), 24, longest=6, num_trigrams=TRIGRAMS)
    index = np.arange(24).reshape(6, 4)
    batch = pair_batch(apart((table, index[:, 0]), (table, index[:, 1]), (table, index[:, 2:])))
    layout = layout_of(recipe, TRIGRAMS)
    matrix = initial_parameters(layout, "query")

    def gradient(where: Device):
        encoder = Encoder.of(layout, dict.fromkeys(recipe.objective.towers, matrix.to(where.place)), where)
        return pair_gradient(batch.to(where.place), encoder)

    expected, loss = gradient(Device(torch.device("cpu")))
    found, fused_loss = gradient(device)
    assert fused_loss.item() == pytest.approx(loss.item(), rel=1e-6)
    for (name, one), (same_name, other) in zip(found, expected, strict=True):
        assert name == same_name
        np.testing.assert_array_equal(one.rows.cpu(), other.rows)
        values, expected_values = dense(one, layout).cpu(), dense(other, layout)
        np.testing.assert_allclose(values, expected_values, rtol=0, atol=2e-6 * expected_values.abs().max())


def test_what_kernels_do_not_know_is_left_to_the_plain_tower(place):
    device = Device(place, fused=True)
    for other in (of("full lstm", dtype="float64"), varied(RECIPE, cells=40), varied(RECIPE, tower="rnn")):
        assert device.tower(other) == tower_of(other)


def test_the_recipe_that_runs_by_default_has_a_kernel_for_its_recurrence(place):
    tower = Device(place, fused=True).tower(recipe(DEFAULT))
    assert isinstance(tower, gpu_recurrent.FusedLSTM)
    assert tower.settings.cells == 192


@triton.jit
def apply_tanh(x, y, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    tl.store(y + at, gpu_recurrent._tanh(tl.load(x + at)))


def test_tanh_is_right_to_a_few_units_in_the_last_place(place):
    size = np.concatenate([np.geomspace(1e-12, 90, 2000), np.linspace(0.25, 0.35, 47), [0.0]]).astype(np.float32)
    x = torch.from_numpy(np.concatenate([size, -size])).to(place)
    y = torch.empty_like(x)
    apply_tanh[(1,)](x, y, SIZE=len(x), enable_fp_fusion=True)
    expected = np.tanh(x.cpu().numpy().astype(np.float64))
    ulp = np.spacing(np.abs(expected).astype(np.float32))
    # Interpreted 4; a GPU's exp brings in two more.
    assert (np.abs(y.cpu().numpy() - expected) <= 6 * ulp).all()
