"""Labelled shards (schemas.labelled) as the trainer uses them: flat arrays over the memory-mapped Arrow files."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from schemas.errors import StageError, UsageError, require_major
from schemas.labelled import CATALOGUE, SCHEMA_VERSION, Unit, labelled_schema
from schemas.shard import open_table, require_within
from schemas.trigrams import CONTRACT_VERSION
from training.data.ragged import WordRows
from training.data.shard_data import Shard, ShardData, require_rows, shard_texts
from training.data.text_batch import TextTable
from training.recipes.objectives import Generate
from training.recipes.recipe import Recipe


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

    `words`: those that have a row of their own (ragged).
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Rephrasings:
    """The E examples of one shard as indices into its texts: first every text as itself, then the paraphrases."""

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
    objective = recipe.objective
    assert isinstance(objective, Generate)
    if objective.reformulate:
        if shards.unit != "pairs" or objective.paraphrase not in shards.classes:
            raise UsageError(
                asked=f"{recipe.name} was to reformulate texts as those of pairs of the class {objective.paraphrase!r}",
                found=f"these shards hold single {shards.unit}"
                if shards.unit != "pairs"
                else f"their classes are {', '.join(shards.classes) or 'none'}",
                do="set objective.paraphrase to the class of pairs that mean the same, or objective.reformulate=false",
            )
        is_paraphrase = shards.classes.index(objective.paraphrase)

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
    objective = recipe.objective
    assert isinstance(objective, Generate)
    if objective.paraphrase:
        raise UsageError(
            asked=f"{recipe.name} was to reformulate texts as those of pairs of the class {objective.paraphrase!r}",
            found="these shards hold clicks, which have no classes",
            do="leave paraphrase out: a query is reformulated as its clicked title",
        )

    def of_split(split: tuple[Shard, ...]) -> list[Rephrasings]:
        found = []
        for shard in split:
            assert shard.strings is not None
            ways = [(shard.query, shard.clicked)] if objective.reformulate else []
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
