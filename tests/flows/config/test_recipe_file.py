"""A recipe in a file, as a sweep writes it: for `train --recipe`, and for a pipeline."""

import re
import tomllib

import pytest

from clicktower.flows.commands.stages import train
from clicktower.flows.config.pipeline_config import read_pipeline
from clicktower.flows.config.toml_file import recipe_named
from clicktower.schemas.errors import UsageError
from clicktower.training.model.recipe import Recipe, names, recipe
from clicktower.training.sweep.sweep_stage import best_toml
from tests.recipes import recipe_with, varied

PIPELINE = """
[log]
files = ["log.jsonl"]
[documents]
file = "documents.tsv"
[judgments]
queries = "queries.tsv"
qrels = "qrels.txt"
"""


@pytest.mark.parametrize("name", names())
def test_a_named_recipe_is_in_the_help_of_train(name):
    assert re.search(rf"(?<![\w-]){name}(?![\w-])", train.__doc__)


def written(of: Recipe, **fields) -> str:
    row = {"fields": fields, "mean": 0.5}
    return best_toml({"rows": [row], "measure": "dev_loss", "watched": "judgments"}, of)


@pytest.mark.parametrize("name", names())
def test_what_a_sweep_writes_is_the_whole_recipe(tmp_path, name):
    asked = varied(recipe(name), step=1e-05, clip_norm=7.5, seed=3, epochs=2)
    path = tmp_path / "best.toml"
    path.write_text(written(asked, **{"optimiser.step": 1e-05, "optimiser.clip_norm": 7.5}), encoding="utf-8")
    assert recipe_named(str(path)) == (asked, None)
    assert recipe_named(name) == (recipe(name), None)


def test_a_recipe_of_somebodys_own_is_written_as_one(tmp_path):
    asked = recipe_with(name='of "mine"', cells=8, forget_gate=True)
    path = tmp_path / "best.toml"
    path.write_text(written(asked), encoding="utf-8")
    assert recipe_named(str(path)) == (asked, None)


def test_it_is_a_section_of_a_pipeline_and_a_pipeline_can_name_it(tmp_path):
    text = written(varied(recipe("lstm-64"), step=0.003), **{"optimiser.step": 0.003})
    (tmp_path / "pasted.toml").write_text(PIPELINE + text, encoding="utf-8")
    pasted = read_pipeline(str(tmp_path / "pasted.toml")).train
    assert (pasted.recipe, pasted.set["optimiser.step"]) == ("lstm-64", 0.003)
    assert set(tomllib.loads(text)) == {"train"}
    (tmp_path / "best.toml").write_text(text, encoding="utf-8")
    (tmp_path / "named.toml").write_text(PIPELINE + '[train]\nrecipe = "best.toml"\n', encoding="utf-8")
    named = read_pipeline(str(tmp_path / "named.toml")).train
    assert named.recipe == str(tmp_path / "best.toml")


def test_word_vectors_are_relative_to_the_file_that_names_them(tmp_path):
    text = '[train]\nrecipe = "lstm-96"\nword_vectors = "vectors.txt"\n'
    (tmp_path / "best.toml").write_text(text, encoding="utf-8")
    (tmp_path / "pipeline.toml").write_text(PIPELINE + text, encoding="utf-8")
    assert recipe_named(str(tmp_path / "best.toml")) == (recipe("lstm-96"), str(tmp_path / "vectors.txt"))
    assert read_pipeline(str(tmp_path / "pipeline.toml")).train.word_vectors == str(tmp_path / "vectors.txt")


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (None, "There is no recipe file"),
        ("[train", "not TOML"),
        ("step = 1", "train is missing"),
        ('[train]\nrecipe = "lstm-95"', "no recipe .lstm-95."),
        ('[train]\nrecipe = "lstm-96"\n[train.set]\nsteps = 1', "no field steps .did you mean optimiser.step"),
        (
            '[train]\nrecipe = "lstm-96"\n[train.set]\noptimiser.step = -1',
            "optimiser.step is -1: it must be greater than 0",
        ),
        ('[train]\nrecipe = "lstm-96"\n[train.set.tower]\ncells = 0', "tower.cells is 0"),
        ('[train]\nrecipe = "lstm-96"\n[train.set]\nnum_negatives = 1', "did you mean objective.num_negatives"),
        ('[train]\nrecipe = "lstm-96"\nepochs = 3', r"the field train.epochs is unknown"),
    ],
)
def test_a_file_that_is_no_recipe_is_refused_by_name(tmp_path, content, found):
    path = tmp_path / "best.toml"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(UsageError, match=found) as caught:
        recipe_named(str(path))
    assert str(path) in caught.value.problem
