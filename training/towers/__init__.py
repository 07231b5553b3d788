"""Towers: texts, read as bags of letter trigrams, become one vector each (their settings: training.recipes.towers)."""

from training.recipes.recipe import Recipe
from training.towers.tower import Parts, Projected, Shapes, Tower

__all__ = ["Parts", "Shapes", "Tower", "tower_of"]


def tower_of(recipe: Recipe) -> Tower:
    """The tower a recipe asks for, above word vectors where it has some."""
    tower = recipe.tower.make()
    return Projected(tower, recipe.word_vectors.columns) if recipe.word_vectors else tower
