"""Never a silently bad model: what goes wrong in a run ends it, or is recovered from, and says where it was."""

import errno
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from clicktower.schemas import storage
from clicktower.schemas.errors import Diverged, StageError, UsageError
from clicktower.schemas.stage import StageResult, open_result
from clicktower.training.model.parameters import initial_parameters, layout_of
from clicktower.training.trainer import job as arithmetic
from clicktower.training.trainer.checkpoint import Position, WriteError, list_updates, write_checkpoint
from clicktower.training.trainer.click_loss import pair_batch
from clicktower.training.trainer.clicks import ClickTask, WatchedClicks
from clicktower.training.trainer.culprit import name_culprit
from clicktower.training.trainer.job import COMPILED, REFERENCE, ROWS, arithmetic_of, require_served
from clicktower.training.trainer.large_update import Towers, require_sane
from clicktower.training.trainer.optimisers import LazyRows, MomentumSchedule
from clicktower.training.trainer.process_group import require_equal, state_sums
from clicktower.training.trainer.reference_path import ReferencePath
from clicktower.training.trainer.shard_data import Order, load_shards, pair_lengths, pairs_of
from tests.recipes import recipe_with, varied
from tests.training.small_shards import write_shop
from tests.training.trainer.test_large_update import Together
from tests.training.trainings import train
from tests.waiting import SECONDS

torch.set_num_threads(1)
ROOT = Path(__file__).parents[3]
RECIPE = recipe_with(name="small", cells=8, epochs=3, minibatch=32, micro_batch=8, step=0.02, clip_norm=20.0)


@pytest.fixture(scope="module")
def intact_shards(tmp_path_factory) -> str:
    return write_shop(str(tmp_path_factory.mktemp("build")), 150, 40, first=90)


@pytest.fixture
def damaged_shards(intact_shards, tmp_path) -> str:
    """A copy that a test may damage."""
    return shutil.copytree(intact_shards, str(tmp_path / os.path.basename(intact_shards)))


@pytest.fixture(scope="module")
def expected(intact_shards, tmp_path_factory) -> bytes:
    return weights(train(intact_shards, store=str(tmp_path_factory.mktemp("store")), recipe=RECIPE, threads=1))


def weights(result) -> bytes:
    return storage.read_bytes(f"{result.data}/model.safetensors")


@pytest.fixture(autouse=True)
def every_step_is_told(monkeypatch):
    monkeypatch.setattr("clicktower.training.trainer.run_report.REPORT_SECONDS", 0.0)


class Killed(BaseException):
    """What a test raises where a process would die."""


def once(pairs: int, act: Callable[[], None]) -> Callable[[str, int, int | None], None]:
    """A Progress that acts once, when so many pairs are done."""
    waiting = True

    def progress(what: str, done: int, total: int | None) -> None:
        nonlocal waiting
        if waiting and done >= pairs:
            waiting = False
            act()

    return progress


def killed() -> None:
    raise Killed


# Checkpoints.


@pytest.mark.slow
def test_a_damaged_checkpoint_is_told_of_and_the_one_before_leads_to_the_same_bytes(intact_shards, expected, tmp_path):
    settings = {"store": str(tmp_path), "recipe": RECIPE, "threads": 1, "checkpoint_seconds": 0.0}
    with pytest.raises(Killed):
        train(intact_shards, progress=once(200, killed), **settings)
    [folder] = map(str, tmp_path.glob("train/*/checkpoints"))
    newest, before = list_updates(folder)
    damaged = Path(folder, f"update-{newest:09d}.safetensors")
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")

    reported = []
    result = train(intact_shards, progress=lambda what, *_: reported.append(what), **settings)
    assert weights(result) == expected
    metrics = result.manifest.outcome.metrics
    assert metrics["resumed"] == [{"update": before, "workers": 1}]
    assert metrics["refused_checkpoints"] == [f"the checkpoint of update {newest} is damaged"]
    assert f"the checkpoint of update {newest} is damaged: went on from before it" in reported[-1]


@pytest.mark.slow
def test_a_killed_run_still_says_that_a_checkpoint_was_refused(intact_shards, tmp_path):
    settings = {"store": str(tmp_path), "recipe": RECIPE, "threads": 1, "checkpoint_seconds": 0.0}
    with pytest.raises(Killed):
        train(intact_shards, progress=once(200, killed), **settings)
    [folder] = map(str, tmp_path.glob("train/*/checkpoints"))
    newest, before = list_updates(folder)
    Path(folder, f"update-{newest:09d}.json").write_text("{")
    with pytest.raises(Killed):
        train(intact_shards, progress=once(350, killed), **settings)
    assert newest not in list_updates(folder)
    metrics = train(intact_shards, **settings).manifest.outcome.metrics
    assert metrics["refused_checkpoints"] == [f"the checkpoint of update {newest} cannot be read"]
    assert metrics["resumed"][0] == {"update": before, "workers": 1}
    assert len(metrics["resumed"]) == 2


