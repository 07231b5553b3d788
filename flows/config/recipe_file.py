"""A recipe as a user gives it: by the name of one, or as a TOML file, which a sweep writes of its best.

The file is a [train] section: `recipe`, fields of it in [train.set], and `word_vectors` where words start from a file.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from flows.config.toml_file import Uri, read_toml
from schemas.errors import UsageError
from schemas.section import changed, section
from training.recipes.named_recipes import recipe
from training.recipes.recipe import Recipe


@section
class _Section:
    recipe: str
    word_vectors: Uri | None = None
    set: Mapping[str, Any] = field(default_factory=dict)


@section
class _File:
    train: _Section


def is_file(name: str) -> bool:
    """Whether this names a file and not a recipe."""
    return name.endswith(".toml")


def recipe_named(name: str) -> tuple[Recipe, str | None]:
    """(the recipe of a name or of a TOML file, the file of word vectors that this names, relative to its own folder).

    Raises UsageError: an unknown name, no such file, another form, an unknown field or a value it cannot have.
    """
    if not is_file(name):
        return recipe(name), None
    try:
        given = read_toml(name, _File, what="recipe", see="docs/sweeps.md").train
        return changed(recipe(given.recipe), given.set), given.word_vectors
    except UsageError as error:
        raise UsageError(
            asked=f"the recipe was to be read from {name}",
            found=error.found,
            do='write [train] recipe = "lstm-96", and fields of it below [train.set]; a sweep writes such a best.toml',
        ) from None
