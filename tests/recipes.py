"""Recipes for tests, their fields by the last part of their names where that says which: `cells` for tower.cells."""

from typing import Any

from clicktower.schemas.section import changed, kinds_of_fields
from clicktower.training.model.label_settings import Rephrasing
from clicktower.training.model.objective_settings import ObjectiveSettings
from clicktower.training.model.recipe import Recipe

OTHERS = {
    "pool_size": "objective.negatives.size",
    "pool_softmax": "objective.negatives.softmax",
    "word_columns": "word_vectors.columns",
    "head_units": "objective.head.units",
    "teacher_share": "objective.teacher.share",
    "teacher_gamma": "objective.teacher.gamma",
    "pretrain_epochs": "objective.pretrain.epochs",
}


def varied(recipe: Recipe, **fields: Any) -> Recipe:
    """The recipe with some fields set."""
    return changed(recipe, {_full(name, recipe, fields): value for name, value in fields.items()})


def recipe_with(*, name: str, **fields: Any) -> Recipe:
    """The recipe with some fields set, all others as by default."""
    return varied(Recipe(name=name), **fields)


def _full(name: str, recipe: Recipe, fields: dict[str, Any]) -> str:
    if name in OTHERS:
        return OTHERS[name]
    known = [field for field in kinds_of_fields(Recipe) if field.rpartition(".")[2] == name]
    objective = fields.get("objective", recipe.objective.kind)
    if not issubclass(ObjectiveSettings.kinds[objective], Rephrasing):  # then a text is said again before it
        known = [field for field in known if field != f"objective.{name}" or "objective.pretrain." + name not in known]
    return min(known, key=len, default=name)
