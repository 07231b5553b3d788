"""What training starts from: random numbers, or the tower of a model that was trained before."""

import numpy as np
import torch

from schemas.errors import UsageError
from training.beside_tower import is_beside
from training.model import Model, load_model
from training.parameters import Layout, initial_parameters, tower_name, tower_names
from training.recipe import Recipe


def start_of(
    recipe: Recipe, layout: Layout, row_weights: np.ndarray | None, model: str | None
) -> dict[str, torch.Tensor]:
    """Each tower's parameters before the first update, [rows, columns].

    `model`: a model folder. W and the tower's parts are its; what the objective puts beside them is new. One tower for
    both sides starts from the shared one, or from that of queries. Raises UsageError where its towers are others.
    """
    start = {name: initial_parameters(recipe, layout, name, row_weights) for name in tower_names(recipe)}
    if model is None:
        return start
    before = load_model(model)
    _require_same_towers(recipe, layout, before, model)
    for name, matrix in start.items():
        source = before.towers[tower_name(before.recipe, "query" if name == "shared" else name)]
        table_RG, parts = before.layout.split(source)
        fresh = layout.split(matrix)[1]
        of_tower = {part: values for part, values in parts.items() if not is_beside(part)}
        start[name] = layout.join(table_RG, {**fresh, **of_tower}).to(matrix.dtype)
    return start


def _require_same_towers(recipe: Recipe, layout: Layout, before: Model, model: str) -> None:
    own, its = (
        {part: shape for part, shape in of.shapes.items() if not is_beside(part)} for of in (layout, before.layout)
    )
    if own != its or recipe.tower != before.recipe.tower:
        differing = [part for part in {**own, **its} if own.get(part) != its.get(part)]
        raise UsageError(
            asked=f"{recipe.name} was to start from the model in {model}",
            found=f"that is {before.recipe.name}, whose towers are others"
            + (f" ({differing[0]}: {its.get(differing[0])}, not {own.get(differing[0])})" if differing else ""),
            do="start from a model with the same tower, cells and table rows, or from none",
        )
