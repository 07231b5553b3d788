"""A tower that is no part of the package, whole in this file: the mean of its words' inputs, through tanh.

y = tanh(1/T Σ_t W l(t) + b)
"""

import json
import shutil
from dataclasses import asdict, dataclass
from typing import ClassVar, Literal

import numpy as np
import pytest
import torch

from clicktower.flows.releases.query_onnx import CannotExport, query_onnx
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.section import Count, changed, section
from clicktower.schemas.text_contract import trigram_ids, words
from clicktower.training.evaluation.evaluate_stage import EvaluateConfig, evaluate
from clicktower.training.model.model import load_model
from clicktower.training.model.recipe import Nesterov, Recipe
from clicktower.training.towers.text_batch import TextBatch
from clicktower.training.towers.tower import Parts, text_of_row, text_sums
from clicktower.training.towers.tower_settings import Shapes, TowerSettings
from tests.rounding import assert_equal_but_for_rounding
from tests.training.small_shards import TABLE_ROWS, shop, write_build
from tests.training.trainings import train

torch.set_num_threads(1)


@section
class MeanSettings(TowerSettings):
    """The tanh of the mean of the words' inputs.

    Args:
        units: The dimensions of the embedding.
    """

    code: ClassVar[str] = f"{__name__}:TanhOfMean"
    kind: Literal["tanh_of_mean"] = "tanh_of_mean"
    units: Count = 8

    @property
    def columns(self) -> int:
        return self.units

    @property
    def dimensions(self) -> int:
        return self.units

    @property
    def parts(self) -> Shapes:
        return (("b", (self.units,)),)


@dataclass(frozen=True, slots=True)
class TanhOfMean:
    settings: MeanSettings

    def forward(self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch) -> tuple[torch.Tensor, float]:
        lengths_N = torch.bincount(text_of_row(batch))
        return torch.tanh(text_sums(word_UG, batch) / lengths_N[:, None] + parts["b"]), 0.0


RECIPE = Recipe(
    name="mean", tower=MeanSettings(units=12), optimiser=Nesterov(step=0.05), epochs=3, minibatch=32, micro_batch=8
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    pairs, pool = shop(200)
    dev, _ = shop(40, seed=9)
    where = tmp_path_factory.mktemp("third")
    build = write_build(str(where), {"train-00000": pairs, "dev-00000": dev}, pool)
    return train(build, store=str(where), recipe=RECIPE, threads=1)


def test_it_learns_what_clicks_teach(trained):
    points = json.loads(storage.read_bytes(f"{trained.data}/curves.json"))
    assert points[-1]["train_loss"] < points[0]["train_loss"]
    assert points[-1]["dev_ndcg@1"] > 0.5  # one clicked title among about five


def test_its_embeddings_are_those_of_its_equation_and_of_the_stored_weights(trained):
    model = load_model(trained.data)
    assert model.recipe == RECIPE
    texts = ["steel mallet", "garden", "heavy duty borer no 2"]
    table, bias = (model.towers["query"][part].astype(np.float64) for part in ("W", "b"))
    for text, found in zip(texts, model.encode(texts, "query"), strict=True):
        offsets, ids = trigram_ids(words(text), TABLE_ROWS)
        expected = np.tanh(table[ids].sum(axis=0) / (len(offsets) - 1) + bias)
        assert_equal_but_for_rounding(found, expected)


def test_it_is_evaluated_beside_the_baselines(trained, tmp_path):
    (tmp_path / "documents.tsv").write_text("a\toak rug no 3\nb\tsteel hammer no 2\nc\tsteel tap no 1\n")
    (tmp_path / "queries.tsv").write_text("q1\tsteel mallet\nq2\toak carpet\n")
    (tmp_path / "qrels.txt").write_text("q1 0 a 0\nq1 0 b 3\nq1 0 c 0\nq2 0 a 3\nq2 0 b 0\nq2 0 c 0\n")
    files = {name: str(tmp_path / file) for name, file in
             (("documents", "documents.tsv"), ("queries", "queries.tsv"), ("qrels", "qrels.txt"))}  # fmt: skip
    found = evaluate(trained.folder, store=str(tmp_path), config=EvaluateConfig(), **files)
    # BM25 shares no word with the right title of q1 but "steel", which two titles have.
    assert found.manifest.outcome.metrics["systems"]["model"]["ndcg@1"]["mean"] == 1.0


def test_what_nobody_wrote_for_it_is_refused_in_words(trained):
    with pytest.raises(CannotExport, match="no graph for the tower tanh_of_mean"):
        query_onnx(load_model(trained.data))


def test_recipes_can_name_it_and_set_its_own_fields():
    found = changed(Recipe(name="named"), {"tower": "tanh_of_mean", "tower.units": "3"})
    assert found.tower == MeanSettings(units=3)
    with pytest.raises(UsageError, match=r"no field tower\.unit .did you mean tower\.units"):
        changed(RECIPE, {"tower.unit": 3})
    with pytest.raises(UsageError, match=r"no field tower\.hidden of this kind, but of dssm, clsm"):
        changed(RECIPE, {"tower.hidden": 3})


def test_a_kind_is_one_tower_s():
    with pytest.raises(ValueError, match="there is a kind lstm of TowerSettings already"):

        class Another(TowerSettings):
            kind: Literal["lstm"] = "lstm"


def test_a_model_of_a_tower_of_which_nothing_was_imported_is_no_damage(trained, tmp_path):
    description = json.loads(storage.read_bytes(f"{trained.data}/model.json"))
    description["recipe"]["tower"]["kind"] = "elsewhere"
    shutil.copy(f"{trained.data}/model.safetensors", tmp_path)
    (tmp_path / "model.json").write_text(json.dumps(description))
    with pytest.raises(StageError, match=r"its kind 'elsewhere' must be one of lstm.* or import the file that defines"):
        load_model(str(tmp_path))


def test_a_recipe_that_names_a_tower_of_which_nothing_was_imported_is_refused():
    description = asdict(RECIPE) | {"tower": {"kind": "elsewhere", "units": 12}}
    with pytest.raises(ValueError, match="its kind 'elsewhere' must be one of lstm, bilstm"):
        Recipe(**description)
