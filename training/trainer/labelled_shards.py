"""Labelled shards (schemas.shard): of each shard flat arrays to train on, of each split texts to evaluate on."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from clicktower.schemas.errors import StageError
from clicktower.schemas.labelled_shard import LABELLED_CATALOGUE, LABELLED_VERSION, Unit, labelled_schema
from clicktower.schemas.shard import TEXTS, open_table, require_within
from clicktower.training.model.recipe import Recipe
from clicktower.training.towers.text_table import TextTable, WordRows
from clicktower.training.trainer.shard_data import (
    MicroBatch,
    local_folder,
    names_of,
    open_catalogue,
    require_rows,
    shard_texts,
)

_open = partial(open_catalogue, name=LABELLED_CATALOGUE, version=LABELLED_VERSION, stage="build-labelled")


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledShard:
    """The rows of one shard as indices into its texts."""

    texts: TextTable
    strings: pa.ChunkedArray  # the texts, normalised
    sides: tuple[np.ndarray, ...]  # int32 [rows] each: (first, second) of pairs, (text,) of texts
    labels: np.ndarray  # int32 [rows], which class; float64 [rows], the value

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledShards:
    train: tuple[LabelledShard, ...]
    dev: tuple[LabelledShard, ...]
    train_names: tuple[str, ...]
    unit: Unit
    classes: tuple[str, ...]  # none: labels are values
    word_rows: WordRows


def load_labelled(folder: str, recipe: Recipe, words: Sequence[str] = ()) -> LabelledShards:
    """The labelled shards in a folder, with texts limited to the recipe's words.

    `words`: those with a row of their own (text_table.WordRows). Raises StageError (missing or unreadable files,
    invalid labels, too few rows) and UnknownVersionError.
    """
    with _open(folder) as catalogue:
        word_rows = WordRows(int(catalogue["table_rows"]), tuple(words))

        def shard(name: str) -> LabelledShard:
            texts, strings = shard_texts(f"{folder}/{name}", recipe, word_rows)
            *sides, labels = _columns(f"{folder}/{name}", catalogue, len(texts))
            return LabelledShard(texts=texts, strings=strings, sides=tuple(sides), labels=labels)

        shards = LabelledShards(
            train=tuple(map(shard, names_of(catalogue, "train"))),
            dev=tuple(map(shard, names_of(catalogue, "dev"))),
            train_names=tuple(names_of(catalogue, "train")),
            unit=catalogue["unit"],
            classes=tuple(catalogue["classes"]),
            word_rows=word_rows,
        )
    _check(shards, recipe, folder)
    return shards


def _check(shards: LabelledShards, recipe: Recipe, folder: str) -> None:
    for shard in (*shards.train, *shards.dev):
        require_rows(shard.texts, shards.word_rows, folder, "build-labelled")
        wrong = int(((shard.labels < 0) | (shard.labels >= len(shards.classes))).sum()) if shards.classes else 0
        if wrong:
            raise StageError(
                f"{wrong:,} of {len(shard):,} rows of a shard in {folder} have a label outside the"
                f" {len(shards.classes)} classes.",
                "Run `clicktower build-labelled` again.",
            )
    num_rows = sum(len(shard) for shard in shards.train)
    if num_rows < recipe.micro_batch:
        raise StageError(
            f"The shards hold {num_rows:,} training rows, and training needs at least one full micro-batch"
            f" ({recipe.micro_batch:,} rows).",
            f"Give more labelled rows, or set micro_batch={max(1, num_rows)}.",
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledRows:
    """The rows of a split as indices into its distinct texts."""

    texts: list[str]  # normalised; a text of several shards occurs once
    sides: tuple[np.ndarray, ...]  # int64 [rows] each: (first, second) of pairs, (text,) of texts
    labels: np.ndarray  # int32 [rows], which class; or float64, the value

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: np.ndarray) -> "LabelledRows":
        """Some of the rows, with all texts."""
        return LabelledRows(texts=self.texts, sides=tuple(side[rows] for side in self.sides), labels=self.labels[rows])


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledData:
    unit: Unit
    train: LabelledRows
    dev: LabelledRows
    classes: tuple[str, ...]  # none: labels are values


def read_labelled(uri: str) -> LabelledData:
    """The labelled pairs, or texts, below a build's data folder.

    Raises StageError (missing or unreadable files) and UnknownVersionError.
    """
    folder = local_folder(uri)
    with _open(folder, uri=uri) as catalogue:
        train, dev = (_split(folder, catalogue, split) for split in ("train", "dev"))
    return LabelledData(unit=catalogue["unit"], train=train, dev=dev, classes=tuple(catalogue["classes"]))


def _split(folder: str, catalogue: dict[str, Any], split: str) -> LabelledRows:
    number: dict[str, int] = {}
    parts: list[tuple[np.ndarray, ...]] = []
    for shard in names_of(catalogue, split):
        texts = open_table(f"{folder}/{shard}/texts.arrow", TEXTS)["text"].to_pylist()
        place = np.array([number.setdefault(text, len(number)) for text in texts], np.int64)
        *sides, labels = _columns(f"{folder}/{shard}", catalogue, len(texts))
        parts.append((*(place[side] for side in sides), labels))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    num_sides = 2 if catalogue["unit"] == "pairs" else 1
    *sides, labels = columns or [np.zeros(0, np.int64)] * (num_sides + 1)
    return LabelledRows(texts=list(number), sides=tuple(sides), labels=labels)


def _columns(folder: str, catalogue: dict[str, Any], num_texts: int) -> list[np.ndarray]:
    """The sides and, last, the labels of a shard's rows."""
    schema = labelled_schema(catalogue["unit"], catalogue["label"])
    table = open_table(f"{folder}/labelled.arrow", schema)
    *sides, labels = (table[name].to_numpy() for name in schema.names)
    for side in sides:
        require_within(side, num_texts, f"{folder}/labelled.arrow")
    return [*sides, labels]


# Separate streams, so that no draw repeats those of the order, whose second word stays below, or of the start.
_STREAM, _HELD_OUT = 1 << 63, 1 << 61


def draws(recipe: Recipe, micro_batch: MicroBatch, epoch: int) -> np.random.Generator:
    """The random numbers of a micro-batch in an epoch: a function of the seed, the epoch and its place, in any
    process.
    """
    key = [recipe.seed, _STREAM | epoch << 32 | micro_batch.place]
    return np.random.Generator(np.random.Philox(key=np.array(key, np.uint64)))


def held_out_draws(recipe: Recipe, shard: int, start: int) -> np.random.Generator:
    """The random numbers of some held-out examples of a shard, the same after every epoch."""
    key = [recipe.seed, _HELD_OUT | shard << 32 | start]
    return np.random.Generator(np.random.Philox(key=np.array(key, np.uint64)))
