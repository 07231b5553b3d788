"""Training end to end on small shards, in one process."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, UnknownVersionError, UsageError
from clicktower.schemas.judgments import Judged
from clicktower.schemas.manifest import to_bytes
from clicktower.schemas.shard import ListedExclusions, draw
from clicktower.schemas.stage import open_result
from clicktower.training.model.model import load_model
from clicktower.training.trainer import clicks, shard_data
from clicktower.training.trainer.shard_data import load_shards
from tests.recipes import recipe_with, varied
from tests.training.small_shards import shop, write_build, write_shop
from tests.training.trainings import train

torch.set_num_threads(1)
RECIPE = recipe_with(name="small", cells=8, epochs=4, minibatch=32, micro_batch=8, step=0.02, clip_norm=20.0)


@pytest.fixture(scope="module")
def shop_shards(tmp_path_factory) -> str:
    return write_shop(str(tmp_path_factory.mktemp("build")), 300, 40, first=180, labels={"simulated": True})


@pytest.fixture(scope="module")
def trained(shop_shards, tmp_path_factory):
    output = []
    store = str(tmp_path_factory.mktemp("store"))
    return train(shop_shards, store=store, recipe=RECIPE, threads=1, progress=lambda *what: output.append(what)), output


def curves(result) -> list[dict]:
    return json.loads(storage.read_bytes(f"{result.data}/curves.json"))


def weights(result) -> bytes:
    return storage.read_bytes(f"{result.data}/model.safetensors")


def test_the_output_of_another_stage_is_refused_by_its_name(trained, tmp_path):
    with pytest.raises(UsageError, match="the output of train"):
        train(trained[0].folder, store=str(tmp_path), recipe=RECIPE)
    assert list(tmp_path.iterdir()) == []


def test_loss_goes_down_and_held_out_clicks_are_ranked_far_better_than_at_random(trained):
    points = curves(trained[0])
    assert [point["epoch"] for point in points] == [1, 2, 3, 4]
    assert points[-1]["train_loss"] < points[0]["train_loss"] / 2
    assert points[-1]["dev_loss"] < points[0]["dev_loss"]
    # One clicked title among about five: a random order puts it first one time in five.
    assert points[-1]["dev_ndcg@1"] > 0.8


def test_the_loss_after_an_epoch_is_that_of_the_finished_model_over_all_pairs_and_changes_none_of_its_bytes(tmp_path):
    """Against eq. 5 in NumPy, of the texts as the model encodes them; two shards, of which one is measured in parts."""
    first, (second, pool) = shop(40, seed=3)[0], shop(90)
    build = write_build(str(tmp_path), {"train-00000": first, "train-00001": second}, pool)
    recipe = varied(RECIPE, negatives="fixed", num_negatives=3, epochs=2)
    plain = train(build, store=str(tmp_path), recipe=recipe, threads=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clicks, "_BLOCK_PAIRS", 64)
        result = train(build, store=str(tmp_path), recipe=varied(recipe, loss_after_epoch=True), threads=1)
    assert weights(result) == weights(plain)
    assert result.manifest.digest != plain.manifest.digest
    assert "loss_after_epoch" not in plain.manifest.request.config["recipe"]["objective"]  # as before it existed
    assert all("train_loss_after" not in point for point in curves(plain))
    model = load_model(result.data)
    losses = []
    for query, clicked, negatives in [*first, *second]:
        (q,), documents = model.encode([query], "query"), model.encode([clicked, *negatives[:3]], "document")
        r = documents @ q / np.linalg.norm(documents, axis=1) / np.linalg.norm(q)
        losses.append(np.log1p(np.exp(-recipe.clicks.gamma * (r[0] - r[1:])).sum()))
    before, last = (point["train_loss_after"] for point in curves(result))
    assert last == pytest.approx(np.mean(losses), rel=1e-4)
    assert last < before


def test_the_same_request_is_answered_from_the_store(shop_shards, trained):
    again = train(shop_shards, store=os.path.dirname(os.path.dirname(trained[0].folder)), recipe=RECIPE, threads=1)
    assert again.reused
    assert again.data == trained[0].data


def test_another_step_is_another_request(shop_shards, trained, tmp_path):
    other = train(shop_shards, store=str(tmp_path), recipe=varied(RECIPE, step=0.01, epochs=1), threads=1)
    assert other.manifest.digest != trained[0].manifest.digest


def test_manifest_carries_labels_counts_and_how_it_was_computed(trained):
    outcome = trained[0].manifest.outcome
    assert outcome.labels == {"simulated": True}
    assert outcome.counts == {"pairs": 300, "updates": 40}  # (23 + 15 micro-batches of 8) / 4 = 10 an epoch
    assert outcome.metrics["threads"] == 1
    assert outcome.metrics["watched"] == "held-out clicks"
    assert "torch" in trained[0].manifest.software


def test_progress_counts_pairs_to_the_end(trained):
    output = trained[1]
    assert output[-1][1:] == (1_200, 1_200)
    assert "epoch 4/4" in output[-1][0]
    assert "dev" in output[-1][0]
    assert [done for _, done, _ in output] == sorted(done for _, done, _ in output)


def test_tensorboard_reads_the_same_curves(trained):
    events = EventAccumulator(f"{trained[0].data}/curves").Reload()
    for name, tag in (("train_loss", "train_loss"), ("dev_loss", "dev_loss"), ("dev_ndcg@10", "dev_ndcg_at_10")):
        found = [(event.step, event.value) for event in events.Scalars(tag)]
        assert dict(found) == pytest.approx({p["epoch"]: p[name] for p in curves(trained[0])})


def test_model_folder_encodes(trained):
    model = load_model(trained[0].data)
    query = model.encode(["steel mallet"], "query")[0]
    hammer, rug = model.encode(["steel hammer no 2", "oak rug no 3"], "document")

    def cosine(a, b):
        return a @ b / np.linalg.norm(a) / np.linalg.norm(b)

    assert cosine(query, hammer) > cosine(query, rug)


def test_checkpoints_are_gone_after_the_commit(trained):
    assert sorted(os.listdir(trained[0].folder)) == sorted(["manifest.json", trained[0].manifest.attempt])


class Killed(BaseException):
    """What a test raises where a process would die."""


@pytest.mark.slow
def test_a_run_that_was_interrupted_goes_on_and_ends_with_the_same_bytes_and_curves(shop_shards, trained, tmp_path):
    def killer(at: int):
        def progress(what, done, total):
            if done >= at:
                raise Killed

        return progress

    settings = {"store": str(tmp_path), "recipe": RECIPE, "threads": 1, "checkpoint_seconds": 0.0}
    for pairs in (400, 900):  # in the middle of epochs 2 and 3 (the last update told is not always the last made)
        with pytest.raises(Killed):
            train(shop_shards, progress=killer(pairs), **settings)
    again = train(shop_shards, store=str(tmp_path), recipe=RECIPE, threads=1)
    assert again.manifest.outcome.metrics["resumed_at"] >= 29
    assert weights(again) == weights(trained[0])
    for found, expected in zip(curves(again), curves(trained[0]), strict=True):
        for name in ("train_loss", "dev_loss", "dev_ndcg@1", "updates", "gradient_norm_query"):
            assert found[name] == pytest.approx(expected[name], rel=1e-12)


@pytest.mark.slow
def test_the_number_of_threads_does_not_show_in_the_bytes(shop_shards, trained, tmp_path):
    several = train(shop_shards, store=str(tmp_path), recipe=RECIPE, threads=3)
    assert weights(several) == weights(trained[0])
    assert several.manifest.digest == trained[0].manifest.digest


@pytest.mark.slow
def test_shuffled_clicks_teach_nothing(shop_shards, trained, tmp_path):
    shuffled = train(shop_shards, store=str(tmp_path), recipe=varied(RECIPE, shuffle_clicks=True), threads=1)
    assert curves(shuffled)[-1]["dev_ndcg@1"] < 0.5 < curves(trained[0])[-1]["dev_ndcg@1"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"tower": "rnn", "step": 0.005},
        {"tie_towers": True},
        {"negatives": "fixed", "num_negatives": 2},
        {"negatives": "pool"},
        {"negatives": "pool", "pool_size": 32, "pool_softmax": True, "weights": "log_clicks"},
        {"max_words": 3},
        {"reduction": "fast"},
        {"dtype": "float64"},
        {"tower": "bag", "start": "idf", "tie_towers": True},
        {"tower": "self_attentive", "attention_units": 6, "hops": 2, "penalty": 0.01},
        {"tower": "max_pooled"},
        {"tower": "variational", "latent": 8},
        {"start": "idf"},
    ],
)
def test_variants_learn_too(shop_shards, tmp_path, changes):
    recipe = varied(RECIPE, micro_batch=32, **changes)
    points = curves(train(shop_shards, store=str(tmp_path), recipe=recipe, threads=1))
    assert points[-1]["train_loss"] < points[0]["train_loss"]
    assert points[-1]["dev_ndcg@1"] > 0.5


def test_redrawn_negatives_are_the_keyed_draw_of_the_epoch(shop_shards):
    data = load_shards(open_result(shop_shards).data, RECIPE)
    shard, pairs = data.train[1], np.array([5, 0, 7])
    of_pair = [shard.exclusions.take(shard.exclusion[[p]]).values.tolist() for p in pairs]
    lists = pa.array(of_pair, pa.list_(pa.int32()))
    listed = ListedExclusions.of(lists, len(data.pool))
    expected = draw(shard.keys[pairs], np.arange(3), listed, n=4, seed=1, epoch=3)
    assert np.array_equal(data.redraw(shard, pairs, n=4, seed=1, epoch=3), data.pool[expected])
    assert not np.array_equal(data.redraw(shard, pairs, n=4, seed=1, epoch=4), data.pool[expected])


def test_without_dev_pairs_training_says_that_nothing_was_watched(tmp_path):
    pairs, pool = shop(64)
    shop_shards = write_build(str(tmp_path), {"train-00000": pairs}, pool)
    result = train(shop_shards, store=str(tmp_path), recipe=replace(RECIPE, epochs=1), threads=1)
    assert result.manifest.outcome.metrics["watched"] == "nothing: no dev pairs, no judgments"
    assert curves(result)[0]["dev_loss"] is None


def write_judged(folder, documents: str, queries: str, qrels: str) -> Judged:
    for name, text in (("documents.tsv", documents), ("queries.tsv", queries), ("qrels.txt", qrels)):
        (folder / name).write_text(text)
    return Judged(documents=f"{folder}/documents.tsv", queries=f"{folder}/queries.tsv", qrels=f"{folder}/qrels.txt")


@pytest.mark.slow
def test_judged_documents_are_watched_where_they_are_given(shop_shards, tmp_path):
    judged = write_judged(
        tmp_path,
        documents="a\toak rug no 3\nb\tsteel hammer no 2\nc\tsteel tap no 1\n",
        queries="q1\tsteel mallet\n",
        qrels="q1 0 a 0\nq1 0 b 3\nq1 0 c 0\nq1 0 unknown 0\nq2 0 a 1\n",
    )
    result = train(shop_shards, store=str(tmp_path), recipe=RECIPE, threads=1, judged=judged)
    assert result.manifest.outcome.metrics["watched"] == "judgments"
    assert curves(result)[-1]["dev_ndcg@1"] == 1.0
    assert curves(result)[-1]["dev_loss"] is not None


# What a user can get wrong.


def test_judged_files_that_are_not_there_are_wrong_usage(shop_shards, tmp_path):
    judged = Judged(documents=str(tmp_path / "none.tsv"), queries="none", qrels="none")
    with pytest.raises(UsageError, match="There is no file"):
        train(shop_shards, store=str(tmp_path), recipe=RECIPE, judged=judged)


def test_fewer_pairs_than_a_micro_batch_is_an_error_that_says_what_to_do(tmp_path):
    pairs, pool = shop(5)
    shop_shards = write_build(str(tmp_path), {"train-00000": pairs}, pool)
    with pytest.raises(StageError, match=r"shards hold 5.*one full micro-batch \(8 pairs\).*micro_batch=5"):
        train(shop_shards, store=str(tmp_path), recipe=RECIPE, threads=1)
    assert not storage.list_files(f"{tmp_path}/train")


def test_more_fixed_negatives_than_the_shards_hold_is_an_error(shop_shards, tmp_path):
    recipe = varied(RECIPE, negatives="fixed", num_negatives=5)
    with pytest.raises(StageError, match="num_negatives=4"):
        train(shop_shards, store=str(tmp_path), recipe=recipe, threads=1)


@pytest.mark.parametrize("workers", [0, -1])
def test_no_workers_is_wrong_usage(shop_shards, tmp_path, workers):
    with pytest.raises(UsageError, match="at least 1"):
        train(shop_shards, store=str(tmp_path), recipe=RECIPE, workers=workers)


def test_a_folder_that_is_no_build_is_refused(tmp_path):
    with pytest.raises(StageError, match="manifest"):
        train(str(tmp_path), store=str(tmp_path), recipe=RECIPE, threads=1)


@pytest.mark.parametrize("file", ["train-00001/pairs.arrow", "pool/words.arrow", "catalogue.json"])
def test_a_missing_or_cut_file_of_the_shards_is_an_error(shop_shards, tmp_path, file):
    data = str(tmp_path / "data")
    shutil.copytree(open_result(shop_shards).data, data)
    content = Path(data, file).read_bytes()
    Path(data, file).write_bytes(content[: len(content) // 2])
    with pytest.raises(StageError, match=r"unreadable|readable"):
        load_shards(data, RECIPE)
    os.remove(f"{data}/{file}")
    with pytest.raises(StageError, match=r"missing|readable"):
        load_shards(data, RECIPE)


@pytest.mark.parametrize("change", [{"schema_version": "2.0"}, {"schema_version": "4.0"}, {"text_contract": "2.0"}])
def test_shards_of_another_major_version_are_refused(shop_shards, tmp_path, change):
    data = str(tmp_path / "data")
    shutil.copytree(open_result(shop_shards).data, data)
    catalogue = json.loads(Path(data, shard_data.CATALOGUE).read_text())
    Path(data, shard_data.CATALOGUE).write_text(json.dumps(catalogue | change))
    with pytest.raises(UnknownVersionError):
        load_shards(data, RECIPE)


def test_a_table_too_small_for_the_ids_is_an_error(shop_shards, tmp_path):
    data = str(tmp_path / "data")
    shutil.copytree(open_result(shop_shards).data, data)
    catalogue = json.loads(Path(data, shard_data.CATALOGUE).read_text())
    Path(data, shard_data.CATALOGUE).write_text(json.dumps(catalogue | {"table_rows": 1_000}))
    with pytest.raises(StageError, match="1,000 rows"):
        load_shards(data, RECIPE)


@pytest.mark.parametrize(
    ("query", "judgment", "problem"),
    [
        ("q9", "q1 0 a 3", "None of the query ids of the 1 judged queries is in the queries file"),
        ("q1", "q1 0 z 3", "None of the 1 judged documents is among the 1 documents"),
        ("q1", "q1 0 a 0", "None of the 1 judgments of 1 queries has a grade above 0"),
    ],
)
def test_judgments_that_join_nothing_are_refused_before_training(shop_shards, tmp_path, query, judgment, problem):
    judged = write_judged(tmp_path, "a\toak rug\n", f"{query}\tsteel mallet\n", f"{judgment}\n")
    with pytest.raises(StageError, match=problem):
        train(shop_shards, store=str(tmp_path), recipe=RECIPE, threads=1, judged=judged)
    assert not storage.list_files(f"{tmp_path}/train")


def test_a_curve_holds_no_number_that_json_does_not_know():
    with pytest.raises(ValueError, match="JSON"):
        to_bytes([{"dev_ndcg@10": float("nan")}])
