"""From shards to what a micro-batch computes: negatives apart and shared, weights, and who may know of whom."""

import os
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch
from numpy.testing import assert_array_equal

from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.shard import EXCLUSIONS, PAIRS, POOL, TEXTS, open_table
from clicktower.schemas.stage import open_result
from clicktower.training.model.parameters import Encoder, initial_parameters, layout_of
from clicktower.training.model.recipe import Recipe
from clicktower.training.trainer.click_loss import pair_batch, pair_gradient
from clicktower.training.trainer.shard_data import Order, Pairs, ShardData, apart, load_shards, pair_lengths, pairs_of
from tests.recipes import recipe_with, varied
from tests.training.small_shards import shop, write_build
from tests.training.towers.dense import dense
from tests.training.trainer.test_large_update import run

torch.set_num_threads(1)
RECIPE = recipe_with(name="small", cells=8, epochs=1, minibatch=32, micro_batch=8, step=0.02, gamma=4.0)
POOL_RECIPE = varied(RECIPE, negatives="pool", pool_size=20)
SOFTMAX = varied(POOL_RECIPE, pool_softmax=True)
SHARED = pytest.mark.parametrize("recipe", [POOL_RECIPE, SOFTMAX], ids=["n of the pool", "all of the pool"])


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> str:
    pairs, titles = shop(110)
    pool = titles[::4]
    # A query for which people clicked 50 of the pool's 60 titles: of 20 some three are left, in most pools less than n.
    hot = [("anything at all", title, titles[:4]) for title in pool[5:55]]
    folder = str(tmp_path_factory.mktemp("build"))
    return open_result(write_build(folder, {"train-00000": pairs[:70], "train-00001": pairs[70:] + hot}, pool)).data


def epoch(data: ShardData, recipe: Recipe, number: int = 0) -> list[list]:
    lengths = [pair_lengths(shard) for shard in data.train]
    return Order(lengths=lengths, micro_batch=recipe.micro_batch, minibatch=recipe.minibatch, seed=recipe.seed).epoch(
        number
    )


def micro_batches(data: ShardData, recipe: Recipe, number: int = 0) -> list:
    return [micro_batch for minibatch in epoch(data, recipe, number) for micro_batch in minibatch]


def texts_of(folder: str) -> list[str]:
    return open_table(f"{folder}/texts.arrow", TEXTS)["text"].to_pylist()


def same(left: Pairs, right: Pairs) -> None:
    for one, other in zip((left.queries, *left.documents), (right.queries, *right.documents), strict=True):
        assert_array_equal(one[1], other[1])
    assert_array_equal(left.candidates, right.candidates)


@SHARED
def test_shared_negatives_are_unclicked_titles_of_one_pool(shards, recipe):
    data = load_shards(shards, recipe)
    pool_texts, seen, short = texts_of(f"{shards}/pool"), set(), 0
    titles = [pool_texts[row] for row in open_table(f"{shards}/pool/pool.arrow", POOL)["text"].to_pylist()]
    for micro_batch in micro_batches(data, recipe):
        folder = f"{shards}/train-{micro_batch.shard:05d}"
        texts, table = texts_of(folder), open_table(f"{folder}/pairs.arrow", PAIRS).to_pylist()
        excluded = open_table(f"{folder}/exclusions.arrow", EXCLUSIONS)["rows"].to_pylist()
        found = pairs_of(micro_batch, data, recipe, 0)
        (_, negatives), (_, clicked) = found.documents
        shared = [pool_texts[text] for text in negatives]
        assert len(shared) == len(set(shared)) <= recipe.clicks.negatives.size  # each once
        documents = shared + [texts[text] for text in clicked]
        used = set()
        for row, candidates in zip(micro_batch.pairs, found.candidates.tolist(), strict=True):
            pair = table[row]
            assert documents[candidates[0]] == texts[pair["clicked"]]
            against = [documents[c] for c in candidates[1:] if c >= 0]
            allowed = set(titles) - {titles[at] for at in excluded[pair["exclusion"]]}
            assert set(against) <= allowed
            if recipe.clicks.negatives.softmax:
                assert set(against) == set(shared) & allowed
            else:
                assert len(against) == len(set(against)) <= recipe.clicks.num_negatives
                short += len(against) < recipe.clicks.num_negatives
            used |= set(candidates)
        assert used - {-1} == set(range(len(documents)))  # nothing is encoded for nobody
        seen |= set(shared)
    assert len(seen) > 2 * recipe.clicks.negatives.size  # pools differ
    assert recipe.clicks.negatives.softmax or 0 < short <= 50  # the query that nearly everything was clicked for


