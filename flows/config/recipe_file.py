"""A recipe as a TOML file, such as a sweep's best: a [train] section with `recipe`, fields of it in [train.set], and
`word_vectors` if words start from a file.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from clicktower.flows.config.toml_file import read_toml
from clicktower.schemas.errors import UsageError
from clicktower.schemas.section import Uri, changed, section
from clicktower.training.model.recipe import Recipe, recipe


@section
class _RecipeSection:
    recipe: str
    word_vectors: Uri | None = None
    set: Mapping[str, Any] = field(default_factory=dict)


@section
class _RecipeFile:
    train: _RecipeSection


def read_recipe(path: str) -> tuple[Recipe, str | None]:
    """(the recipe, its file of word vectors, relative to the folder of this file). Raises UsageError."""
    section = read_toml(path, _RecipeFile, subject="recipe", see="docs/running.md").train
    try:
        return changed(recipe(section.recipe), section.set), section.word_vectors
    except UsageError as error:
        raise UsageError(f"{path}: {error.problem}", error.fix) from None
