"""An objective that is no part of the package, whole in this file: a clicked title is to be near its query.

L = Σ over pairs of (1 - cos(query, title)); no unclicked title is looked at.
"""

import json
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import pytest
import torch

from clicktower.schemas import storage
from clicktower.schemas.errors import UsageError
from clicktower.schemas.section import Positive, changed, section
from clicktower.training.model.forward import encoded, gradients
from clicktower.training.model.objective_settings import ObjectiveSettings
from clicktower.training.model.parameters import Encoder, RowGradient
from clicktower.training.model.recipe import Nesterov, Recipe
from clicktower.training.towers.tower_settings import LSTM
from clicktower.training.trainer import clicks
from clicktower.training.trainer.click_loss import PairBatch
from tests.training.small_shards import shop, write_build
from tests.training.trainings import train

torch.set_num_threads(1)
load = clicks.load


@section
class Nearness(ObjectiveSettings):
    """Clicked titles that are near their queries.

    Args:
        weight: The factor of the loss.
    """

    code: ClassVar[str] = __name__
    kind: Literal["nearness"] = "nearness"
    stages: ClassVar[tuple[str, ...]] = ("build",)
    weight: Positive = 1.0


@dataclass(frozen=True, slots=True)
class NearnessBatch:
    pairs: PairBatch

    def to(self, device: torch.device) -> "NearnessBatch":
        return NearnessBatch(self.pairs.to(device))

    def table_rows(self, side: str) -> torch.Tensor:
        return torch.unique(torch.cat([self.pairs.table_rows("query"), self.pairs.table_rows("document")]))

    def gradient(self, encoder: Encoder, update: int) -> tuple[list[tuple[str, RowGradient]], torch.Tensor]:
        objective = encoder.layout.recipe.objective
        assert isinstance(objective, Nearness)
        sides = [encoded(texts, "query", encoder) for texts in (self.pairs.queries, self.pairs.documents)]
        query_Bd, document_Nd = (side.vectors_Nd for side in sides)
        cosine_B = torch.cosine_similarity(query_Bd, document_Nd[self.pairs.candidates[:, 0].long()])
        loss = objective.weight * (1 - cosine_B).sum()
        return gradients(loss, sides, encoder), loss.detach()


def batch(examples: clicks.Pairs) -> NearnessBatch:
    return NearnessBatch(clicks.batch(examples))


RECIPE = Recipe(
    name="near", tower=LSTM(cells=16), objective=Nearness(weight=2.0), optimiser=Nesterov(step=0.01), epochs=3,
    minibatch=32, micro_batch=8,
)  # fmt: skip


@pytest.mark.slow
def test_it_learns_what_it_says(tmp_path):
    pairs, pool = shop(200)
    dev, _ = shop(40, seed=9)
    build = write_build(str(tmp_path), {"train-00000": pairs, "dev-00000": dev}, pool)
    trained = train(build, store=str(tmp_path), recipe=RECIPE, threads=1)
    points = json.loads(storage.read_bytes(f"{trained.data}/curves.json"))
    assert points[-1]["train_loss"] < points[0]["train_loss"] / 2
    other = train(build, store=str(tmp_path), recipe=replace(RECIPE, objective=Nearness()), threads=1)
    assert other.manifest.digest != trained.manifest.digest


def test_recipes_can_name_it_and_set_its_own_fields():
    found = changed(Recipe(name="named"), {"objective": "nearness", "objective.weight": "3"})
    assert found.objective == Nearness(weight=3.0)
    with pytest.raises(UsageError, match=r"no field objective\.gamma of this kind, but of clicks"):
        changed(RECIPE, {"objective.gamma": 3})
