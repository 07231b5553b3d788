"""The recipes that have a name."""

from schemas.errors import UsageError
from training.model.click_recipes import CLICK_RECIPES
from training.model.label_recipes import LABEL_RECIPES
from training.model.printed_recipes import PRINTED_RECIPES
from training.model.recipe import Recipe
from training.model.sister_recipes import SISTER_RECIPES

_NAMED = {made.name: made for made in (*CLICK_RECIPES, *LABEL_RECIPES, *PRINTED_RECIPES, *SISTER_RECIPES)}


def names() -> list[str]:
    """The names `recipe` knows."""
    return list(_NAMED)


def recipe(name: str) -> Recipe:
    """The recipe of a name. Raises UsageError for an unknown one."""
    if name not in _NAMED:
        raise UsageError(
            asked=f"the recipe {name!r} was to be trained",
            found="there is no recipe of that name",
            do=f"use one of {', '.join(_NAMED)}",
        )
    return _NAMED[name]