@pytest.mark.slow
@SHARED
def test_a_pool_says_the_same_as_its_negatives_given_apart(shards, recipe):
    double = replace(recipe, dtype="float64")
    data = load_shards(shards, double)
    shared = pairs_of(micro_batches(data, double)[0], data, double, 0)
    (pool_texts, titles), (texts, clicked) = shared.documents
    assert len(set(shared.candidates[:, 1:].ravel().tolist()) - {-1}) < (shared.candidates[:, 1:] >= 0).sum()
    layout = layout_of(double, data.word_rows.trigram_rows)
    matrices = {name: initial_parameters(layout, name) for name in double.objective.towers}
    encoder = Encoder.of(layout, matrices)
    for row in (0, 5):
        candidates = shared.candidates[row][shared.candidates[row] >= 0]
        query = (shared.queries[0], shared.queries[1][[row]])
        one = apart(query, (texts, clicked[candidates[:1] - len(titles)]), (pool_texts, titles[candidates[None, 1:]]))
        alone = replace(shared, queries=query, candidates=shared.candidates[[row]])
        expected, loss = pair_gradient(pair_batch(one), encoder)
        found, found_loss = pair_gradient(pair_batch(alone), encoder)
        torch.testing.assert_close(found_loss, loss)
        for (_, left), (_, right) in zip(found, expected, strict=True):
            torch.testing.assert_close(dense(left, layout), dense(right, layout))


@SHARED
def test_what_a_micro_batch_shares_depends_on_seed_epoch_and_its_place_alone(shards, recipe):
    data = load_shards(shards, recipe)
    larger = replace(recipe, minibatch=recipe.micro_batch * 2)
    for one, other in zip(micro_batches(data, recipe, 3), micro_batches(data, larger, 3), strict=True):
        assert one.place == other.place
        same(pairs_of(one, data, recipe, 3), pairs_of(other, data, larger, 3))
    first = micro_batches(data, recipe)[0]
    shared = {
        tuple(pairs_of(batch, data, made, number).documents[0][1].tolist())
        for batch, made, number in (
            (first, recipe, 0),
            (first, recipe, 1),
            (first, replace(recipe, seed=2), 0),
            (replace(first, place=first.place + 1), recipe, 0),
        )
    }
    assert len(shared) == 4


@pytest.mark.slow
@SHARED
def test_any_number_of_workers_gives_the_same_bytes(shards, recipe):
    weighed = varied(recipe, weights="log_clicks")
    data = load_shards(shards, weighed)
    batches = [[pair_batch(pairs_of(m, data, weighed, 0)) for m in minibatch] for minibatch in epoch(data, weighed)]
    [alone] = run(weighed, batches, 1, data.word_rows.trigram_rows)
    for size in (2, 3, 5):
        assert run(weighed, batches, size, data.word_rows.trigram_rows) == [alone] * size


def with_columns(shards: str, folder: str, **columns) -> str:
    """A copy of a build's data whose pairs have other columns."""
    shutil.copytree(shards, folder)
    for number in range(2):
        path = f"{folder}/train-{number:05d}/pairs.arrow"
        table = open_table(path, PAIRS)
        for name, values in columns.items():
            values = pa.array(np.resize(values, len(table)), PAIRS.field(name).type)
            table = table.set_column(PAIRS.get_field_index(name), PAIRS.field(name), values)
        with pa.ipc.new_file(f"{path}.new", PAIRS) as writer:
            writer.write_table(table)
        os.replace(f"{path}.new", path)  # the table is still mapped from the old one
    return folder


