"""Sweeps end to end on small shards: trials in processes of their own, what diverges, what dies, what is reused."""

import json
import os
import signal
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import wait

import pytest

from clicktower.schemas import manifest, storage
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.judgments import Judged
from clicktower.schemas.manifest import Outcome, Request
from clicktower.schemas.stage import open_result, run_stage
from clicktower.training.model.recipe import Compute
from clicktower.training.sweep.sweep_stage import UnfinishedSweep, plan, sweep
from clicktower.training.sweep.sweep_table import Point, Trial
from clicktower.training.sweep.trial_process import Processes, TrialOutcome, TrialProcess, TrialStatus
from tests.recipes import recipe_with, varied
from tests.training.small_shards import shop, write_build, write_shop
from tests.training.sweep.dying_trial import die
from tests.training.sweep.trials_here import here
from tests.training.trainings import train
from tests.waiting import SECONDS

RECIPE = recipe_with(name="small", cells=8, epochs=2, minibatch=32, micro_batch=32, step=0.02)


@pytest.fixture(scope="module")
def shop_shards(tmp_path_factory) -> str:
    return write_shop(str(tmp_path_factory.mktemp("build")), 120, 30, labels={"simulated": True})


def point(**fields) -> Point:
    return Point(fields=fields, recipes=(varied(RECIPE, **fields),))


# A gradient is γ times a difference: with γ = 1e6 it leaves the fixed point of the exact sum at the first update.
POINTS = [point(gamma=1e6), point(step=0.02), point(step=0.001)]


@pytest.fixture(scope="module")
def swept(shop_shards, tmp_path_factory):
    """(result, store, what was told of each trial, the result of the one trained by hand before)."""
    store = str(tmp_path_factory.mktemp("store"))
    by_hand = train(shop_shards, store=store, recipe=POINTS[1].recipes[0], threads=1)
    reported: list[tuple[dict, Trial, int, int]] = []
    result = sweep(
        shop_shards,
        POINTS,
        store=store,
        measure="dev_ndcg@10",
        compute=Compute(threads=1),
        at_once=2,
        trial_ended=lambda point, *rest: reported.append((dict(point.fields), *rest)),
    )
    return result, store, reported, by_hand


@pytest.mark.slow
def test_one_that_diverges_stops_nobody_and_is_shown_with_its_reason(swept):
    rows = swept[0].manifest.outcome.metrics["rows"]
    assert [row["fields"] for row in rows][-1] == {"gamma": 1e6}
    [trial] = rows[-1]["trials"]
    assert trial["measures"] is None
    assert "not finite, or above" in trial["failed"]
    assert all(row["trials"][0]["measures"]["dev_ndcg@10"] > 0 for row in rows[:-1])
    assert swept[0].manifest.outcome.counts == {
        "points": 3,
        "trials": 3,
        "trials_reused": 1,
        "trials_diverged": 1,
        "trials_stopped_early": 0,
    }
    assert swept[0].manifest.outcome.labels == {"simulated": True}


@pytest.mark.slow
def test_a_trial_that_was_trained_by_hand_counts(swept):
    result, store, reported, by_hand = swept
    assert reported[0][0] == {"step": 0.02}  # what is there is told first
    assert reported[0][1].reused
    assert [(done, total) for _, _, done, total in reported] == [(1, 3), (2, 3), (3, 3)]
    [row] = [row for row in result.manifest.outcome.metrics["rows"] if row["fields"] == {"step": 0.02}]
    assert row["trials"][0]["digest"] == by_hand.manifest.digest
    assert row["mean"] == by_hand.manifest.outcome.metrics["dev_ndcg@10"]
    assert sorted(os.listdir(f"{store}/train")) == sorted(
        row["trials"][0]["digest"] for row in _rows(result) if row["mean"] is not None
    )


def _rows(result) -> list[dict]:
    return result.manifest.outcome.metrics["rows"]


