"""Labelled shards (schemas.labelled) as the texts and labels of each split."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from schemas import storage
from schemas.errors import StageError, require_major
from schemas.labelled import CATALOGUE, SCHEMA_VERSION, Unit, labelled_schema
from schemas.shard import TEXTS, open_table
from training.data.shard_folder import local_folder


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
    asked = f"the labelled rows in {uri} were to be read"
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
    try:
        train, dev = (_read_split(folder, catalogue, split) for split in ("train", "dev"))
    except (OSError, pa.ArrowInvalid, ValueError) as error:
        raise StageError(
            asked=asked,
            found=f"a file is missing or unreadable ({str(error).splitlines()[0][:160]})",
            follows="rows would be left out without a sign",
            do="run `clicktower build-labelled` again",
        ) from None
    return LabelledData(unit=catalogue["unit"], train=train, dev=dev, classes=tuple(catalogue["classes"]))


def _read_split(folder: str, catalogue: dict[str, Any], split: str) -> LabelledRows:
    schema = labelled_schema(catalogue["unit"], catalogue["label"])
    number: dict[str, int] = {}
    parts: list[tuple[np.ndarray, ...]] = []
    for shard in (made["name"] for made in catalogue["shards"] if made["split"] == split):
        texts = open_table(f"{folder}/{shard}/texts.arrow", TEXTS)["text"].to_pylist()
        place = np.array([number.setdefault(text, len(number)) for text in texts], np.int64)
        table = open_table(f"{folder}/{shard}/labelled.arrow", schema)
        *sides, labels = (table[name].to_numpy() for name in schema.names)
        parts.append((*(place[side] for side in sides), labels))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    *sides, labels = columns or [np.zeros(0, np.int64)] * len(schema.names)
    return LabelledRows(texts=list(number), sides=tuple(sides), labels=labels)
