"""The encoder of a model folder: without torch, which loads in seconds, if the kernels support its towers."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from clicktower.training.model.embedding import AnyEncoder
from clicktower.training.model.kernel_towers import CompiledModel, CompiledTower, can_encode
from clicktower.training.model.model_folder import ShapesDiffer, Stored, encoder_of, read_model, reading_model
from clicktower.training.model.recipe import Recipe
from clicktower.training.towers.text_table import WordRows


class _NotCompiled(Exception):
    """The kernels do not support a tower."""


def load_text_encoder(folder: str) -> AnyEncoder:
    """The encoder of a model folder. Raises as `model.load_encoder`."""
    with reading_model(folder):
        return text_encoder_of(read_model(folder))


def text_encoder_of(stored: Stored) -> AnyEncoder:
    """The encoder of a model folder's content. Raises as `encoder_of`."""
    try:
        return encoder_of(stored, _compiled)
    except _NotCompiled:
        from clicktower.training.model.model import trained_model

        return encoder_of(stored, trained_model)


def _compiled(description: Mapping[str, Any], weights: Mapping[str, np.ndarray]) -> CompiledModel:
    """The model in the two files of a folder, on the kernels.

    Raises _NotCompiled if they do not support it on this machine, ShapesDiffer, and KeyError or TypeError for other
    content.
    """
    recipe = Recipe(**description["recipe"])
    if description.get("words") or not can_encode(recipe):
        raise _NotCompiled
    table_rows, towers, sizes = description["text_contract"]["table_rows"], {}, recipe.tower
    for name in recipe.objective.towers:
        table_RG, parts = weights[f"{name}.W"], {part: weights[f"{name}.{part}"] for part, _ in sizes.parts}
        sound = table_RG.shape == (table_rows, sizes.columns) and all(
            parts[part].shape == shape for part, shape in sizes.parts
        )
        if not sound or any(array.dtype != np.float32 for array in (table_RG, *parts.values())):
            raise ShapesDiffer
        towers[name] = CompiledTower(recipe, table_RG, parts, table_rows=table_rows)
    return CompiledModel(
        recipe=recipe, word_rows=WordRows(table_rows), towers=towers, text_contract=description["text_contract"]
    )