@pytest.mark.slow
def test_a_trial_is_what_train_would_have_made(shop_shards, swept, tmp_path):
    """Another process, another store: the same bytes."""
    alone = train(shop_shards, store=str(tmp_path), recipe=POINTS[2].recipes[0], threads=1)
    [row] = [row for row in _rows(swept[0]) if row["fields"] == {"step": 0.001}]
    there = open_result(f"{swept[1]}/train/{row['trials'][0]['digest']}")
    model = [storage.read_bytes(f"{result.data}/model.safetensors") for result in (alone, there)]
    assert model[0] == model[1]
    assert row["mean"] == alone.manifest.outcome.metrics["dev_ndcg@10"]


@pytest.mark.slow
def test_the_table_is_in_the_store_for_programs_and_for_people(swept):
    result = swept[0]
    table = json.loads(storage.read_bytes(f"{result.data}/sweep.json"))
    assert table["rows"] == json.loads(json.dumps(_rows(result)))
    assert manifest.damaged_files(result.folder, result.manifest.files, hashes=True) == []


@pytest.mark.slow
def test_the_same_sweep_is_reused_whatever_its_order_and_a_larger_one_takes_its_trials(shop_shards, swept):
    result, store, *_ = swept
    again = sweep(shop_shards, POINTS[::-1], store=store, measure="dev_ndcg@10")
    assert again.reused
    assert again.manifest.digest == result.manifest.digest
    larger = plan(shop_shards, [*POINTS, point(step=0.5)], store=store, measure="dev_ndcg@10")
    assert [(dict(p.fields), there) for p, [(_, there)] in larger] == [
        ({"gamma": 1e6}, False),  # a trial that diverged has left no model
        ({"step": 0.02}, True),
        ({"step": 0.001}, True),
        ({"step": 0.5}, False),
    ]


@pytest.mark.slow
def test_a_trial_that_dies_leaves_the_sweep_unfinished_with_the_others_kept(shop_shards, swept, tmp_path, monkeypatch):
    """As when memory runs out. The same sweep again tries only that one, and is finished."""
    _, store, *_ = swept
    points = [*POINTS[1:], point(step=0.004)]
    monkeypatch.setattr("clicktower.training.sweep.trial_process._work", die)
    with pytest.raises(UnfinishedSweep, match="The training of the trial was ended by signal") as caught:
        sweep(shop_shards, points, store=store, measure="dev_ndcg@10", compute=Compute(threads=1))
    monkeypatch.setattr("clicktower.training.sweep.sweep_stage.Processes", lambda at_once, gpus: here())
    assert [row.fields for row in caught.value.rows if row.mean is not None] == [
        row["fields"] for row in _rows(swept[0])[:-1]
    ]
    assert os.listdir(f"{store}/sweep") == [swept[0].manifest.digest]
    done = sweep(shop_shards, points, store=store, measure="dev_ndcg@10", compute=Compute(threads=1))
    assert done.manifest.outcome.counts["trials_reused"] == 2
    assert all(row["mean"] is not None for row in _rows(done))


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["asked to", "nobody listens"])
def test_a_trial_ends_with_the_one_that_started_it_and_clears_its_attempt_away(shop_shards, tmp_path, ending):
    long = replace(RECIPE, epochs=10_000)
    arguments = {"shards": shop_shards, "store": str(tmp_path), "recipe": long, "compute": Compute(threads=1)}
    arguments["checkpoint_seconds"] = 0.0
    with TrialProcess(arguments) as trial:
        reported = trial.read()
        while (
            isinstance(reported, TrialStatus) and reported.count < 240
        ):  # two epochs of 120 pairs, so that there is a checkpoint
            reported = trial.read()
        assert isinstance(reported, TrialStatus)
        process = trial._process
        if ending == "nobody listens":  # as when the one that started it is killed
            trial.pipe.close()
            process.join(SECONDS)
            assert process.exitcode == 0
    assert process.exitcode == (128 + signal.SIGTERM if ending == "asked to" else 0)
    [folder] = (tmp_path / "train").iterdir()
    assert [entry.name for entry in folder.iterdir()] == ["checkpoints"]


