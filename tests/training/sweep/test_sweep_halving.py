"""Halving: who goes on follows from the figures alone, whatever was there before, came first, or died on the way."""

import json
from typing import Any

import pytest

from clicktower.schemas import storage
from clicktower.schemas.errors import StoppedEarly, UsageError
from clicktower.schemas.section import changed
from clicktower.schemas.stage import open_result, stage_folder
from clicktower.training.model.recipe import Compute
from clicktower.training.sweep.sweep_stage import Halving, Rung, UnfinishedSweep, read_curve, rungs_of, sweep
from clicktower.training.sweep.sweep_table import Point, cells, notes
from clicktower.training.trainer.launch import train_request
from tests.recipes import recipe_with, varied
from tests.training.small_shards import write_shop
from tests.training.sweep.trials_here import here
from tests.training.trainings import train

RECIPE = recipe_with(name="small", cells=8, epochs=4, minibatch=32, micro_batch=32, step=0.02)
STEPS = (0.002, 0.02, 0.001, 0.008, 0.0005)
POINTS = [
    Point(fields={"step": step}, recipes=[varied(RECIPE, step=step, seed=seed) for seed in (1, 2)]) for step in STEPS
]
HALVING = Halving(eta=2)


@pytest.fixture(scope="module")
def shop_shards(tmp_path_factory) -> str:
    return write_shop(str(tmp_path_factory.mktemp("build")), 120, 30)


@pytest.mark.parametrize(
    ("halving", "points", "epochs", "expected"),
    [
        (None, 9, 10, [(9, 10)]),
        (Halving(), 9, 10, [(9, 1), (3, 3), (1, 10)]),
        (Halving(eta=2, min_epochs=2), 5, 10, [(5, 2), (3, 4), (2, 8), (1, 10)]),
        (Halving(eta=4, min_epochs=3), 6, 20, [(6, 3), (2, 12), (1, 20)]),
        (Halving(), 27, 9, [(27, 1), (9, 3), (3, 9)]),  # the last rung is the end for all who are in it
        (Halving(), 1, 10, [(1, 10)]),
        (Halving(min_epochs=10), 9, 10, [(9, 10)]),
    ],
)
def test_rungs(halving, points, epochs, expected):
    assert rungs_of(halving, points, epochs) == [Rung(points=p, epochs=e) for p, e in expected]


@pytest.mark.parametrize("wrong", [{"eta": 1}, {"min_epochs": 0}])
def test_halving_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(UsageError, match=f"The field {next(iter(wrong))} is"):
        changed(Halving(), wrong)


@pytest.mark.slow
def test_training_that_stops_early_keeps_a_checkpoint_and_goes_on_to_the_same_bytes(shop_shards, tmp_path):
    whole = train(shop_shards, store=str(tmp_path / "whole"), recipe=RECIPE, threads=1)
    store, request = str(tmp_path / "store"), train_request(open_result(shop_shards), RECIPE)
    for epochs in (1, 3, 2):  # 2: is behind it already
        with pytest.raises(StoppedEarly, match=f"stopped after {epochs} of 4 epochs"):
            train(shop_shards, store=store, recipe=RECIPE, threads=1, stop_after=epochs)
    checkpoints = f"{stage_folder(store, request)}/checkpoints"
    kept = read_curve(checkpoints, request.digest)
    assert read_curve(checkpoints, "another request") == []
    result = train(shop_shards, store=store, recipe=RECIPE, threads=1, stop_after=4)  # that is the end
    assert result.manifest.digest == whole.manifest.digest == request.digest
    assert result.manifest.outcome.metrics["resumed_at"] == 3 * 4  # 120 pairs in minibatches of 32
    curves = [json.loads(storage.read_bytes(f"{r.data}/curves.json")) for r in (whole, result)]
    assert [point["dev_loss"] for point in kept] == [point["dev_loss"] for point in curves[0][:3]]
    assert [point["dev_loss"] for point in curves[0]] == [point["dev_loss"] for point in curves[1]]
    models = [storage.read_bytes(f"{r.data}/model.safetensors") for r in (whole, result)]
    assert models[0] == models[1]


@pytest.fixture(scope="module")
def full(shop_shards, tmp_path_factory) -> tuple[str, dict[float, list[list[float]]]]:
    """A store with all trials trained to the end, and their dev losses after each epoch, by step and seed."""
    store = str(tmp_path_factory.mktemp("full"))
    losses = {}
    for point in POINTS:
        results = [train(shop_shards, store=store, recipe=recipe, threads=1) for recipe in point.recipes]
        curves = [json.loads(storage.read_bytes(f"{result.data}/curves.json")) for result in results]
        losses[point.fields["step"]] = [[at["dev_loss"] for at in curve] for curve in curves]
    return store, losses


