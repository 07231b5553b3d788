"""What a text is to be said again as: itself, or another text that the data say means the same.

Shapes: E examples of a shard.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from schemas.errors import UsageError
from training.objectives.labelled_shards import LabelledShard, LabelledShards
from training.recipe import Recipe
from training.shard_data import Shard, ShardData
from training.text_batch import TextTable


@dataclass(frozen=True, kw_only=True, slots=True)
class Rephrasings:
    """The examples of one shard as indices into its texts: first every text as itself, then the paraphrases."""

    texts: TextTable
    strings: pa.ChunkedArray  # the texts, normalised
    source: np.ndarray  # int64 [E]
    target: np.ndarray  # int64 [E]
    num_repeats: int  # of the first examples, whose target is the source

    def __len__(self) -> int:
        return len(self.source)


def of_labels(shards: LabelledShards, recipe: Recipe) -> tuple[list[Rephrasings], list[Rephrasings]]:
    """(of the training rows, of the held-out rows): each text as itself; pairs of the recipe's class both ways.

    Raises UsageError where the recipe names a class that there is not.
    """
    is_paraphrase = None
    if recipe.reformulate:
        if shards.unit != "pairs" or recipe.paraphrase not in shards.classes:
            raise UsageError(
                asked=f"{recipe.name} was to reformulate texts as those of pairs of the class {recipe.paraphrase!r}",
                found=f"these shards hold single {shards.unit}"
                if shards.unit != "pairs"
                else f"their classes are {', '.join(shards.classes) or 'none'}",
                do="set paraphrase to the class of pairs that mean the same, or reformulate=false",
            )
        is_paraphrase = shards.classes.index(recipe.paraphrase)

    def of_split(split: tuple[LabelledShard, ...]) -> list[Rephrasings]:
        found = []
        for shard in split:
            rows = np.flatnonzero(shard.labels == is_paraphrase) if is_paraphrase is not None else np.zeros(0, np.int64)
            ways = [(shard.sides[0][rows], shard.sides[-1][rows]), (shard.sides[-1][rows], shard.sides[0][rows])]
            found.append(_rephrasings(shard.texts, shard.strings, shard.sides, ways))
        return found

    return of_split(shards.train), of_split(shards.dev)


def of_clicks(data: ShardData, recipe: Recipe) -> tuple[list[Rephrasings], list[Rephrasings]]:
    """(of the training pairs, of the held-out pairs): each query and clicked title as itself; queries as titles.

    Raises UsageError where the recipe names a class: clicks have none.
    """
    if recipe.paraphrase:
        raise UsageError(
            asked=f"{recipe.name} was to reformulate texts as those of pairs of the class {recipe.paraphrase!r}",
            found="these shards hold clicks, which have no classes",
            do="leave paraphrase out: a query is reformulated as its clicked title",
        )

    def of_split(split: tuple[Shard, ...]) -> list[Rephrasings]:
        found = []
        for shard in split:
            assert shard.strings is not None
            ways = [(shard.query, shard.clicked)] if recipe.reformulate else []
            found.append(_rephrasings(shard.texts, shard.strings, (shard.query, shard.clicked), ways))
        return found

    return of_split(data.train), of_split(data.dev)


def _rephrasings(
    texts: TextTable,
    strings: pa.ChunkedArray,
    used: tuple[np.ndarray, ...],
    ways: list[tuple[np.ndarray, np.ndarray]],
) -> Rephrasings:
    repeated = np.unique(np.concatenate(used)).astype(np.int64)
    source = np.concatenate([repeated, *(one.astype(np.int64) for one, _ in ways)])
    target = np.concatenate([repeated, *(other.astype(np.int64) for _, other in ways)])
    return Rephrasings(texts=texts, strings=strings, source=source, target=target, num_repeats=len(repeated))
