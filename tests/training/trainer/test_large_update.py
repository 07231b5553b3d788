"""Algorithm 1 as a whole: updates against the dense reference, and the same bytes from any number of workers."""

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

from clicktower.schemas.errors import StageError
from clicktower.training.model.parameters import initial_parameters, layout_of
from clicktower.training.model.recipe import Recipe
from clicktower.training.towers import threads
from clicktower.training.trainer.click_loss import PairBatch, pair_batch
from clicktower.training.trainer.large_update import Towers, Workers, WorkerShare, large_update
from clicktower.training.trainer.optimisers import LazyRows, MomentumSchedule
from clicktower.training.trainer.reference_path import ReferencePath, blocks_of
from clicktower.training.trainer.shard_data import apart
from tests.recipes import recipe_with, varied
from tests.training import reference
from tests.training.texts import random_texts

torch.set_num_threads(1)
TRIGRAMS = 40
RECIPE = recipe_with(
    name="small",
    cells=5,
    gamma=4.0,
    num_negatives=2,
    minibatch=8,
    micro_batch=2,
    step=0.05,
    momentum_edge=0.5,
    momentum_middle=0.9,
    clip_norm=0.8,
    truncate_steps=3,
    initial_range=0.5,
    dtype="float64",
)


def start(recipe: Recipe, total: int, table_rows: int = TRIGRAMS) -> Towers:
    layout = layout_of(recipe, table_rows)
    rows = {name: LazyRows.start(initial_parameters(layout, name)) for name in recipe.objective.towers}
    schedule = MomentumSchedule(recipe.optimiser.momentum_edge, recipe.optimiser.momentum_middle, total)
    return Towers(layout=layout, rows=rows, schedule=schedule, path=ReferencePath(2))


