"""What a run tells and keeps besides the model: every step, event files. On small shards."""

import json
import socket
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from clicktower.schemas import storage
from clicktower.schemas.errors import Diverged
from clicktower.training.trainer.run_report import require_finite
from tests.recipes import recipe_with, varied
from tests.training.small_shards import write_shop
from tests.training.trainings import train

torch.set_num_threads(1)
RECIPE = recipe_with(name="small", cells=8, epochs=3, minibatch=32, micro_batch=8, step=0.02, clip_norm=12.0)
NOT_OF_TIME = ("update", "epoch", "pairs", "loss", "gradient_norm_query", "gradient_norm_document", "clipped_query",
               "clipped_document", "momentum", "sent_bytes")  # fmt: skip


@pytest.fixture(scope="module")
def shop_shards(tmp_path_factory) -> str:
    return write_shop(str(tmp_path_factory.mktemp("build")), 150, 20)


@pytest.fixture(scope="module")
def trained(shop_shards, tmp_path_factory):
    reported = []
    store = str(tmp_path_factory.mktemp("store"))
    return train(
        shop_shards, store=store, recipe=RECIPE, threads=1, progress=lambda *what: reported.append(what)
    ), reported


def steps(result) -> list[dict]:
    return [json.loads(line) for line in storage.read_bytes(f"{result.data}/steps.jsonl").splitlines()]


def curves(result) -> list[dict]:
    return json.loads(storage.read_bytes(f"{result.data}/curves.json"))


def weights(result) -> bytes:
    return storage.read_bytes(f"{result.data}/model.safetensors")


def test_steps_are_those_that_the_epochs_are_made_of(trained):
    lines, points = steps(trained[0]), curves(trained[0])
    assert [line["update"] for line in lines] == list(range(1, 16))  # 19 micro-batches of 8 are 5 minibatches
    assert [line["epoch"] for line in lines] == [1] * 5 + [2] * 5 + [3] * 5
    for point in points:
        of_epoch = [line for line in lines if line["epoch"] == point["epoch"]]
        assert sum(line["pairs"] for line in of_epoch) == 150
        loss = sum(line["loss"] * line["pairs"] for line in of_epoch) / 150
        assert point["train_loss"] == pytest.approx(loss, rel=1e-9)
        norms = [line["gradient_norm_query"] for line in of_epoch]
        assert point["gradient_norm_query"] == pytest.approx(sum(norms) / 5, rel=1e-12)
        clipped = [line["clipped_query"] or line["clipped_document"] for line in of_epoch]
        assert point["clipped_share"] == sum(clipped) / 5
        assert sum(line["seconds"] for line in of_epoch) == pytest.approx(point["seconds"], abs=1e-3)


def test_a_step_is_clipped_where_its_norm_is_above_the_bound(trained):
    lines = steps(trained[0])
    for line in lines:
        for tower in ("query", "document"):
            assert line[f"clipped_{tower}"] == (line[f"gradient_norm_{tower}"] > 12.0)
    assert {line["clipped_query"] for line in lines} == {False, True}, "both kinds are to be seen in this test"
    assert all(line["sent_bytes"] == 0 for line in lines), "one worker sends nothing"


def test_tensorboard_has_every_step(trained):
    events = EventAccumulator(f"{trained[0].data}/curves", size_guidance={"scalars": 0}).Reload()
    for name in ("loss", "gradient_norm_query", "clipped_document", "momentum", "pairs_per_second"):
        found = {event.step: event.value for event in events.Scalars(f"step/{name}")}
        assert found == pytest.approx({line["update"]: float(line[name]) for line in steps(trained[0])})
    of_loss = events.Scalars("step/loss")
    assert [event.wall_time for event in of_loss] == [line["unix_seconds"] for line in steps(trained[0])]
    (file,) = Path(trained[0].data, "curves").iterdir()
    assert socket.gethostname() not in file.name


def test_what_is_told_is_where_the_run_is_and_how_it_goes(trained):
    place, course = trained[1][-1][0].split("\n")
    assert place == "epoch 3/3, step 5/5, 0:00 left"
    last = steps(trained[0])[-1]
    assert f"gradient query {last['gradient_norm_query']:.3g} document {last['gradient_norm_document']:.3g}" in course
    assert f"loss {curves(trained[0])[-1]['train_loss']:.4g}" in course
    assert f"clipped {curves(trained[0])[-1]['clipped_share']:.0%}" in course
    assert "dev NDCG@10" in course


class Killed(BaseException):
    """What a test raises where a process would die."""


@pytest.mark.slow
def test_a_run_that_was_killed_twice_has_every_step_once(shop_shards, trained, tmp_path, monkeypatch):
    monkeypatch.setattr("clicktower.training.trainer.run_report.REPORT_SECONDS", 0.0)

    def killer(at: int):
        def progress(what, done, total):
            if done >= at:
                raise Killed

        return progress

    settings = {"store": str(tmp_path), "recipe": RECIPE, "threads": 1}
    for pairs, often in ((230, 0.0), (400, 0.0)):  # in the middle of epochs 2 and 3
        with pytest.raises(Killed):
            train(shop_shards, progress=killer(pairs), checkpoint_seconds=often, **settings)
    again = train(shop_shards, checkpoint_seconds=1e9, **settings)
    assert again.manifest.outcome.metrics["resumed_at"] >= 10
    assert [{k: line[k] for k in NOT_OF_TIME} for line in steps(again)] == [
        {k: line[k] for k in NOT_OF_TIME} for line in steps(trained[0])
    ]
    for found, expected in zip(curves(again), curves(trained[0]), strict=True):
        assert found["clipped_share"] == expected["clipped_share"]
        assert found["gradient_norm_document"] == pytest.approx(expected["gradient_norm_document"], rel=1e-12)
    events = EventAccumulator(f"{again.data}/curves", size_guidance={"scalars": 0}).Reload()
    assert [event.step for event in events.Scalars("step/loss")] == list(range(1, 16))


def test_a_run_in_an_object_store_has_its_steps_and_events_too(shop_shards, trained):
    result = train(shop_shards, store="memory://report", recipe=RECIPE, threads=1)
    assert [line["loss"] for line in steps(result)] == [line["loss"] for line in steps(trained[0])]
    assert [name.split(".")[0] for name in storage.list_files(f"{result.data}/curves")] == ["events"]


def test_figures_of_time_are_in_no_digest(shop_shards, trained, tmp_path):
    again = train(shop_shards, store=str(tmp_path), recipe=RECIPE, threads=1)
    assert steps(again) != steps(trained[0])  # when they were made differs
    assert again.manifest.digest == trained[0].manifest.digest
    assert again.manifest.outcome.logical_digest == trained[0].manifest.outcome.logical_digest


def test_one_tower_for_both_sides_has_one_norm(shop_shards, tmp_path):
    tied = train(shop_shards, store=str(tmp_path), recipe=varied(RECIPE, tie_towers=True, epochs=1, clip_norm=0.0))
    for line in steps(tied):
        assert [name for name in line if name.startswith("gradient_norm_")] == ["gradient_norm_shared"]
        assert line["clipped_shared"] is False


def test_a_figure_that_is_no_number_is_in_no_curve():
    require_finite({"dev_loss": None, "dev_ndcg@10": 0.5}, 0)
    for value in (float("nan"), float("inf")):
        with pytest.raises(Diverged, match=r"After epoch 3 the held-out dev_loss is not finite\."):
            require_finite({"dev_loss": value, "dev_ndcg@10": 0.5}, 2)