def test_shards_of_eight_negatives_serve_fewer_and_no_more(tmp_path):
    pairs, titles = shop(20, num_negatives=8)
    folder = open_result(write_build(str(tmp_path), {"train-00000": pairs}, titles)).data
    known = {(query, clicked): negatives for query, clicked, negatives in pairs}
    texts = texts_of(f"{folder}/train-00000")
    for n in (2, 4, 6, 8):
        recipe = varied(RECIPE, negatives="fixed", num_negatives=n)
        data = load_shards(folder, recipe)
        for micro_batch in micro_batches(data, recipe, 3):
            found = pairs_of(micro_batch, data, recipe, 3)
            (_, queries), ((_, clicked), (_, negatives)) = found.queries, found.documents
            for query, title, of_pair in zip(queries, clicked, negatives.reshape(-1, n), strict=True):
                assert [texts[at] for at in of_pair] == list(known[texts[query], texts[title]][:n])
    with pytest.raises(StageError, match="hold 8 for each pair") as caught:
        load_shards(folder, varied(RECIPE, negatives="fixed", num_negatives=9))
    assert "build --set num_negatives=9" in caught.value.fix


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ("none", None),
        ("clicks", [0.5, 3, 8]),
        ("log_clicks", [0.5, 2.098612, 3.079442]),  # 1 + ln 3, 1 + ln 8
    ],
)
@pytest.mark.parametrize("negatives", ["redrawn", "fixed", "pool"])
def test_pairs_carry_the_weights_that_the_recipe_names(shards, tmp_path, weights, expected, negatives):
    data_folder = with_columns(shards, str(tmp_path / "data"), weight=[0.5, 3, 8])
    recipe = varied(RECIPE, weights=weights, negatives=negatives)
    data = load_shards(data_folder, recipe)
    micro_batch = micro_batches(data, recipe)[1]
    found = pairs_of(micro_batch, data, recipe, 0).weights
    if expected is None:
        assert found is None
    else:
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, np.array(expected)[micro_batch.pairs % 3], rtol=1e-6)


def test_weights_weigh_the_gradient(shards, tmp_path):
    data_folder = with_columns(shards, str(tmp_path / "data"), weight=[0.5, 2, 0])
    recipe = varied(RECIPE, weights="clicks", dtype="float64")
    data = load_shards(data_folder, recipe)
    layout = layout_of(recipe, data.word_rows.trigram_rows)
    matrices = {name: initial_parameters(layout, name) for name in recipe.objective.towers}
    encoder = Encoder.of(layout, matrices)
    pairs = pairs_of(micro_batches(data, recipe)[0], data, recipe, 0)
    _, loss = pair_gradient(pair_batch(pairs), encoder)
    alone = [
        pair_gradient(pair_batch(replace(pairs, weights=np.eye(8, dtype=np.float32)[at])), encoder)[1].item()
        for at in range(8)
    ]
    assert loss.item() == pytest.approx(sum(w * one for w, one in zip(pairs.weights.tolist(), alone, strict=True)))


@pytest.mark.parametrize("wrong", [-1.0, float("nan"), float("inf")])
def test_a_weight_that_is_no_weight_is_an_error(shards, tmp_path, wrong):
    data_folder = with_columns(shards, str(tmp_path / "data"), weight=[1] * 69 + [wrong])
    with pytest.raises(StageError, match="1 of 70 pairs"):
        load_shards(data_folder, varied(RECIPE, weights="clicks"))
    load_shards(data_folder, RECIPE)  # nobody asks for them


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"pool_size": 20}, "no field objective.negatives.size of this kind, but of pool"),
        ({"pool_softmax": True}, "no field objective.negatives.softmax of this kind, but of pool"),
        ({"negatives": "pool", "pool_size": 3}, "pool's size must be at least num_negatives"),
        ({"negatives": "pool", "micro_batch": 2}, "pool's size must be at least num_negatives"),
        ({"negatives": "pool", "pool_size": -1}, "objective.negatives.size"),
        ({"weights": "rank"}, "weights"),
    ],
)
def test_settings_that_mean_nothing_are_refused(changes, field):
    with pytest.raises(UsageError, match=field):
        varied(RECIPE, **changes)
