"""The click objective (eq. 3 to 5): click shards, their pairs and negatives, judged by NDCG."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from schemas.judgments import Judged
from training.compute.elementary import ln
from training.data.order import MicroBatch, pair_lengths
from training.data.pairs import Pairs, pairs_of
from training.data.shard_data import ShardData, load_shards
from training.network.parameters import NOTHING, Outputs
from training.objectives.teacher import Teacher, teacher_of
from training.objectives.watch import Watch
from training.recipes.recipe import Recipe
from training.update.click_loss import PairBatch, pair_batch


def load(folder: str, recipe: Recipe, words: Sequence[str] = (), teacher: str | None = None) -> "ClickTask":
    data = load_shards(folder, recipe, words)
    return ClickTask(data, recipe, teacher_of(teacher, data, recipe) if teacher else None)


def batch(examples: Pairs) -> PairBatch:
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
        return rarity(self.data) if self.recipe.clicks.start == "idf" else None

    def examples(self, micro_batch: MicroBatch, epoch: int) -> Pairs:
        pairs = pairs_of(micro_batch, self.data, self.recipe, epoch)
        return self.teacher.taught(pairs) if self.teacher else pairs

    def watched(self, judged: Judged | None) -> Watch:
        return Watch(self.data, self.recipe, judged)


_BLOCK_TITLES = 65_536  # counted at once, so that a large pool needs little memory


def rarity(data: ShardData) -> np.ndarray:
    """What `start = idf` weighs each row of the trigram table by, float32 [rows], a function of the shards alone.

        idf = ln(1 + (N - df + 1/2) / (df + 1/2)),    df of the N distinct titles of the pool have the trigram

    as BM25's of a word (bm25), divided by its root mean square over all trigrams of those titles, so
    that embeddings start about as long as with even weights.
    """
    titles = np.unique(data.pool)
    occurrences, df = np.zeros((2, data.word_rows.num_rows), np.int64)
    for start in range(0, len(titles), _BLOCK_TITLES):
        words = data.pool_texts.words.take(titles[start : start + _BLOCK_TITLES])
        trigrams = data.pool_texts.trigrams.take(words.values)
        title_of_word = np.repeat(np.arange(len(words)), words.lengths)
        in_title = np.repeat(title_of_word, trigrams.lengths) * np.int64(data.word_rows.num_rows) + trigrams.values
        in_title.sort()
        first = np.append(True, in_title[1:] != in_title[:-1])[: len(in_title)]
        occurrences += np.bincount(trigrams.values, minlength=data.word_rows.num_rows)
        df += np.bincount(in_title[first] % data.word_rows.num_rows, minlength=data.word_rows.num_rows)
    idf = ln(1 + (len(titles) - df + 0.5) / (df + 0.5))
    mean_square = (idf**2 * occurrences).sum() / occurrences.sum()
    return (idf / np.sqrt(mean_square)).astype(np.float32)
