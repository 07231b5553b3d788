"""A model, the output of training and the input of everything after it. Its folder: model_folder.

Without torch, which takes seconds to load, if the kernels support its towers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from clicktower.schemas.errors import StageError, require_major
from clicktower.schemas.release import Similarity
from clicktower.schemas.section import named_settings
from clicktower.schemas.text_contract import CONTRACT_VERSION, UNICODE_VERSION
from clicktower.training.model.embedding import AnyEncoder, Empty, Side, members_of
from clicktower.training.model.kernel_towers import CompiledTower, can_encode, encodable, require_side
from clicktower.training.model.model_folder import (
    SCHEMA_VERSION,
    Outputs,
    ShapesDiffer,
    Stored,
    read_model,
    reading_model,
    write_files,
)
from clicktower.training.model.recipe import Recipe, tower_name
from clicktower.training.towers.text_table import CONTRACT_VERSION as WORDS_VERSION
from clicktower.training.towers.text_table import WordRows

if TYPE_CHECKING:
    import torch

    from clicktower.training.model.parameters import Encoder, Layout


@dataclass(frozen=True, kw_only=True)
class Model:
    """A trained model: its towers, and the conditions under which texts mean the same to it as in training."""

    recipe: Recipe
    word_rows: WordRows
    outputs: Outputs
    towers: Mapping[str, Mapping[str, np.ndarray]]  # by name, each one's W and other parts
    text_contract: Mapping[str, Any]

    @staticmethod
    def of(layout: Layout, matrices: Mapping[str, torch.Tensor]) -> Model:
        """The model of trained towers, each as one matrix, [rows, columns]; it shares their memory on a CPU."""
        rows = layout.word_rows
        contract = {"trigrams": CONTRACT_VERSION, "unicode": UNICODE_VERSION, "table_rows": rows.trigram_rows}
        return Model(
            recipe=layout.recipe,
            word_rows=rows,
            outputs=layout.outputs,
            towers={name: layout.arrays(matrix.cpu()) for name, matrix in matrices.items()},
            text_contract=contract | rows.text_contract(),
        )

    @property
    def name(self) -> str:
        return self.recipe.name

    @property
    def dimensions(self) -> int:
        return self.recipe.tower.dimensions

    @property
    def similarity(self) -> Similarity:
        """How its vectors are compared: as its objective compared them in training."""
        return self.recipe.objective.similarity

    @property
    def word_share(self) -> float:
        """The share of the words' own matches in a score (ranking.title_ranking)."""
        return self.recipe.clicks.word_share

    @property
    def lexical_share(self) -> float:
        """The share of the terms that a query and a title have in common (ranking.title_ranking)."""
        return self.recipe.clicks.lexical_share

    @property
    def num_parameters(self) -> int:
        """The number of values in all its towers."""
        return sum(array.size for parts in self.towers.values() for array in parts.values())

    def encode(self, texts: Sequence[str], side: Side, *, empty: Empty = "error") -> np.ndarray:
        """The embeddings of texts, float32 [texts, dimensions], in their order; not normalised to length 1.

        A text without a word has no embedding: `empty` error raises UsageError, zero gives the zero vector, whose
        similarity to anything is 0.
        """
        require_side(side)
        tower = self.compiled.get(tower_name(self.recipe, side))
        if tower and len(texts) == 1 and (vector := tower.encode_short(texts[0])) is not None:
            return vector
        table = encodable(texts, self.recipe, self.word_rows, empty)
        if tower:
            return tower.encode(table)
        from clicktower.training.model.forward import encode_in_torch

        return encode_in_torch(self.encoder, table, side)

    @cached_property
    def compiled(self) -> Mapping[str, CompiledTower]:
        """Its towers on the kernels, prepared at the first text; none if the kernels do not support them."""
        if not can_encode(self.recipe):
            return {}
        rows = self.word_rows.num_rows
        return {
            name: CompiledTower(self.recipe, parts["W"], parts, table_rows=rows) for name, parts in self.towers.items()
        }

    @cached_property
    def layout(self) -> Layout:
        """Where its parameters were in training. Raises StageError if those of its head or decoder do not fit."""
        from clicktower.training.model.parameters import Layout

        layout = Layout(recipe=self.recipe, word_rows=self.word_rows, outputs=self.outputs)
        for parts in self.towers.values():
            if {part: array.shape for part, array in parts.items()} != layout.shapes:
                raise StageError(
                    f"The weights of the model {self.name} do not have the shapes that its recipe declares.",
                    "Train again, or copy the folder again.",
                )
        return layout

    @property
    def encoder(self) -> Encoder:
        """Its towers in torch, for a forward pass."""
        from clicktower.training.model.parameters import Encoder

        return Encoder.of_arrays(self.layout, self.towers)


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


def load_encoder(folder: str) -> AnyEncoder:
    """The content of a model folder: a model, an ensemble or an imported encoder. Raises as `load_model`."""
    with reading_model(folder):
        return _encoder(read_model(folder))


def _encoder(stored: Stored) -> AnyEncoder:
    """Raises ShapesDiffer, ValueError, KeyError and TypeError for other content."""
    description, weights = stored
    if "encoder" in description:
        from clicktower.training.model.imported_encoder import imported_encoder

        return imported_encoder(description, weights)
    if description.get("members") is not None:
        from clicktower.training.model.ensemble import Ensemble, stored_members

        members, shares = stored_members(stored)
        return Ensemble(members=tuple(map(_encoder, members)), shares=shares)
    return _trained(description, weights)


def _trained(description: Mapping[str, Any], weights: Mapping[str, np.ndarray]) -> Model:
    contract = description["text_contract"]
    recipe = Recipe(**description["recipe"])
    if "words" in contract:
        require_major("the model's contract of words", contract["words"]["version"], WORDS_VERSION, stage="train")
    rows = WordRows(contract["table_rows"], tuple(description.get("words", ())))
    towers: dict[str, dict[str, np.ndarray]] = {}
    for name, array in weights.items():
        tower, _, part = name.partition(".")
        towers.setdefault(tower, {})[part] = array
    # Those of a head or decoder are compared where torch is loaded, which knows them (layout).
    outputs = Outputs.from_json(description["outputs"])
    above = ("head.", "decoder.") if outputs.classes or outputs.vocabulary else ()
    shapes = {"W": (rows.num_rows, recipe.columns), **dict(recipe.tower_parts)}
    for parts in towers.values():
        of_tower = {part: array.shape for part, array in parts.items() if not part.startswith(above)}
        if of_tower != shapes or (above and not recipe.objective.layer):
            raise ShapesDiffer
    if towers.keys() != set(recipe.objective.towers) or any(a.dtype != recipe.dtype for a in weights.values()):
        raise ShapesDiffer
    return Model(
        recipe=recipe,
        word_rows=rows,
        outputs=outputs,
        towers={name: towers[name] for name in recipe.objective.towers},
        text_contract=contract,
    )


def write_model(folder: str, model: Model) -> None:
    """Write a model's weights, then its description."""
    weights = {f"{tower}.{part}": array for tower, parts in model.towers.items() for part, array in parts.items()}
    description = {
        "schema_version": SCHEMA_VERSION,
        "recipe": named_settings(model.recipe),  # a newer setting at its default leaves the file as it was
        "text_contract": model.text_contract,
        "dimensions": model.dimensions,
        "outputs": asdict(model.outputs),
        "parameters": model.num_parameters,
        **({"words": model.word_rows.words} if model.word_rows.words else {}),
    }
    write_files(folder, description, weights)
