import math
from dataclasses import replace

import numpy as np
import pytest

from clicktower.schemas.stage import open_result
from clicktower.schemas.text_contract import trigram_ids
from clicktower.training.model.recipe import Recipe
from clicktower.training.trainer.clicks import rarity
from clicktower.training.trainer.shard_data import load_shards
from tests.recipes import recipe_with, varied
from tests.training.small_shards import TABLE_ROWS, write_build

RECIPE = recipe_with(name="small", tower="bag", cells=8, start="idf", num_negatives=1, minibatch=2, micro_batch=1)
PAIRS = [("aa", "ab", ["b"]), ("ab", "aa", ["b"])]


def weights_of(tmp_path, pool: list[str], recipe: Recipe = RECIPE) -> np.ndarray:
    build = write_build(str(tmp_path), {"train-00000": PAIRS}, pool)
    return rarity(load_shards(open_result(build).data, recipe))


def of_trigram(word: str, at: int) -> int:
    return int(trigram_ids([word], TABLE_ROWS)[1][at])


def test_weights_worked_by_hand(tmp_path):
    # Titles: "aa ab", "ab", "b b". Trigrams: aa -> #aa aa#, ab -> #ab ab#, b -> #b#.
    # df of 3 titles: #aa 1, aa# 1, #ab 2, ab# 2, #b# 1; idf = ln(1 + (3 - df + 0.5) / (df + 0.5))
    #   df 1: ln(1 + 2.5 / 1.5) = 0.980829;  df 2: ln(1 + 1.5 / 2.5) = 0.470004;  df 0: ln(1 + 3.5 / 0.5) = 2.079442
    # Occurrences: #aa, aa# 1 each; #ab, ab# 2 each; #b# 2. Mean square of the eight:
    #   (4 x 0.962026 + 4 x 0.220904) / 8 = 0.591465, its root 0.769068
    found = weights_of(tmp_path, ["aa ab", "ab", "b b"])
    assert found.dtype == np.float32
    assert found.shape == (TABLE_ROWS,)
    assert found[of_trigram("aa", 0)] == pytest.approx(0.980829 / 0.769068, rel=1e-5)
    assert found[of_trigram("b", 0)] == pytest.approx(0.980829 / 0.769068, rel=1e-5)
    assert found[of_trigram("ab", 1)] == pytest.approx(0.470004 / 0.769068, rel=1e-5)
    assert found[of_trigram("zz", 0)] == pytest.approx(2.079442 / 0.769068, rel=1e-5)


def test_a_title_that_several_documents_share_counts_once(tmp_path):
    build = write_build(str(tmp_path), {"train-00000": PAIRS}, ["aa ab", "ab", "b"])
    data = load_shards(open_result(build).data, RECIPE)
    twice = replace(data, pool=np.array([0, 1, 2, 1], np.int32))  # the second title is of two documents
    assert np.array_equal(rarity(data), rarity(twice))


def test_titles_counted_block_by_block_come_to_the_same(tmp_path, monkeypatch):
    pool = ["aa ab", "ab", "b b", "aa aa", "b ab", "zz"]
    at_once = weights_of(tmp_path, pool)
    monkeypatch.setattr("clicktower.training.trainer.clicks._BLOCK_TITLES", 2)
    assert np.array_equal(weights_of(tmp_path, pool), at_once)


def test_merging_the_words_of_a_long_title_changes_no_weight(tmp_path):
    pool = ["aa ab aa b", "ab", "b b b"]
    merged = weights_of(tmp_path / "merged", pool, replace(RECIPE, max_words=2))
    assert np.array_equal(weights_of(tmp_path / "whole", pool), merged)


@pytest.mark.slow
def test_before_training_a_bag_ranks_by_weighted_overlap(tmp_path):
    """The cosine of two texts is, to within 1/√d, that of their trigram counts times idf."""
    import torch

    from clicktower.training.model.model import Model
    from clicktower.training.model.parameters import initial_parameters, layout_of

    recipe = varied(RECIPE, cells=4_096, tie_towers=True)
    weights = weights_of(tmp_path, ["aa ab", "ab", "b b"], recipe)
    layout = layout_of(recipe, TABLE_ROWS)
    tower = initial_parameters(layout, "shared", weights)
    model = Model.of(layout, {"shared": tower})
    left, right = model.encode(["aa ab", "ab b"], "query")
    # Weighted counts: (aa 1.275347 twice, ab 0.611135 twice) and (ab 0.611135 twice, b 1.275347 once).
    dot, square, other = 2 * 0.611135**2, 2 * 1.275347**2 + 2 * 0.611135**2, 2 * 0.611135**2 + 1.275347**2
    expected = dot / math.sqrt(square * other)  # 0.2507
    assert torch.cosine_similarity(torch.from_numpy(left), torch.from_numpy(right), 0).item() == pytest.approx(
        expected, abs=4 / math.sqrt(4_096)
    )
