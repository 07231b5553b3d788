"""Shards, recipes and models that do not fit each other: every error says what was asked, found, and what to do."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from clicktower.schemas.errors import Diverged, StageError, UsageError
from clicktower.schemas.judgments import Judged
from clicktower.schemas.labelled_shard import labelled_schema
from clicktower.schemas.shard import open_table
from clicktower.schemas.stage import open_result
from clicktower.training.model.recipe import Recipe
from clicktower.training.towers.tower_settings import SIGMA_MIN
from clicktower.training.trainer import classify, generate
from clicktower.training.trainer.generate import divergence
from clicktower.training.trainer.labelled_shards import load_labelled
from clicktower.training.trainer.shard_data import MicroBatch, Order
from tests.recipes import recipe_with, varied
from tests.training.towers.dense import dense
from tests.training.trainer.examples import labelled_case, rephrasing_case
from tests.training.trainer.labelled_builds import built, questions
from tests.training.trainer.objective_recipes import GENERATE, PAIRS, TEXTS
from tests.training.trainings import train

torch.set_num_threads(1)
REFORMULATE = varied(GENERATE, reformulate=True, paraphrase="same")


@pytest.fixture(scope="module")
def values_build(tmp_path_factory) -> str:
    lines = [(a, b, str(float(label == "same"))) for a, b, label in questions(40)]
    return built(tmp_path_factory.mktemp("values"), lines, label="value")


@pytest.fixture
def copied(pairs_build, tmp_path) -> Path:
    """The data of a build, to be damaged."""
    return Path(shutil.copytree(open_result(pairs_build).data, tmp_path / "data"))


def rewrite(folder: Path, change) -> None:
    """The rows of every training shard, changed."""
    for path in folder.glob("train-*/labelled.arrow"):
        schema = labelled_schema("pairs", "class")
        columns = [column.to_numpy().copy() for column in open_table(str(path), schema).columns]
        with pa.ipc.new_file(str(path), schema) as writer:
            writer.write_table(pa.table(change(*columns), schema=schema))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "recipe", "found"),
    [
        ("clicks_build", PAIRS, r"Give the folder that `clicktower build-labelled` printed."),
        ("pairs_build", recipe_with(name="clicks", cells=4), r"is the output of build-labelled."),
        ("texts_build", PAIRS, "Use plain for texts, and w2, siamese or gated"),
        ("pairs_build", TEXTS, "Use plain for texts, and w2, siamese or gated"),
        ("values_build", PAIRS, "learns classes, and the labels of these shards are values.*--label-kind class"),
        ("texts_build", REFORMULATE, "class 'same'.*these shards hold single texts.*or objective.reformulate=false"),
        ("pairs_build", varied(REFORMULATE, paraphrase="alike"), "class 'alike'.* of these shards are other, same"),
        ("values_build", REFORMULATE, "the classes of these shards are none"),
        ("clicks_build", REFORMULATE, "class 'same', and clicks have no classes"),
    ],
)  # fmt: skip
def test_shards_that_a_recipe_cannot_be_trained_on_are_refused(build, recipe, found, request, tmp_path):
    with pytest.raises(UsageError, match="(?i)" + found):
        train(request.getfixturevalue(build), store=str(tmp_path), recipe=recipe, threads=1)
    assert not list(tmp_path.glob("train/*/manifest.json"))


def test_a_setting_that_a_recipe_s_objective_has_no_use_for_is_refused():
    for changes, found in [
        ({"shuffle_clicks": True}, "no field objective.shuffle_clicks of this kind, but of clicks"),
        ({"num_negatives": 8}, "no field objective.num_negatives of this kind, but of clicks"),
        ({"tie_towers": False}, "no field objective.tie_towers of this kind, but of clicks"),
        ({"features": "w2"}, "Tower must be variational, not bilstm"),
        ({"pretrain_epochs": 2}, "Tower must be variational, not bilstm"),
        ({"l1": -1.0}, "objective.l1 is -1.0: it must be greater than or equal to 0"),
        ({"dropout": 1.0}, "objective.dropout is 1.0: it must be less than 1"),
    ]:
        with pytest.raises(UsageError, match=found):
            varied(PAIRS, **changes)
    with pytest.raises(UsageError, match=r"Tower must be variational, not bilstm"):
        varied(GENERATE, tower="bilstm")
    with pytest.raises(UsageError, match=r"paraphrase must be unset without reformulate"):
        varied(GENERATE, paraphrase="same")
    with pytest.raises(UsageError, match=r"no field objective\.head of this kind, but of classify"):
        varied(Recipe(name="clicks"), head_units=4)


def test_judged_files_and_two_starts_are_refused_before_anything_is_read(pairs_build, clicks_build, tmp_path):
    judged = Judged(documents="d", queries="q", qrels="r")
    with pytest.raises(UsageError, match=r"NDCG cannot be watched.*the objective classify is watched on held-out rows"):
        train(pairs_build, store=str(tmp_path), recipe=PAIRS, judged=judged)
    both = varied(GENERATE, objective="classify", features="w2", head_units=4, pretrain_epochs=1)
    with pytest.raises(UsageError, match=r"it begins with 1 epochs of its own.*Set objective.pretrain=none"):
        train(pairs_build, store=str(tmp_path), recipe=both, start=clicks_build)


def test_labels_that_are_none_of_the_classes_are_refused(copied):
    def wrong(first, second, label):
        label[:3] = (-1, 2, 7)
        return [first, second, label]

    rewrite(copied, wrong)
    with pytest.raises(StageError, match=r"3 of \d+ rows of a shard in .* have a label outside the 2 classes"):
        load_labelled(str(copied), PAIRS)


def test_damaged_shards_and_too_few_rows_are_refused(copied):
    with pytest.raises(StageError, match=r"at least one full micro-batch \(1,000 rows\).*or set micro_batch=\d+"):
        load_labelled(str(copied), replace(PAIRS, micro_batch=1_000, minibatch=1_000))
    catalogue = json.loads((copied / "labelled.json").read_text())
    (copied / "labelled.json").write_text(json.dumps(catalogue | {"table_rows": 5}))
    with pytest.raises(StageError, match=r"Trigram id [\d,]+ is not below the 5 rows"):
        load_labelled(str(copied), PAIRS)
    (copied / "labelled.json").write_text(json.dumps({k: v for k, v in catalogue.items() if k != "shards"}))
    with pytest.raises(StageError, match=r"A file is missing or unreadable.*build-labelled"):
        load_labelled(str(copied), PAIRS)


def test_rows_that_are_all_one_pair_are_one_text_and_one_class(copied):
    """A micro-batch of duplicates encodes two texts; one of a single class has a finite gradient."""
    rewrite(copied, lambda first, second, label: [np.full_like(first, first[0]), np.full_like(second, second[0]),
                                                  np.zeros_like(label)])  # fmt: skip
    task = classify.load(str(copied), PAIRS)
    batch = classify.batch(task.examples(MicroBatch(0, np.arange(8), 0), epoch=0))
    assert len(batch.texts.order) == 2
    assert [len(side) for side in batch.sides] == [8, 8]
    assert not batch.labels.any()

    task = generate.load(str(copied), GENERATE)
    order = Order(lengths=task.lengths, micro_batch=8, minibatch=32, seed=1)
    assert order.num_pairs == 2  # each text as itself, once
    assert [len(micro_batch.pairs) for minibatch in order.epoch(0) for micro_batch in minibatch] == [2]


def test_a_pair_of_one_text_with_itself_and_one_class_alone_have_finite_gradients():
    recipe = varied(PAIRS, dtype="float64", dropout=0.0)
    case = labelled_case(recipe)
    same = replace(case.examples, sides=(np.zeros(5, int), np.zeros(5, int)), labels=np.zeros(5, int), masks=None)
    ((_, gradient),), loss = classify.batch(same).gradient(case.encoder(), 1)
    assert torch.isfinite(dense(gradient, case.layout)).all()
    # Five times the loss of one, since all are alike.
    one = replace(same, sides=(np.zeros(1, int), np.zeros(1, int)), labels=np.zeros(1, int))
    assert float(loss) == pytest.approx(5 * float(classify.batch(one).gradient(case.encoder(), 1)[1]))


def test_a_deviation_that_underflows_is_the_least_one_and_its_divergence_finite():
    """softplus(-1000) is 0 in any precision: σ = 0.001, and KL = ½ (σ² - 1 - ln σ²) + ½ μ² of each dimension."""
    case = rephrasing_case(replace(GENERATE, dtype="float64"))
    table, parts = case.layout.split(case.matrix)
    flat = {"W_sigma": torch.zeros_like(parts["W_sigma"]), "b_sigma": torch.full_like(parts["b_sigma"], -1000.0)}
    matrix = case.layout.join(table, {**parts, **flat})
    ((_, gradient),), loss = case.batch.gradient(case.encoder(matrix), 1)
    assert torch.isfinite(dense(gradient, case.layout)).all()
    assert torch.isfinite(loss)
    sigma = torch.full((1, 6), SIGMA_MIN, dtype=torch.float64)
    assert divergence(torch.zeros_like(sigma), sigma).item() == pytest.approx(6 * 0.5 * (1e-6 - 1 - 2 * np.log(1e-3)))


def test_a_run_that_runs_away_names_the_rows_it_came_from(pairs_build, tmp_path):
    away = varied(PAIRS, optimiser="nesterov", step=1e5)
    with pytest.raises(Diverged, match=r"is rows [\d, ]+.* of train-00000/labelled\.arrow"):
        train(pairs_build, store=str(tmp_path), recipe=away, threads=1)
