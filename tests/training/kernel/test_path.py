"""Whole updates on the compiled path: near the reference's, and the same bytes for any number of workers, threads."""

import threading
from dataclasses import replace

import numpy as np
import pytest

from clicktower.schemas.errors import StageError, UsageError
from clicktower.training.model.kernel_towers import can_encode
from clicktower.training.model.parameters import CPU, initial_parameters, layout_of
from clicktower.training.model.recipe import Recipe
from clicktower.training.trainer import job
from clicktower.training.trainer.click_loss import pair_batch
from clicktower.training.trainer.job import COMPILED, ONLY_PATH, REFERENCE, ROWS, arithmetic_of
from clicktower.training.trainer.kernel_path import CompiledPath
from clicktower.training.trainer.large_update import Path, Towers, Workers, WorkerShare, large_update
from clicktower.training.trainer.optimisers import LazyRows, MomentumSchedule
from clicktower.training.trainer.reference_path import ReferencePath
from clicktower.training.trainer.shard_data import Pairs
from clicktower.training.trainer.worker import path_of
from tests.recipes import varied
from tests.rounding import assert_equal_but_for_rounding
from tests.training.kernel.small_batches import TRIGRAMS, compiled_path, random_pairs, recipe_of, sharing_pairs
from tests.training.trainer.test_large_update import Together


def start(recipe: Recipe, path: Path) -> Towers:
    layout = layout_of(recipe, TRIGRAMS)
    rows = {name: LazyRows.start(initial_parameters(layout, name)) for name in recipe.objective.towers}
    schedule = MomentumSchedule(recipe.optimiser.momentum_edge, recipe.optimiser.momentum_middle, 50)
    return Towers(layout=layout, rows=rows, schedule=schedule, path=path)


def minibatches(num: int, micro_batches: int = 4) -> list[list[Pairs]]:
    """Some whose pairs share documents among some whose pairs do not."""
    return [
        [
            sharing_pairs(100 * b + m, 9, 4, 11) if (b + m) % 3 == 0 else random_pairs(100 * b + m, 9, 4, weights=True)
            for m in range(micro_batches)
        ]
        for b in range(num)
    ]


def train(recipe: Recipe, path: Path, batches: list[list[Pairs]], workers=None) -> Towers:
    towers, workers = start(recipe, path), workers or Workers()
    for update, batch in enumerate(batches, start=1):
        share = [path.prepare(pairs) for pairs in batch[workers.rank :: workers.size]]
        large_update(towers, WorkerShare(share, update, len(batch), workers))
    return towers


def state(towers: Towers) -> bytes:
    return b"".join(
        part
        for _, rows in sorted(towers.rows.items())
        for part in (rows.parameters.numpy().tobytes(), rows.velocity.numpy().tobytes(), rows.last.numpy().tobytes())
    )


@pytest.mark.parametrize("reduction", ["exact", "fast"])
@pytest.mark.parametrize(
    ("tower", "fields"),
    [
        ("lstm", {}),
        ("full bilstm", {"recurrent_step": 0.004}),
        ("rnn", {"clip_norm": 0.8}),
        ("rnn", {"bias": False, "clip_norm": 0.8}),
        ("lstm", {"tie_towers": True, "clip_norm": 0.8}),
        ("dssm", {"clip_norm": 0.8}),
        ("clsm", {"clip_norm": 0.8}),
        ("clsm", {"tie_towers": True}),
    ],
)
def test_updates_equal_the_references(tower, fields, reduction):
    recipe = recipe_of(tower, reduction=reduction, **fields)
    batches = minibatches(4)
    found, expected = train(recipe, compiled_path(recipe), batches), train(recipe, ReferencePath(), batches)
    for name, rows in expected.rows.items():
        initial = initial_parameters(expected.layout, name)
        change = rows.all_published(4, expected.schedule) - initial
        assert change.abs().max() > 0.01, "the parameters must have moved"
        found_change = found.rows[name].all_published(4, found.schedule) - initial
        assert (found_change - change).norm() <= 1e-5 * change.norm()
        assert np.array_equal(found.rows[name].last, rows.last)


