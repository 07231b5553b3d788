"""A model, the output of training and the input of everything after it. Its folder: model_folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import torch

from clicktower.schemas.errors import StageError, require_major
from clicktower.schemas.section import named_settings
from clicktower.schemas.text_contract import CONTRACT_VERSION, UNICODE_VERSION
from clicktower.training.model.embedding import Empty, Side, WholeEncoder, members_of
from clicktower.training.model.kernel_towers import (
    CompiledModel,
    CompiledTower,
    OfRecipe,
    can_encode,
    encodable,
    require_side,
)
from clicktower.training.model.model_folder import (
    SCHEMA_VERSION,
    ShapesDiffer,
    encoder_of,
    read_model,
    reading_model,
    write_files,
)
from clicktower.training.model.parameters import CPU, Encoder, Layout, Outputs, layout_of
from clicktower.training.model.recipe import Recipe, tower_name
from clicktower.training.towers.text_table import CONTRACT_VERSION as WORDS_VERSION
from clicktower.training.towers.text_table import TextTable


@dataclass(frozen=True, kw_only=True)
class Model(OfRecipe):
    """A trained model: its towers, and the conditions under which texts mean the same to it as in training."""

    recipe: Recipe
    layout: Layout
    towers: Mapping[str, torch.Tensor]  # by name, all parameters as parameters lays them out
    text_contract: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.recipe.name

    @property
    def dimensions(self) -> int:
        return self.encoder.dimensions

    def encode(self, texts: Sequence[str], side: Side, *, empty: Empty = "error") -> np.ndarray:
        """The embeddings of texts, float32 [texts, dimensions], in their order; not normalised to length 1.

        A text without a word has no embedding: `empty` error raises UsageError, zero gives the zero vector, whose
        similarity to anything is 0.
        """
        if self.compiled:
            return self.compiled.encode(texts, side, empty=empty)
        require_side(side)
        return encode_table(self.encoder, encodable(texts, self.recipe, self.layout.word_rows, empty), side)

    @property
    def num_parameters(self) -> int:
        """The number of values in all its towers."""
        return len(self.towers) * sum(prod(shape) for shape in self.layout.shapes.values())

    @property
    def encoder(self) -> Encoder:
        """Its towers, for a forward pass."""
        return Encoder.of(self.recipe, self.layout, self.towers)

    @cached_property
    def compiled(self) -> CompiledModel | None:
        """This model on the compiled path, prepared at the first text; None if the kernels do not support it."""
        if not can_encode(self.recipe):
            return None
        rows = self.layout.word_rows
        towers = {
            name: CompiledTower(self.recipe, *self.layout.split_arrays(matrix), table_rows=rows.num_rows)
            for name, matrix in self.towers.items()
        }
        return CompiledModel(recipe=self.recipe, word_rows=rows, towers=towers, text_contract=self.text_contract)


def load_model(folder: str) -> Model:
    """The trained model in a folder (the data folder of a train stage, or `model/` of a release).

    Raises StageError if it is missing, damaged, imported or several, UnknownVersionError for another major version of
    the model or of the text contract.
    """
    model = load_encoder(folder)
    if isinstance(model, Model):
        return model
    members = members_of(model)
    content = "an imported encoder" if members == (model,) else f"an ensemble of {len(members)} models"
    raise StageError(f"The model in {folder} is {content}.", "Give the folder of a model that `train` made.")


def load_encoder(folder: str) -> WholeEncoder:
    """The content of a model folder. Raises as `load_model`."""
    with reading_model(folder):
        return encoder_of(read_model(folder), trained_model)


def trained_model(description: Mapping[str, Any], weights: Mapping[str, np.ndarray]) -> Model:
    """The model in the two files of a folder. Raises ShapesDiffer, ValueError, KeyError and TypeError."""
    contract = description["text_contract"]
    recipe = Recipe(**description["recipe"])
    if "words" in contract:
        require_major("the model's contract of words", contract["words"]["version"], WORDS_VERSION, stage="train")
    outputs, words = Outputs.from_json(description.get("outputs")), description.get("words", ())
    layout = layout_of(recipe, contract["table_rows"], outputs, words)
    shapes = {f"{name}.{part}": shape for name in recipe.objective.towers for part, shape in layout.shapes.items()}
    if {name: array.shape for name, array in weights.items()} != shapes:
        raise ShapesDiffer
    tensors = {name: torch.from_numpy(array) for name, array in weights.items()}
    towers = {
        name: layout.join(tensors[f"{name}.W"], {part: tensors[f"{name}.{part}"] for part, _ in layout.parts})
        for name in recipe.objective.towers
    }
    return Model(recipe=recipe, layout=layout, towers=towers, text_contract=contract)


def write_model(folder: str, recipe: Recipe, layout: Layout, towers: Mapping[str, torch.Tensor]) -> None:
    """Write a model's weights, then its description."""
    weights: dict[str, np.ndarray] = {}
    for tower, matrix in towers.items():
        table, parts = layout.split_arrays(matrix.cpu())
        weights |= {f"{tower}.{name}": array for name, array in {"W": table, **parts}.items()}
    rows = layout.word_rows
    contract = {"trigrams": CONTRACT_VERSION, "unicode": UNICODE_VERSION, "table_rows": rows.trigram_rows}
    description = {
        "schema_version": SCHEMA_VERSION,
        "recipe": named_settings(recipe),  # a newer setting at its default leaves the file as it was
        "text_contract": contract | rows.text_contract(),
        "dimensions": recipe.tower.dimensions,
        "outputs": asdict(layout.outputs),
        "parameters": sum(array.size for array in weights.values()),
        **({"words": rows.words} if rows.words else {}),
    }
    write_files(folder, description, weights)


def encode_table(encoder: Encoder, table: TextTable, side: str) -> np.ndarray:
    """The embeddings of all texts of a table, float32 [texts, dimensions]; zero for a text without a word.

    The table's words are limited as the recipe says.
    """
    if can_encode(encoder.recipe) and encoder.device == CPU:
        return _compiled(encoder, table, side).encode(table)
    from clicktower.training.model.forward import encode_in_torch

    return encode_in_torch(encoder, table, side)


def _compiled(encoder: Encoder, table: TextTable, side: str) -> CompiledTower:
    """A side's tower with the rows that the table's words have, wherever the encoder takes them from."""
    layout = encoder.layout
    used = np.zeros(layout.table_rows, bool)
    used[table.trigrams.values] = True
    rows = np.flatnonzero(used)
    place = np.zeros(layout.table_rows, np.int32)
    place[rows] = np.arange(len(rows))
    name = tower_name(encoder.recipe, side)
    table_RG = encoder.table_at(name, torch.from_numpy(rows)).numpy()
    parts = {part: values.numpy() for part, values in encoder.parts[name].items()}
    return CompiledTower(encoder.recipe, table_RG, parts, table_rows=layout.table_rows, place=place)