@pytest.fixture
def halved(shop_shards, monkeypatch):
    """Sweeps by halving into a store; what is told of their rows, but for seconds."""

    def sweep_into(store: str, **settings: Any) -> list:
        monkeypatch.setattr("clicktower.training.sweep.sweep_stage.Processes", lambda at_once, gpus: here(**settings))
        result = sweep(
            shop_shards, POINTS, store=store, measure="dev_loss", halving=HALVING, compute=Compute(threads=1)
        )
        return _told(result.manifest.outcome.metrics["rows"])

    return sweep_into


def _told(rows: list[dict]) -> list:
    return [(row["fields"]["step"], row["mean"], row["rung"], [t["curve"] for t in row["trials"]]) for row in rows]


def expected(losses: dict[float, list[list[float]]]) -> list:
    """By hand: rungs of 5, 3 and 2 points after 1, 2 and 4 epochs, by the mean loss of both seeds."""

    def mean(step: float, epoch: int) -> float:
        return sum(curve[epoch - 1] for curve in losses[step]) / 2

    first = sorted(losses, key=lambda step: mean(step, 1))
    second = sorted(first[:3], key=lambda step: mean(step, 2))
    third = sorted(second[:2], key=lambda step: mean(step, 4))
    ended = [(step, 4, 2) for step in third] + [(second[2], 2, 1)] + [(step, 1, 0) for step in first[3:]]
    return [(step, mean(step, e), rung, [curve[:e] for curve in losses[step]]) for step, e, rung in ended]


@pytest.mark.slow
def test_the_best_go_on_and_the_others_are_told_with_how_far_they_came(shop_shards, full, halved, tmp_path):
    assert rungs_of(HALVING, 5, 4) == [Rung(points=5, epochs=1), Rung(points=3, epochs=2), Rung(points=2, epochs=4)]
    assert halved(str(tmp_path)) == expected(full[1])
    assert len(list(tmp_path.glob("train/*/manifest.json"))) == 4
    assert len(list(tmp_path.glob("train/*/checkpoints"))) == 6
    [table] = [json.loads(path.read_text()) for path in tmp_path.glob("sweep/*/*/sweep.json")]
    header, rows = cells(table)
    assert [row[header.index("epochs")] for row in rows] == ["4", "4", "2 of 4", "1 of 4", "1 of 4"]
    assert [row["told_apart"] for row in table["rows"][2:]] == [None] * 3  # figures of fewer epochs
    output = " ".join(notes(table))
    assert "3 of 5 after 1 epoch, 2 of 3 after 2 epochs went on" in output


@pytest.mark.slow
def test_who_goes_on_does_not_depend_on_who_is_first(full, halved, tmp_path):
    assert halved(str(tmp_path), order=lambda keys: keys[::-1]) == expected(full[1])


@pytest.mark.slow
def test_trainings_that_are_there_whole_count_and_change_nothing(full, halved):
    assert halved(full[0], dies=tuple((s, p) for s in range(2) for p in range(5))) == expected(full[1])


@pytest.mark.slow
def test_a_trial_that_could_not_be_carried_out_holds_its_rung_until_the_same_sweep_is_asked_again(
    full, halved, tmp_path
):
    """And so does one that is asked with another order: one point's seeds after the other's."""

    def by_point(keys: list) -> list:
        return sorted(keys, key=lambda key: key[1])

    with pytest.raises(UnfinishedSweep, match=r"There was no memory.") as caught:
        halved(str(tmp_path), order=by_point, dies=((1, 3),))
    assert {trial.epochs for row in caught.value.rows for trial in row.trials if not trial.failed} == {1}
    assert not list(tmp_path.glob("sweep/*/manifest.json"))
    assert halved(str(tmp_path), order=by_point) == expected(full[1])


@pytest.mark.slow
def test_a_point_that_diverges_does_not_go_on(shop_shards, tmp_path, monkeypatch):
    monkeypatch.setattr("clicktower.training.sweep.sweep_stage.Processes", lambda at_once, gpus: here())
    # A gradient is γ times a difference: with γ = 1e6 it leaves the fixed point of the exact sum at the first update.
    wild = [varied(RECIPE, gamma=gamma) for gamma in (1e6, 0.9e6)]
    points = [Point(fields={"gamma": recipe.clicks.gamma}, recipes=[recipe]) for recipe in [*wild, RECIPE]]
    result = sweep(
        shop_shards, points, store=str(tmp_path), measure="dev_ndcg@10", halving=HALVING, compute=Compute(threads=1)
    )
    rows = result.manifest.outcome.metrics["rows"]
    assert [(row["fields"]["gamma"], row["rung"], row["mean"] is None) for row in rows] == [
        (5.0, 2, False),
        *((gamma, 0, True) for gamma in (r["fields"]["gamma"] for r in rows[1:])),
    ]
