"""Labelled shards (schemas.labelled) as the texts and labels of each split."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from schemas import storage
from schemas.errors import StageError, UsageError, require_major
from schemas.labelled import CATALOGUE, SCHEMA_VERSION, labelled_schema
from schemas.shard import TEXTS, open_table
from training.shard_folder import local_folder


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledPairs:
    """The pairs of a split as indices into its distinct texts."""

    texts: list[str]  # normalised; a text of several shards occurs once
    first: np.ndarray  # int64 [pairs]
    second: np.ndarray  # int64 [pairs]
    labels: np.ndarray  # int32 [pairs], which class; or float64, the value

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: np.ndarray) -> "LabelledPairs":
        """Some of the pairs, with all texts."""
        return LabelledPairs(
            texts=self.texts, first=self.first[rows], second=self.second[rows], labels=self.labels[rows]
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledData:
    train: LabelledPairs
    dev: LabelledPairs
    classes: tuple[str, ...]  # none: labels are values


def read_labelled_pairs(uri: str) -> LabelledData:
    """The labelled pairs below a build's data folder.

    Raises UsageError for labelled texts, StageError (missing or unreadable files) and UnknownVersionError.
    """
    asked = f"the labelled pairs in {uri} were to be read"
    folder = local_folder(uri)
    try:
        with open(f"{folder}/{CATALOGUE}", encoding="utf-8") as file:
            catalogue = json.load(file)
    except (OSError, ValueError):
        raise StageError(
            asked=asked,
            found=f"there is no readable {CATALOGUE} among them",
            do="give the folder that `clicktower build-labelled` printed",
        ) from None
    require_major(storage.join(uri, CATALOGUE), catalogue.get("schema_version"), SCHEMA_VERSION)
    if catalogue["unit"] != "pairs":
        raise UsageError(
            asked=asked,
            found="they are labelled texts, one by one",
            follows="there is no similarity to measure",
            do="give labelled pairs",
        )
    try:
        train, dev = (_read_split(folder, catalogue, split) for split in ("train", "dev"))
    except (OSError, pa.ArrowInvalid, ValueError) as error:
        raise StageError(
            asked=asked,
            found=f"a file is missing or unreadable ({str(error).splitlines()[0][:160]})",
            follows="pairs would be left out without a sign",
            do="run `clicktower build-labelled` again",
        ) from None
    return LabelledData(train=train, dev=dev, classes=tuple(catalogue["classes"]))


def _read_split(folder: str, catalogue: dict[str, Any], split: str) -> LabelledPairs:
    schema = labelled_schema("pairs", catalogue["label"])
    number: dict[str, int] = {}
    parts: list[tuple[np.ndarray, ...]] = []
    for shard in (made["name"] for made in catalogue["shards"] if made["split"] == split):
        texts = open_table(f"{folder}/{shard}/texts.arrow", TEXTS)["text"].to_pylist()
        place = np.array([number.setdefault(text, len(number)) for text in texts], np.int64)
        table = open_table(f"{folder}/{shard}/labelled.arrow", schema)
        first, second, labels = (table[name].to_numpy() for name in schema.names)
        parts.append((place[first], place[second], labels))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)] if parts else [np.zeros(0, np.int64)] * 3
    return LabelledPairs(texts=list(number), first=columns[0], second=columns[1], labels=columns[2])
