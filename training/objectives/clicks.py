"""The click objective (eq. 3 to 5): click shards, their pairs and negatives, judged by NDCG."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from schemas.judgments import Judged
from training.data.order import MicroBatch, pair_lengths
from training.data.pairs import Pairs, pairs_of
from training.data.shard_data import ShardData, load_shards
from training.network.outputs import NOTHING, Outputs
from training.objectives.rarity import rarity
from training.objectives.teacher import Teacher, teacher_of
from training.objectives.watch import Watch
from training.recipes.recipe import Recipe
from training.update.click_loss import PairBatch, pair_batch


@dataclass(frozen=True, slots=True)
class Clicks:
    """As objective.Objective."""

    def load(self, folder: str, recipe: Recipe, words: Sequence[str] = (), teacher: str | None = None) -> "ClickTask":
        data = load_shards(folder, recipe, words)
        return ClickTask(data, recipe, teacher_of(teacher, data, recipe) if teacher else None)

    def batch(self, examples: Pairs) -> PairBatch:
        return pair_batch(examples)


@dataclass(frozen=True, slots=True)
class ClickTask:
    """As objective.Task."""

    data: ShardData
    recipe: Recipe
    teacher: Teacher | None = None

    @property
    def table_rows(self) -> int:
        return self.data.table_rows

    @property
    def outputs(self) -> Outputs:
        return NOTHING

    @property
    def lengths(self) -> Sequence[np.ndarray]:
        return [pair_lengths(shard) for shard in self.data.train]

    @property
    def files(self) -> Sequence[str]:
        return [f"{name}/pairs.arrow" for name in self.data.train_names]

    def row_weights(self) -> np.ndarray | None:
        return rarity(self.data) if self.recipe.start == "idf" else None

    def examples(self, micro_batch: MicroBatch, epoch: int) -> Pairs:
        pairs = pairs_of(micro_batch, self.data, self.recipe, epoch)
        return self.teacher.taught(pairs) if self.teacher else pairs

    def watched(self, judged: Judged | None) -> Watch:
        return Watch(self.data, self.recipe, judged)