@pytest.mark.parametrize("tower", ["lstm", "bilstm", "bag", "dssm", "clsm"])
def test_any_number_of_threads_gives_the_same_bytes(tower):
    for reduction in ("exact", "fast"):
        recipe = recipe_of(tower, reduction=reduction)
        batches = minibatches(3)
        assert len({state(train(recipe, compiled_path(recipe, n), batches)) for n in (1, 2, 5)}) == 1


@pytest.mark.parametrize(
    ("tower", "fields"), [("lstm", {}), ("lstm", {"tie_towers": True}), ("bag", {}), ("dssm", {}), ("clsm", {})]
)
def test_any_number_of_workers_gives_the_same_bytes(tower, fields):
    recipe, batches = recipe_of(tower, **fields), minibatches(3)
    alone = state(train(recipe, compiled_path(recipe), batches))
    for size in (2, 3, 5):  # five workers, four micro-batches: one has nothing to do
        group, found = Together(size), {}

        def work(rank: int, group=group, found=found) -> None:
            found[rank] = state(train(recipe, compiled_path(recipe), batches, group.rank(rank)))

        threads = [threading.Thread(target=work, args=(rank,)) for rank in range(size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == dict.fromkeys(range(size), alone)


def test_several_workers_and_fast_reduction_are_equal_up_to_rounding():
    recipe, batches = recipe_of("lstm", reduction="fast"), minibatches(3)
    alone, group, found = train(recipe, compiled_path(recipe), batches), Together(2), {}

    def work(rank: int) -> None:
        found[rank] = train(recipe, compiled_path(recipe), batches, group.rank(rank))

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, rows in alone.rows.items():
        assert_equal_but_for_rounding(found[0].rows[name].parameters, rows.parameters)


@pytest.mark.parametrize("reduction", ["exact", "fast"])
def test_parameters_that_are_not_finite_end_the_run_with_nothing_changed(reduction):
    recipe = recipe_of("lstm", reduction=reduction)
    path = compiled_path(recipe)
    towers = start(recipe, path)
    towers.rows["query"].parameters[-1, 0] = float("nan")
    before = state(towers)
    batches = [path.prepare(pairs) for pairs in minibatches(1)[0]]
    with pytest.raises(StageError, match="finite") as caught:
        large_update(towers, WorkerShare(batches, 1, 4, Workers()))
    assert "step" in caught.value.fix
    assert state(towers) == before


def test_auto_takes_as_much_of_the_compiled_path_as_serves_the_recipe():
    recipe = recipe_of("lstm")
    assert can_encode(recipe)
    assert arithmetic_of("auto", recipe, "cpu") == COMPILED
    assert isinstance(path_of(COMPILED, recipe, CPU, 2, pair_batch), CompiledPath)
    for other in (varied(recipe, cells=20), recipe_of("clsm")):
        assert arithmetic_of("auto", other, "cpu") == (ROWS if other.tower.kind == "clsm" else REFERENCE)
        assert arithmetic_of("torch", other, "cpu") == REFERENCE
        with pytest.raises(UsageError, match="does not serve"):
            arithmetic_of("compiled", other, "cpu")
    for other in (replace(recipe, dtype="float64"), varied(recipe, tower="dssm", hidden=8)):
        assert arithmetic_of("auto", other, "cpu") == REFERENCE
    assert isinstance(path_of(REFERENCE, recipe, CPU, 2, pair_batch), ReferencePath)


def test_what_auto_found_has_a_path_of_its_own_that_a_machine_without_it_refuses(monkeypatch):
    recipe = recipe_of("lstm")
    found = {
        arithmetic_of("auto", of, "cpu"): of for of in (recipe, recipe_of("clsm"), replace(recipe, dtype="float64"))
    }
    assert found.keys() == ONLY_PATH.keys()
    for arithmetic, of in found.items():
        assert arithmetic_of(ONLY_PATH[arithmetic], of, "cpu") == arithmetic
    for served in ("can_train", "moves_rows"):
        monkeypatch.setattr(job, served, lambda recipe: False)
    for arithmetic in (COMPILED, ROWS):
        with pytest.raises(UsageError, match="--path auto"):
            arithmetic_of(ONLY_PATH[arithmetic], found[arithmetic], "cpu")
