"""The named recipes, from recipes.toml, and a recipe as a table of TOML gives it."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from clicktower.schemas.errors import UsageError
from clicktower.schemas.section import changed
from clicktower.training.model.recipe import Recipe

DEFAULT = "lstm-pool-192-words"  # of `train`: the paper's model, and `explain` has gates to show
PRINTED = "paper-"  # begins the names of the towers as the paper prints them


@cache
def _tables() -> Mapping[str, Any]:
    return tomllib.loads((files("clicktower.training.model") / "recipes.toml").read_text(encoding="utf-8"))


def names() -> list[str]:
    """The names `recipe` knows."""
    return list(_tables())


@cache
def recipe(name: str) -> Recipe:
    """The recipe with that name. Raises UsageError for an unknown one."""
    if name not in _tables():
        raise UsageError(f"There is no recipe {name!r}.", f"Use one of {', '.join(names())}.")
    table = _tables()[name]
    start = recipe(table["recipe"]) if "recipe" in table else Recipe(name=name)
    return changed(start, {**table["set"], "name": name})