@pytest.mark.slow
def test_a_full_disk_ends_the_run_and_the_next_one_goes_on(intact_shards, expected, tmp_path, monkeypatch):
    settings = {"store": str(tmp_path), "recipe": RECIPE, "threads": 1, "checkpoint_seconds": 0.0}
    sync, synced = os.fsync, 0

    def full(descriptor: int) -> None:
        nonlocal synced
        synced += 1
        if synced > 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WriteError, match=r"checkpoint of update \d+ .*No space left.* is whole"):
        train(intact_shards, **settings)
    monkeypatch.undo()
    result = train(intact_shards, **settings)
    assert result.manifest.outcome.metrics["resumed_at"] > 0
    assert weights(result) == expected


# Shards.


def overwrite(damaged_shards: str, file: str) -> None:
    path = Path(open_result(damaged_shards).data, file)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_shards_that_are_not_what_the_build_wrote_are_refused_by_name(damaged_shards, tmp_path):
    overwrite(damaged_shards, "train-00001/pairs.arrow")
    with pytest.raises(StageError, match=r"Before training.*train-00001/pairs.arrow has other bytes"):
        train(damaged_shards, store=str(tmp_path), recipe=RECIPE, threads=1)


@pytest.mark.parametrize(("pairs", "when"), [(100, "After epoch 1"), (350, "After epoch 3")])
def test_a_shard_that_changes_under_a_run_ends_it_by_name(damaged_shards, tmp_path, pairs, when):
    act = once(pairs, lambda: overwrite(damaged_shards, "pool/words.arrow"))
    with pytest.raises(StageError, match=rf"{when}.*pool/words.arrow has other bytes"):
        train(damaged_shards, store=str(tmp_path), recipe=RECIPE, threads=1, progress=act)
    assert not storage.list_files(f"{tmp_path}/train")


@pytest.mark.slow
def test_a_shard_that_changed_before_a_run_is_taken_up_again_ends_it(damaged_shards, expected, tmp_path):
    settings = {"store": str(tmp_path), "recipe": RECIPE, "threads": 1, "checkpoint_seconds": 0.0}
    with pytest.raises(Killed):
        train(damaged_shards, progress=once(200, killed), **settings)
    overwrite(damaged_shards, "train-00000/texts.arrow")
    with pytest.raises(StageError, match=r"train-00000/texts\.arrow"):
        train(damaged_shards, **settings)
    overwrite(damaged_shards, "train-00000/texts.arrow")  # the same bit again: as it was
    assert weights(train(damaged_shards, **settings)) == expected


# Numbers that run away.


def test_a_step_that_throws_the_towers_off_ends_the_run_and_names_update_micro_batch_and_file(intact_shards, tmp_path):
    recipe = varied(RECIPE, step=1e4, clip_norm=0.0)
    where = r"(?i)update 1 would move the \w+ tower.*micro-batch \d of 4 of update 1.*rows [\d, ]+ and 3 more of"
    with pytest.raises(Diverged, match=rf"{where} train-0000\d/pairs.arrow"):
        train(intact_shards, store=str(tmp_path), recipe=recipe, threads=1)


def test_an_update_may_be_as_long_as_the_parameters_but_no_longer():
    # 3 rows of 4 numbers in ±0.5 measure 0.5 √(12 / 3) = 1; half a gradient of norm 2 moves a tower by 1.
    recipe = varied(RECIPE, tower="bag", cells=4, initial_range=0.5, step=0.5, clip_norm=0.0)
    layout = layout_of(recipe, 3)
    require_sane(1.0, {"query": 2.0}, layout, 7)
    with pytest.raises(Diverged, match=r"Update 7 would move the query tower by 1\.01"):
        require_sane(1.0, {"query": 2.02}, layout, 7)
    held_down = layout_of(varied(recipe, clip_norm=2.0), 3)
    require_sane(1.0, {"query": 200.0}, held_down, 7)  # before it moves anything
    for loss, norm in ((float("nan"), 1.0), (1.0, float("inf")), (1.0, float("nan"))):
        with pytest.raises(Diverged, match="update 7 is not finite"):
            require_sane(loss, {"query": norm}, layout, 7)


