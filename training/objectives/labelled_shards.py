"""Labelled shards (schemas.labelled) as the trainer uses them: flat arrays over the memory-mapped Arrow files."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from schemas.errors import StageError, require_major
from schemas.labelled import CATALOGUE, SCHEMA_VERSION, Unit, labelled_schema
from schemas.shard import open_table, require_within
from schemas.trigrams import CONTRACT_VERSION
from training.recipe import Recipe
from training.shard_texts import require_rows, shard_texts
from training.text_batch import TextTable
from training.word_rows import WordRows


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

    @property
    def table_rows(self) -> int:
        """Of letter trigrams."""
        return self.word_rows.trigram_rows


def load_labelled(folder: str, recipe: Recipe, words: Sequence[str] = ()) -> LabelledShards:
    """The labelled shards in a folder, their texts as long as the recipe reads.

    `words`: those that have a row of their own (training.word_rows).
    Raises StageError (missing or unreadable files, labels that are none of the classes, too few rows) and
    UnknownVersionError.
    """
    asked = f"the labelled shards in {folder} were to be read for training"
    try:
        with open(f"{folder}/{CATALOGUE}", encoding="utf-8") as file:
            catalogue = json.load(file)
        require_major(f"{folder}/{CATALOGUE}", catalogue.get("schema_version"), SCHEMA_VERSION)
        require_major(f"the text contract of {folder}", catalogue.get("text_contract"), CONTRACT_VERSION)
        names = {split: _names(catalogue, split) for split in ("train", "dev")}
        rows = WordRows(int(catalogue["table_rows"]), tuple(words))
        found = {split: [_shard(f"{folder}/{n}", catalogue, recipe, rows) for n in names[split]] for split in names}
    except (OSError, pa.ArrowInvalid, ValueError, KeyError) as error:
        raise StageError(
            asked=asked,
            found=f"a file is missing or unreadable ({str(error).splitlines()[0][:160]})",
            follows="rows would be left out without a sign",
            do="run `clicktower build-labelled` again",
        ) from None
    shards = LabelledShards(
        train=tuple(found["train"]),
        dev=tuple(found["dev"]),
        train_names=names["train"],
        unit=catalogue["unit"],
        classes=tuple(catalogue["classes"]),
        word_rows=rows,
    )
    _check(shards, recipe, asked)
    return shards


def _names(catalogue: dict[str, Any], split: str) -> tuple[str, ...]:
    return tuple(made["name"] for made in catalogue["shards"] if made["split"] == split)


def _shard(folder: str, catalogue: dict[str, Any], recipe: Recipe, word_rows: WordRows) -> LabelledShard:
    texts, strings = shard_texts(folder, recipe, word_rows)
    schema = labelled_schema(catalogue["unit"], catalogue["label"])
    rows = open_table(f"{folder}/labelled.arrow", schema)
    *sides, labels = (rows[name].to_numpy() for name in schema.names)
    for side in sides:
        require_within(side, len(texts), f"{folder}/labelled.arrow")
    return LabelledShard(texts=texts, strings=strings, sides=tuple(sides), labels=labels)


def _check(shards: LabelledShards, recipe: Recipe, asked: str) -> None:
    for shard in (*shards.train, *shards.dev):
        require_rows(shard.texts, shards.word_rows, asked, "build-labelled")
        wrong = int(((shard.labels < 0) | (shard.labels >= len(shards.classes))).sum()) if shards.classes else 0
        if wrong:
            raise StageError(
                asked=asked,
                found=f"{wrong:,} of {len(shard):,} rows of a shard have a label that is none of the "
                f"{len(shards.classes)} classes",
                follows="they would be learnt as another class",
                do="run `clicktower build-labelled` again",
            )
    num_rows = sum(len(shard) for shard in shards.train)
    if num_rows < recipe.micro_batch:
        raise StageError(
            asked=f"training needs at least one full micro-batch ({recipe.micro_batch:,} rows)",
            found=f"the shards hold {num_rows:,} training rows",
            follows="there would be next to nothing to learn from",
            do=f"give more labelled rows, or set micro_batch={max(1, num_rows)}",
        )