class Minibatches:
    """Random minibatches, as micro-batches for the trainer and as plain lists for the reference."""

    def __init__(self, num: int, recipe: Recipe, *, seed: int = 2) -> None:
        rng = np.random.default_rng(seed)
        width = recipe.clicks.num_negatives + 2
        self.batches: list[list[PairBatch]] = []
        self.plain: list[list[tuple[list, list]]] = []
        for _ in range(num):
            table, texts = random_texts(rng, recipe.minibatch * width, longest=7, num_trigrams=TRIGRAMS)
            pairs = np.arange(recipe.minibatch * width).reshape(-1, width)
            self.plain.append([(texts[p[0]], [texts[d] for d in p[1:]]) for p in pairs])
            self.batches.append(
                [
                    pair_batch(apart((table, part[:, 0]), (table, part[:, 1]), (table, part[:, 2:])))
                    for part in np.split(pairs, len(pairs) // recipe.micro_batch)
                ]
            )


def reference_updates(recipe: Recipe, minibatches, momenta) -> tuple[dict[str, np.ndarray], list[dict[str, float]]]:
    """(Λ after the last update as the trainer's matrices, norms of each update) by Algorithm 1, dense, in float64."""
    kind = recipe.tower.kind
    layout = layout_of(replace(recipe, dtype="float64"), TRIGRAMS)
    current = {
        side: reference.from_matrix(initial_parameters(layout, side).numpy(), recipe.tower.cells, kind)
        for side in ("query", "document")
    }
    velocity = {side: {k: np.zeros_like(v) for k, v in p.items()} for side, p in current.items()}
    all_norms = []
    for pairs, momentum in zip(minibatches, momenta, strict=True):
        ahead = {side: {k: v + momentum * velocity[side][k] for k, v in p.items()} for side, p in current.items()}
        total = {side: {k: np.zeros_like(v) for k, v in p.items()} for side, p in current.items()}
        for query, documents in pairs:
            q = reference.embed(ahead["query"], query, kind)
            ds = [reference.embed(ahead["document"], d, kind) for d in documents]
            by_query, by_documents = reference.loss_gradient(q, ds, recipe.clicks.gamma)
            for side, text, by in [
                ("query", query, by_query),
                *(("document", d, b) for d, b in zip(documents, by_documents, strict=True)),
            ]:
                part = reference.back_propagate(ahead[side], text, by, kind, recipe.tower.truncate_steps)
                for k, v in part.items():
                    total[side][k] += v
        norms = {}
        for side in current:
            norms[side] = np.sqrt(sum((v**2).sum() for v in total[side].values()))
            scale = recipe.optimiser.clip_norm / norms[side] if norms[side] > recipe.optimiser.clip_norm > 0 else 1.0
            for k in current[side]:
                step = (
                    recipe.optimiser.step if k.startswith("W") else recipe.tower.recurrent_step or recipe.optimiser.step
                )
                velocity[side][k] = momentum * velocity[side][k] - step * scale * total[side][k]
                current[side][k] = current[side][k] + velocity[side][k]
        all_norms.append(norms)
    return {side: reference.to_matrix(p, kind) for side, p in current.items()}, all_norms


@pytest.mark.parametrize("tower", ["lstm", "rnn"])
@pytest.mark.parametrize("reduction", ["exact", "fast"])
@pytest.mark.parametrize(
    ("dtype", "tolerance", "recurrent_step"),
    [("float64", 1e-10, 0.0), ("float64", 1e-10, 0.004), ("float32", 1e-5, 0.0)],
)
def test_three_updates_equal_the_dense_reference(dtype, tolerance, recurrent_step, reduction, tower):
    # A schedule over 50 updates has its edge at 1: updates 1, 2, 3 have μ = 0.5, 0.9, 0.9.
    recipe = varied(RECIPE, dtype=dtype, reduction=reduction, tower=tower, recurrent_step=recurrent_step)
    made = Minibatches(3, recipe)
    towers = start(recipe, 50)
    reports = [
        large_update(towers, WorkerShare(batch, k, len(batch), Workers()))
        for k, batch in enumerate(made.batches, start=1)
    ]
    expected, norms = reference_updates(recipe, made.plain, [0.5, 0.9, 0.9])

    assert min(min(report.values()) for report in norms) > recipe.optimiser.clip_norm, "re-normalisation must be active"
    initial = {side: initial_parameters(towers.layout, side).double().numpy() for side in expected}
    for side, matrix in expected.items():
        found = towers.rows[side].all_published(3, towers.schedule).double().numpy()
        assert np.abs(matrix - initial[side]).max() > 0.01, "the parameters must have moved"
        assert np.abs(found - matrix).max() <= tolerance * np.abs(matrix).max()
        # The change itself, where rounding of the parameters would hide nothing.
        change, expected_change = found - initial[side], matrix - initial[side]
        assert np.linalg.norm(change - expected_change) <= 3 * tolerance * np.linalg.norm(expected_change)
        for report, reference_norms in zip(reports, norms, strict=True):
            assert report.norms[side] == pytest.approx(reference_norms[side], rel=3 * tolerance)


class Together:
    """Workers that are threads of this process: real sums between them, in the order in which they arrive."""

    def __init__(self, size: int) -> None:
        self.size, self.barrier, self.lock, self.shared = size, threading.Barrier(size), threading.Lock(), None

    def rank(self, rank: int) -> "_Rank":
        return _Rank(self, rank)


class _Rank:
    def __init__(self, group: Together, rank: int) -> None:
        self.group, self.rank, self.size = group, rank, group.size

    def unite(self, touched: torch.Tensor) -> None:
        self._reduce(touched, torch.logical_or)

    def add_up(self, values: torch.Tensor) -> None:
        self._reduce(values, torch.add)

    def _reduce(self, values: torch.Tensor, combine) -> None:
        group = self.group
        if group.barrier.wait() == 0:
            group.shared = None
        group.barrier.wait()
        with group.lock:
            group.shared = values.clone() if group.shared is None else combine(group.shared, values)
        group.barrier.wait()
        values.copy_(group.shared)


def run(recipe: Recipe, batches: list[list[PairBatch]], size: int, table_rows: int = TRIGRAMS) -> list[bytes]:
    """The bytes of each worker's raw state after all updates."""
    group, states = Together(size), [start(recipe, len(batches), table_rows) for _ in range(size)]
    for towers in states[1::2]:  # workers need not hold their towers in one order: it once mixed their gradients up
        for name in list(towers.rows)[:-1]:
            towers.rows[name] = towers.rows.pop(name)
    failures = []

    def worker(rank: int) -> None:
        try:
            for update, batch in enumerate(batches, start=1):
                share = WorkerShare(batch[rank::size], update, len(batch), group.rank(rank))
                large_update(states[rank], share)
        except BaseException as error:
            failures.append(error)
            group.barrier.abort()

    threads = [threading.Thread(target=worker, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise next((f for f in failures if not isinstance(f, threading.BrokenBarrierError)), failures[0])
    return [
        b"".join(
            part
            for _, rows in sorted(towers.rows.items())
            for part in (
                rows.parameters.numpy().tobytes(),
                rows.velocity.numpy().tobytes(),
                rows.last.numpy().tobytes(),
            )
        )
        for towers in states
    ]


ATTENTIVE = {"tower": "self_attentive", "attention_units": 3, "hops": 2, "penalty": 0.5}


MAX_POOLED = {"tower": "max_pooled"}
VARIATIONAL = {"tower": "variational", "latent": 3}


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [{}, {"tie_towers": True}, ATTENTIVE, MAX_POOLED, VARIATIONAL],
    ids=["two towers", "one", "attentive", "max-pooled", "variational"],
)
def test_any_number_of_workers_gives_the_same_bytes(changes):
    recipe = varied(RECIPE, dtype="float32", **changes)
    made = Minibatches(6, recipe)
    [alone] = run(recipe, made.batches, 1)
    for size in (2, 3, 5):  # five workers, four micro-batches: one has nothing to do
        assert run(recipe, made.batches, size) == [alone] * size


def test_fast_reduction_is_equal_up_to_rounding():
    recipe = replace(RECIPE, reduction="fast")
    made = Minibatches(4, recipe)
    alone, three = (np.frombuffer(run(recipe, made.batches, size)[0], np.float64) for size in (1, 3))
    np.testing.assert_allclose(three, alone, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("reduction", ["exact", "fast"])
def test_parameters_that_are_not_finite_end_the_run_on_every_worker(reduction):
    recipe = replace(RECIPE, reduction=reduction)
    towers = start(recipe, 10)
    towers.rows["query"].parameters[-1, 0] = float("nan")
    made = Minibatches(1, recipe)
    with pytest.raises(StageError, match="finite") as caught:
        large_update(towers, WorkerShare(made.batches[0], 1, 4, Workers()))
    assert "step" in caught.value.fix


@pytest.mark.parametrize("rows", [slice(6, 17), torch.tensor([0, 3, 4, 8, 9, 15, 16, 20, 21, 23, 29])])
def test_blocks_of_rows_are_each_row_once_with_its_values(monkeypatch, rows):
    monkeypatch.setattr(threads, "BLOCK", 4)
    monkeypatch.setattr(threads, "BLOCKS_AT_ONCE", 3)  # rows
    matrix = torch.arange(120.0).reshape(30, 4)
    values, visited = matrix[rows].clone(), torch.zeros(30, dtype=torch.int64)
    blocks = list(blocks_of(rows, values))
    assert [len(block) for _, block in blocks] == [3, 3, 3, 2]
    for part, block in blocks:
        assert torch.equal(matrix[part], block)
        visited[part] += 1
    expected = torch.zeros(30, dtype=torch.int64)
    expected[rows] = 1
    assert torch.equal(visited, expected)