@pytest.mark.parametrize("size", [1, 3])
def test_every_worker_names_the_micro_batch_that_is_not_finite(intact_shards, size):
    """A parameter of one word is NaN, and one micro-batch alone has that word."""
    data = load_shards(open_result(intact_shards).data, RECIPE)
    order = Order(lengths=[pair_lengths(shard) for shard in data.train], micro_batch=8, minibatch=32, seed=1)
    minibatch, path = order.epoch(0)[0], ReferencePath()
    batches = [path.prepare(pairs_of(m, data, RECIPE, 0)) for m in minibatch]
    touched = [batch.queries.rows.unique() for batch in batches]
    rows, micro_batches = torch.cat(touched).unique(return_counts=True)
    only_one = rows[micro_batches == 1]
    [culprit] = [number for number, rows in enumerate(touched) if torch.isin(only_one[0], rows)]
    layout = layout_of(RECIPE, data.word_rows.trigram_rows)
    rows = {t: LazyRows.start(initial_parameters(layout, t)) for t in RECIPE.objective.towers}
    rows["query"].parameters[only_one[0]] = float("nan")
    towers = Towers(layout=layout, rows=rows, schedule=MomentumSchedule(0.9, 0.9, 10), path=path)
    error = Diverged("The problem so far.", "Lower it.")

    task = ClickTask(data, RECIPE)
    group, found = Together(size), [""] * size

    def worker(rank: int) -> None:
        named = name_culprit(
            error, minibatch, 0, 9, task=task, batch_of=pair_batch, towers=towers, workers=group.rank(rank)
        )
        found[rank] = named.problem

    threads = [threading.Thread(target=worker, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = ", ".join(str(pair) for pair in minibatch[culprit].pairs[:5])
    assert (
        found
        == [
            f"The problem so far. Micro-batch {culprit + 1} of 4 of update 9, whose gradient is not finite, is rows"
            f" {rows} and 3 more of {data.train_names[minibatch[culprit].shard]}/pairs.arrow."
        ]
        * size
    )


# Workers that do not hold the same.


def state(flip: int = 0) -> dict[str, LazyRows]:
    rows = LazyRows.start(torch.arange(12, dtype=torch.float32).reshape(3, 4))
    rows.parameters.view(torch.int32)[1, 2] ^= flip
    return {"shared": rows}


def test_any_bit_of_a_state_shows_in_its_sums():
    assert state_sums(state()) == state_sums(state())
    for bit in range(31):
        assert state_sums(state(1 << bit)) != state_sums(state())
    moved = state()
    moved["shared"].velocity[0, 0] = 1e-30
    later = state()
    later["shared"].last[2] = 1
    assert state_sums(moved) != state_sums(state()) != state_sums(later)


def test_workers_of_unequal_state_end_the_run_and_drop_what_cannot_be_trusted(tmp_path):
    for update in (40, 60):
        write_checkpoint(str(tmp_path), "run", Position(update=update), state())
    group, errors = Together(3), []

    def worker(rank: int) -> None:
        try:
            rows = state(flip=rank == 2)
            require_equal(group.rank(rank), rows, update=80, since=50, checkpoints=str(tmp_path))
        except StageError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=worker, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == 3
    told = "After update 80 worker 3 of 3 holds another state than worker 1; after update 50 all were equal"
    assert told in errors[0]
    assert list_updates(str(tmp_path)) == [40]


# Held-out data.


def test_training_goes_on_while_an_epoch_is_measured(intact_shards, expected, tmp_path, monkeypatch):
    """The first measurement ends only when the second epoch has made a step, and nothing waits for it before that."""
    measure, stepped, waited = WatchedClicks.measure, threading.Event(), []

    def measure_late(self, encoder):
        waited.append(stepped.wait(SECONDS))
        return measure(self, encoder)

    monkeypatch.setattr(WatchedClicks, "measure", measure_late)
    result = train(intact_shards, store=str(tmp_path), recipe=RECIPE, threads=1, progress=once(182, stepped.set))
    assert waited == [True] * 3
    assert weights(result) == expected
    assert result.manifest.outcome.metrics["epoch"] == 3


@pytest.mark.slow
def test_measuring_is_of_the_towers_as_they_were(intact_shards, tmp_path):
    """Each epoch's figures are those of a run that ends there, though training has gone on meanwhile."""

    def points(result: StageResult) -> list[dict]:
        return json.loads(storage.read_bytes(f"{result.data}/curves.json"))

    constant = varied(RECIPE, momentum_edge=0.9, momentum_middle=0.9)
    whole = points(train(intact_shards, store=str(tmp_path), recipe=constant, threads=1))
    for epochs in (1, 2):
        ended = points(train(intact_shards, store=str(tmp_path), recipe=replace(constant, epochs=epochs), threads=1))
        assert [(p["dev_loss"], p["dev_ndcg@3"]) for p in ended] == [
            (p["dev_loss"], p["dev_ndcg@3"]) for p in whole[:epochs]
        ]


# Who adds up.


def test_a_path_is_part_of_the_request(intact_shards, tmp_path):
    torch_path = train(intact_shards, store=str(tmp_path), recipe=replace(RECIPE, epochs=1), threads=1, path="torch")
    assert torch_path.manifest.request.config["arithmetic"] == REFERENCE
    assert torch_path.manifest.outcome.metrics["arithmetic"] == REFERENCE
    with pytest.raises(UsageError, match="one of auto, compiled, torch"):
        train(intact_shards, store=str(tmp_path), recipe=RECIPE, path="fastest")


@pytest.mark.parametrize("serves", [True, False])
def test_auto_takes_the_compiled_path_where_it_serves_the_recipe(serves, monkeypatch):
    monkeypatch.setattr(arithmetic, "can_train", lambda recipe: serves)
    monkeypatch.setattr(arithmetic, "moves_rows", lambda recipe: serves)
    assert arithmetic_of("auto", RECIPE, "cpu") == (COMPILED if serves else REFERENCE)
    assert arithmetic_of("torch", RECIPE, "cpu") == REFERENCE
    assert arithmetic_of("auto", RECIPE, "cuda-eager") == "torch-cuda-3"
    assert arithmetic_of("auto", RECIPE, "cuda") == "triton-cuda-3"
    with pytest.raises(UsageError, match="on a CPU, and a GPU"):
        arithmetic_of("compiled", RECIPE, "cuda")
    if not serves:
        with pytest.raises(UsageError, match="--path auto"):
            arithmetic_of("compiled", RECIPE, "cpu")


def test_a_worker_that_cannot_add_up_as_the_others_do_says_so(monkeypatch):
    monkeypatch.setattr(arithmetic, "can_train", lambda recipe: False)
    monkeypatch.setattr(arithmetic, "moves_rows", lambda recipe: False)
    require_served(REFERENCE, RECIPE)
    for lacking in (COMPILED, ROWS):
        with pytest.raises(StageError, match=r"on its machine .*--path torch"):
            require_served(lacking, RECIPE)


# Asking again.


@pytest.mark.slow
def test_the_same_request_is_answered_without_starting_workers(intact_shards, tmp_path):
    train(intact_shards, store=str(tmp_path), recipe=RECIPE, threads=1)
    script = (
        "import json, sys\n"
        "from clicktower.training.model.recipe import Recipe\n"
        "from tests.training.trainings import train\n"
        "recipe = Recipe(**json.loads(sys.argv[3]))\n"
        "for workers in (1, 2, 'auto'):\n"
        "    assert train(sys.argv[1], store=sys.argv[2], recipe=recipe, workers=workers, in_cluster=True).reused\n"
        "assert 'ray' not in sys.modules\n"
    )
    given = [intact_shards, str(tmp_path), json.dumps(asdict(RECIPE))]
    subprocess.run([sys.executable, "-c", script, *given], cwd=ROOT, check=True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"workers": 2, "min_workers": 3}, r"more than the 2 that there are\. Give --min-workers 2 or fewer"),
        ({"workers": 2, "min_workers": 0}, r"workers to continue with are 0, .*Give --min-workers 1 or more"),
        ({"workers": 0}, r"The workers are 0, and must be at least 1\. Give --workers 1 or more"),
        ({"threads": 0}, r"The threads of each worker are 0, and must be at least 1\. Give --threads 1 or more"),
        ({"workers": 2, "min_workers": 1, "recipe": replace(RECIPE, reduction="fast")}, "depends on their number"),
        ({"workers": "auto", "recipe": replace(RECIPE, reduction="fast")}, "depends on their number"),
    ],
)
def test_numbers_of_workers_must_make_sense(intact_shards, tmp_path, settings, message):
    with pytest.raises(UsageError, match=message):
        train(intact_shards, store=str(tmp_path), **{"recipe": RECIPE, **settings})