def test_trials_of_one_machine_take_the_gpu_with_the_fewest_of_them(monkeypatch):
    taken, pipes = [], {}

    class Trial:
        def __init__(self, arguments, gpu):
            taken.append(gpu)
            self.pipe, pipes[arguments["number"]] = Pipe(duplex=False)

        def __enter__(self):
            return self

        def __exit__(self, *_): ...

        def read(self):
            return TrialOutcome()

    monkeypatch.setattr("clicktower.training.sweep.trial_process.TrialProcess", Trial)
    with Processes(4, range(2)) as place:
        for number in range(4):
            place.start((1, number), {"number": number})
        pipes[1].close()  # the second ends
        assert place.news() == [((1, 1), TrialOutcome())]
        place.start((1, 4), {"number": 4})
    assert taken == [0, 1, 0, 1, 1]
    with Processes(1) as place:
        place.start((1, 5), {"number": 5})
    assert taken[-1] is None


def test_a_trial_tells_an_error_as_it_was_raised(shop_shards, tmp_path):
    arguments: dict = {"shards": shop_shards, "store": str(tmp_path), "recipe": POINTS[0].recipes[0]}
    with TrialProcess(arguments | {"compute": Compute(device="tpu")}) as trial:  # type: ignore[arg-type]
        assert wait([trial.pipe], SECONDS)
        ended = trial.read()
    assert isinstance(ended, TrialOutcome)
    assert isinstance(ended.error, UsageError)
    assert "no device named" in ended.error.problem


def test_what_was_not_measured_cannot_choose(tmp_path):
    pairs, pool = shop(40)
    shop_shards = write_build(str(tmp_path / "build"), {"train-00000": pairs}, pool)
    store = str(tmp_path / "store")
    train(shop_shards, store=store, recipe=RECIPE, threads=1)
    with pytest.raises(StageError, match=r"has no dev_loss to compare the trials by."):
        sweep(shop_shards, [point(step=0.02)], store=store, measure="dev_loss")


@pytest.mark.parametrize(("measure", "with_judgments"), [("dev_loss", True), ("dev_ndcg@10", False)])
def test_shards_without_held_out_pairs_are_refused_before_anything_is_trained(tmp_path, measure, with_judgments):
    request = Request(stage="build", stage_version=1, config={}, inputs={})
    shop_shards = run_stage(str(tmp_path), request, lambda folder: Outcome(counts={"dev_pairs": 0})).folder
    judged = Judged(documents="d", queries="q", qrels="r") if with_judgments else None
    with pytest.raises(UsageError, match="Build with a dev_share above 0, or give judged"):
        sweep(shop_shards, POINTS, store=str(tmp_path), measure=measure, judged=judged)


def test_no_trials_at_once_is_refused(shop_shards, tmp_path):
    with pytest.raises(UsageError, match="at least 1"):
        sweep(shop_shards, POINTS, store=str(tmp_path), measure="dev_loss", at_once=0)


@pytest.mark.parametrize(
    ("qrels", "problem"),
    [
        ("q2 0 a 1\n", "None of the query ids of the 1 judged queries is in the queries file"),
        ("q1 0 a 1\nq1 0 b 1\n", "Each of the 1 judged queries has documents of one single grade"),
    ],
)
def test_judgments_that_cannot_choose_are_refused_before_any_trial(shop_shards, tmp_path, qrels, problem):
    files = {"documents": "a\toak rug\nb\tsteel tap\n", "queries": "q1\tsteel mallet\n", "qrels": qrels}
    for name, text in files.items():
        (tmp_path / f"{name}.tsv").write_text(text)
    judged = Judged(**{name: f"{tmp_path}/{name}.tsv" for name in files})
    store = tmp_path / "store"
    with pytest.raises(StageError, match=problem) as error:
        sweep(shop_shards, POINTS, store=str(store), measure="dev_ndcg@10", judged=judged)
    assert not isinstance(error.value, UnfinishedSweep)
    assert not storage.list_files(f"{store}/train")
