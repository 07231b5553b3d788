"""What training starts from: random numbers, or the tower of a model that was trained before."""

import numpy as np
import torch

from schemas.errors import UsageError
from training.beside_tower import is_beside
from training.model import Model, load_model
from training.parameters import Layout, initial_parameters, tower_name, tower_names
from training.recipe import Recipe


def start_of(
    recipe: Recipe,
    layout: Layout,
    row_weights: np.ndarray | None,
    model: str | None,
    word_vectors: np.ndarray | None = None,
) -> dict[str, torch.Tensor]:
    """Each tower's parameters before the first update, [rows, columns].

    `model`: a model folder. W and the tower's parts are its; what the objective puts beside them is new. One tower for
    both sides starts from the shared one, or from that of queries. `word_vectors`: of the words with a row of their own
    (training.word_vectors); those that the model knows start as it has them. Raises UsageError where its towers are
    others.
    """
    start = {name: initial_parameters(recipe, layout, name, row_weights, word_vectors) for name in tower_names(recipe)}
    if model is None:
        return start
    before = load_model(model)
    _require_same_towers(recipe, layout, before, model)
    for name, matrix in start.items():
        source = before.towers[tower_name(before.recipe, "query" if name == "shared" else name)]
        its_table_RG, parts = before.layout.split(source)
        table_RG, fresh = layout.split(matrix)
        mine, its = _same_rows(layout, before.layout)
        table_RG[mine] = its_table_RG[its].to(matrix.dtype)
        of_tower = {part: values for part, values in parts.items() if not is_beside(part)}
        start[name] = layout.join(table_RG, {**fresh, **of_tower}).to(matrix.dtype)
    return start


def _same_rows(layout: Layout, before: Layout) -> tuple[torch.Tensor, torch.Tensor]:
    """(rows of W, the rows of an earlier model's W) that are for the same trigram or word."""
    trigrams, its = torch.arange(layout.word_rows.trigram_rows), before.word_rows.row_of
    both = [(row, its[word]) for word, row in layout.word_rows.row_of.items() if word in its]
    mine, others = torch.tensor(both, dtype=torch.int64).view(-1, 2).unbind(1)
    return torch.cat([trigrams, mine]), torch.cat([trigrams, others])


def _require_same_towers(recipe: Recipe, layout: Layout, before: Model, model: str) -> None:
    own, its = (_shapes_of_tower(of) for of in (layout, before.layout))
    if own != its or recipe.tower != before.recipe.tower:
        differing = [part for part in {**own, **its} if own.get(part) != its.get(part)]
        raise UsageError(
            asked=f"{recipe.name} was to start from the model in {model}",
            found=f"that is {before.recipe.name}, whose towers are others"
            + (f" ({differing[0]}: {its.get(differing[0])}, not {own.get(differing[0])})" if differing else ""),
            do="start from a model with the same tower, cells and table rows, or from none",
        )


def _shapes_of_tower(layout: Layout) -> dict[str, tuple[int, ...]]:
    """Without what is beside the tower, and W without the rows of words: these may be others."""
    shapes = {part: shape for part, shape in layout.shapes.items() if not is_beside(part)}
    return shapes | {"W": (layout.word_rows.trigram_rows, layout.columns)}
