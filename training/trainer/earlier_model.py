"""A training that starts from an earlier model: the towers' parameters come from it, an objective's own are new."""

from collections.abc import Mapping

import torch

from clicktower.schemas.errors import UsageError
from clicktower.training.model.model import Model, load_model
from clicktower.training.model.parameters import Layout
from clicktower.training.model.recipe import Recipe, tower_name
from clicktower.training.towers.text_table import WordRows


def started_from(model: str, layout: Layout, start: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Each tower's parameters, with those of an earlier model's towers. Raises UsageError if its towers are different.

    `model`: a model folder. `start`: new parameters of each tower, [rows, columns].
    """
    started = dict[str, torch.Tensor]()
    before = load_model(model)
    _require_same_towers(layout, before, model)
    for name, matrix in start.items():
        source = before.towers[tower_name(before.recipe, "query" if name == "shared" else name)]
        parts = {part: torch.from_numpy(array).to(matrix.dtype) for part, array in source.items()}
        table_RG, fresh = layout.split(matrix)
        rows, source_rows = _matching_rows(layout, before.word_rows)
        table_RG[rows] = parts["W"][source_rows]
        of_tower = {part: parts[part] for part, _ in layout.recipe.tower_parts}
        started[name] = layout.join(table_RG, {**fresh, **of_tower})
    return started


def _matching_rows(layout: Layout, before: WordRows) -> tuple[torch.Tensor, torch.Tensor]:
    """(rows of W, the rows of an earlier model's W) for the same trigram or word."""
    trigrams, source_row_of = torch.arange(layout.word_rows.trigram_rows), before.row_of
    row_pairs = [(row, source_row_of[word]) for word, row in layout.word_rows.row_of.items() if word in source_row_of]
    rows, source_rows = torch.tensor(row_pairs, dtype=torch.int64).view(-1, 2).unbind(1)
    return torch.cat([trigrams, rows]), torch.cat([trigrams, source_rows])


def _require_same_towers(layout: Layout, before: Model, model: str) -> None:
    recipe = layout.recipe
    shapes = _shapes_of_tower(recipe, layout.word_rows)
    source_shapes = _shapes_of_tower(before.recipe, before.word_rows)
    if shapes != source_shapes or recipe.tower.kind != before.recipe.tower.kind:
        differing = [part for part in {**shapes, **source_shapes} if shapes.get(part) != source_shapes.get(part)]
        raise UsageError(
            f"The recipe {recipe.name} cannot start from {model}: its recipe {before.recipe.name} has other towers"
            + (
                f" ({differing[0]}: {source_shapes.get(differing[0])}, not {shapes.get(differing[0])})."
                if differing
                else "."
            ),
            "Start from a model with the same tower, cells and table rows, or from none.",
        )


def _shapes_of_tower(recipe: Recipe, rows: WordRows) -> dict[str, tuple[int, ...]]:
    """The shapes without an objective's parts, and W without the rows of words: these may differ."""
    return {"W": (rows.trigram_rows, recipe.columns), **dict(recipe.tower_parts)}
